"""ProduceHeads: where a request goes that begins like one before it.

Rule: a producer sends the same bytes before its records again and again; what follows from them
alone, which is the log and the required acks, is found by these bytes and not worked out anew.
Only requests that hold one batch of no transaction are remembered, and only while no topic changes
and the log is open; the registry says when idle logs were closed, so that none is kept in memory
here. A batch that may need more than its head says is not found here.
Must not know: how a request is laid out, what is done with its records.
"""

from collections.abc import Sequence

from kledger.batches.header import FLAGS_AT, TRANSACTIONAL_BIT
from kledger.gateway.wire.produce_codec import ProduceRequest, SingleBatch
from kledger.topics import PartitionLog, TopicRegistry

HEADS_MAX = 4096
"""Heads that are remembered, some hundred bytes each; when there are more, all are forgotten."""


class ProduceHeads:
    """The heads of the requests that were served, for one server."""

    __slots__ = ("_epoch", "_known", "_registry")

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry
        self._epoch = registry.epoch
        self._known: dict[tuple[int, bytes], tuple[ProduceRequest, PartitionLog]] = {}
        registry.idle_closed.add(self._forget_closed)

    def __len__(self) -> int:
        return len(self._known)

    def find(
        self, frame: memoryview, version: int, single: SingleBatch | None
    ) -> tuple[ProduceRequest, Sequence[PartitionLog | int]] | None:
        """Return a request that has one batch and where that goes, if it is known already."""
        if single is None:
            return None
        head, start, length = single
        if self._epoch != self._registry.epoch:
            self._epoch = self._registry.epoch
            self._known.clear()
        known = self._known.get((version, head))
        if known is None or length <= FLAGS_AT:
            return None
        before, log = known
        if log.is_closed or frame[start + FLAGS_AT] & TRANSACTIONAL_BIT:
            return None
        return before.with_records(start, length), (log,)

    def remember(
        self,
        version: int,
        single: SingleBatch | None,
        request: ProduceRequest,
        found: Sequence[PartitionLog | int],
    ) -> None:
        """Note where the batch of a request went, if it is the only one and found its log."""
        if single is None or isinstance(found[0], int):
            return
        if len(self._known) >= HEADS_MAX:
            self._known.clear()
        self._known[version, single[0]] = (request, found[0])

    def _forget_closed(self) -> None:
        """Let go of the logs that are closed: the next request opens another one."""
        self._known = {key: each for key, each in self._known.items() if not each[1].is_closed}
