"""ProduceRouteCache: where a request goes that begins like one before it.

Rule: a producer sends the same bytes before its records again and again; what follows from them
alone, which is the log and the required acks, is found by these bytes and not worked out anew.
Only requests that hold one batch of no transaction are remembered, and only while no topic changes
and the log is open; the registry says when idle logs were closed, so that none is kept in memory
here. A batch that may need more than its head says is not found here.
Must not know: how a request is laid out, what is done with its records.
"""

from collections.abc import Sequence

from kledger.batches.header import FLAGS_AT, TRANSACTIONAL_BIT
from kledger.gateway.wire.produce_codec import ParsedProduceRequest, SingleBatch
from kledger.topics import PartitionLog, TopicRegistry

ROUTES_MAX = 4096
"""Heads that are remembered, some hundred bytes each; when there are more, all are forgotten."""


class ProduceRouteCache:
    """The heads of the requests that were served, for one server."""

    __slots__ = ("_epoch", "_registry", "_routes")

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry
        self._epoch = registry.epoch
        self._routes: dict[tuple[int, bytes], tuple[ParsedProduceRequest, PartitionLog]] = {}
        registry.idle_closed.add(self._forget_closed)

    def __len__(self) -> int:
        return len(self._routes)

    def find(
        self, frame: memoryview, version: int, single_batch: SingleBatch | None
    ) -> tuple[ParsedProduceRequest, Sequence[PartitionLog | int]] | None:
        """Return a request that has one batch and where that goes, if it is known already."""
        if single_batch is None:
            return None
        head, start, length = single_batch
        if self._epoch != self._registry.epoch:
            self._epoch = self._registry.epoch
            self._routes.clear()
        route = self._routes.get((version, head))
        if route is None or length <= FLAGS_AT:
            return None
        before, log = route
        if log.is_closed or frame[start + FLAGS_AT] & TRANSACTIONAL_BIT:
            return None
        return before.with_records(start, length), (log,)

    def remember(
        self,
        version: int,
        single_batch: SingleBatch | None,
        request: ParsedProduceRequest,
        found: Sequence[PartitionLog | int],
    ) -> None:
        """Note where the batch of a request went, if it is the only one and found its log."""
        if single_batch is None or isinstance(found[0], int):
            return
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[version, single_batch[0]] = (request, found[0])

    def _forget_closed(self) -> None:
        """Let go of the logs that are closed: the next request opens another one."""
        self._routes = {key: each for key, each in self._routes.items() if not each[1].is_closed}
