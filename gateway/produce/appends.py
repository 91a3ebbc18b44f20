"""ProduceAppends: appends the batches of a request; those that need a long walk, after that.

Rule: while records of a request are walked, its connection holds it and all behind it, then starts
it again, and what is left of it is appended: so nothing on a connection is overtaken, and all other
decisions about what is left are made anew. One connection has one such request at a time.
Must not know: what a walk looks for, where batches go.
"""

from collections.abc import Container, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kledger.gateway.produce.slot import ProduceSlot
from kledger.gateway.wire.produce_codec import owned_records
from kledger.runtime.blocking import PoolClosed
from kledger.topics import PartitionLog, RecordWalk, WalkNeeded, WalkResult

if TYPE_CHECKING:
    from kledger.gateway.net.ports import ResponsePort
    from kledger.runtime.compute_pool import ComputePool


class _PartialAppend(NamedTuple):
    """A request whose other batches are appended, and what the walks over the rest have found."""

    slot: ProduceSlot
    walked: dict[int, WalkResult]


class ProduceAppends:
    """The appends of one server's Produce requests."""

    __slots__ = ("_long_calls", "_partial_appends")

    def __init__(self, compute_pool: "ComputePool") -> None:
        self._long_calls = compute_pool
        self._partial_appends: dict[ResponsePort, _PartialAppend] = {}

    def append(
        self,
        slot: ProduceSlot,
        frame: memoryview,
        found: Sequence[PartitionLog | int],
        verified: Container[int],
        *,
        is_owned: bool,
    ) -> Coroutine[Any, Any, None] | None:
        """Append every batch of a request, or what is left of it.

        Args:
            slot: to the request; hears what became of each batch.
            frame: see `FrameHandler.start`.
            found: where each batch goes; an error code: nowhere.
            verified: the numbers of those whose transaction is known to include the partition.
            is_owned: see `FrameHandler.start`.

        Returns:
            None, or what the connection has to run before it starts the request again.
        """
        walked: dict[int, WalkResult] | None = None
        numbers: Iterable[int] = range(len(found))
        if (
            self._partial_appends
            and (partial_append := self._partial_appends.pop(slot.port, None)) is not None
        ):
            slot, walked = partial_append
            numbers = walked
        elif slot.request.acks != 0:
            slot.port.open_slot(slot, is_exclusive=False)
        walks: dict[int, RecordWalk] | None = None
        for number in numbers:
            log = found[number]
            if isinstance(log, int):
                slot.batch_rejected(number, log)
                continue
            batch = owned_records(frame, slot.request.partitions[number], is_owned=is_owned)
            on_appended = slot.single_batch_appended
            if len(found) > 1:
                on_appended = partial(slot.batch_appended, number)
            try:
                result = log.append_nowait(
                    batch,
                    on_appended,
                    is_verified=number in verified,
                    walked=None if walked is None else walked[number],
                )
            except WalkNeeded as needed:
                walks = {**(walks or {}), number: needed.walk}
            else:
                if result is not None:
                    on_appended(result)
        if walks is not None:
            return self._walk(slot, walks)
        if not found:
            slot.complete()
        return None

    async def _walk(self, slot: ProduceSlot, walks: dict[int, RecordWalk]) -> None:
        """Do walks; what they find is there when the request is started again."""
        slot.batches_in_walk = tuple(walks)
        port, compute_pool = slot.port, self._long_calls
        walked = {}
        for number, walk in walks.items():
            try:
                walked[number] = await compute_pool.run(walk.run, compute_pool.yield_gil)
            except PoolClosed:  # the server is about to end
                port.abort()
            if port.is_closed:
                break
        slot.batches_in_walk = ()
        self._partial_appends[port] = _PartialAppend(slot, walked)
        for each in [each for each in self._partial_appends if each.is_closed]:
            del self._partial_appends[each]
