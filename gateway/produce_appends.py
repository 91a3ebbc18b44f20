"""ProduceAppends: appends the batches of a request; those that need a long walk, after that.

Rule: while records of a request are walked, its connection holds it and all behind it, then starts
it again, and what is left of it is appended: so nothing on a connection is overtaken, and all other
decisions about what is left are made anew. One connection has one such request at a time.
Must not know: what a walk looks for, where batches go.
"""

from collections.abc import Container, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kledger.gateway.produce_slot import ProduceSlot
from kledger.gateway.wire.produce_codec import own_records
from kledger.runtime.blocking import PoolClosed
from kledger.topics import PartitionLog, RecordWalk, Walked, WalkNeeded

if TYPE_CHECKING:
    from kledger.gateway.router import ResponsePort
    from kledger.runtime.long_calls import LongCalls


class _Begun(NamedTuple):
    """A request whose other batches are appended, and what the walks over the rest have found."""

    answer: ProduceSlot
    walked: dict[int, Walked]


class ProduceAppends:
    """The appends of one server's Produce requests."""

    __slots__ = ("_begun", "_long_calls")

    def __init__(self, long_calls: "LongCalls") -> None:
        self._long_calls = long_calls
        self._begun: dict[ResponsePort, _Begun] = {}

    def append(
        self,
        answer: ProduceSlot,
        frame: memoryview,
        found: Sequence[PartitionLog | int],
        verified: Container[int],
        *,
        is_owned: bool,
    ) -> Coroutine[Any, Any, None] | None:
        """Append every batch of a request, or what is left of it.

        Args:
            answer: to the request; hears what became of each batch.
            frame: see `HotHandler.start`.
            found: where each batch goes; an error code: nowhere.
            verified: the numbers of those whose transaction is known to include the partition.
            is_owned: see `HotHandler.start`.

        Returns:
            None, or what the connection has to run before it starts the request again.
        """
        walked: dict[int, Walked] | None = None
        numbers: Iterable[int] = range(len(found))
        if self._begun and (begun := self._begun.pop(answer.port, None)) is not None:
            answer, walked = begun
            numbers = walked
        elif answer.request.acks != 0:
            answer.port.open_slot(answer, is_exclusive=False)
        walks: dict[int, RecordWalk] | None = None
        for number in numbers:
            log = found[number]
            if isinstance(log, int):
                answer.refused(number, log)
                continue
            batch = own_records(frame, answer.request.partitions[number], is_owned=is_owned)
            done = answer.appended_alone
            if len(found) > 1:
                done = partial(answer.appended, number)
            try:
                result = log.append_nowait(
                    batch,
                    done,
                    is_verified=number in verified,
                    walked=None if walked is None else walked[number],
                )
            except WalkNeeded as needed:
                walks = {**(walks or {}), number: needed.walk}
            else:
                if result is not None:
                    done(result)
        if walks is not None:
            return self._walk(answer, walks)
        if not found:
            answer.settle()
        return None

    async def _walk(self, answer: ProduceSlot, walks: dict[int, RecordWalk]) -> None:
        """Do walks; what they find is there when the request is started again."""
        answer.walked_numbers = tuple(walks)
        port, long_calls = answer.port, self._long_calls
        walked = {}
        for number, walk in walks.items():
            try:
                walked[number] = await long_calls.run(walk.run, long_calls.give_way)
            except PoolClosed:  # the server is about to end
                port.abort()
            if port.is_closed:
                break
        answer.walked_numbers = ()
        self._begun[port] = _Begun(answer, walked)
        for each in [each for each in self._begun if each.is_closed]:
            del self._begun[each]
