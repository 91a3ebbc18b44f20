"""Pending appends: batches that the ledger has and has not confirmed, and who waits for them.

Rule: they are confirmed, or taken back, in the order in which they were appended, and whoever waits
for one hears afterwards. A fault on the way leaves the partition's state in doubt: the partition
closes, and everybody who waits hears that nobody knows.
Must not know: how batches get in, requests.
"""

from collections import deque
from itertools import chain

from kledger.ledger import LedgerError, Position
from kledger.runtime.containment import Containment, FaultUnit, NamedUnit
from kledger.topics.errors import TopicsError
from kledger.topics.partition.partition_checkpointer import PartitionCheckpointer
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.producer_state import BatchRange
from kledger.topics.partition.results import AppendDone, AppendResult, from_ledger_error, rejected
from kledger.topics.partition.tail_state import TailState

_new_tuple = tuple.__new__  # a third of the cost of a class's own constructor


class PendingAppends:
    """Those of one partition.

    Attributes:
        waiting: per append: done, base offset, next offset, answered time, size, max timestamp;
            the partition log adds to it.
    """

    __slots__ = (
        "_checkpointer",
        "_containment",
        "_duplicates",
        "_failing_count",
        "_partition",
        "_state",
        "_tail",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        partition: FaultUnit,
        state: PartitionState,
        tail: TailState,
        checkpointer: PartitionCheckpointer,
        containment: Containment,
    ) -> None:
        self.waiting: deque[tuple[AppendDone, int, int, int, int, int]] = deque()
        self._partition = partition
        self._state = state
        self._tail = tail
        self._checkpointer = checkpointer
        self._containment = containment
        self._failing_count = 0
        self._duplicates: dict[int, list[AppendDone]] = {}

    def answer_duplicate(self, found: BatchRange, done: AppendDone) -> AppendResult | None:
        """Answer a batch that was sent again; None: `done` hears with those who wait for it."""
        if self._state.is_pending(found.base_offset):
            self._duplicates.setdefault(found.base_offset, []).append(done)
            return None
        found_position = self._tail.position_of(found.base_offset)
        position = None if found_position is None else Position(*found_position)
        start = self._state.log_start_offset
        return AppendResult(None, found.base_offset, found.log_append_time_ms, start, position)

    def appended(self, position: Position, error: LedgerError | None) -> None:
        """Take in what became of the oldest append; the ledger calls this. The hot path."""
        if not self.waiting:
            return  # abandoned: who waited has been told
        try:
            done, base_offset, next_offset, time_ms, size, max_timestamp = self.waiting[0]
            if error is None:
                assert self._failing_count == 0, "an append was confirmed behind a failed one"
                aborted = self._state.confirm()
                self._checkpointer.confirmed(
                    position, base_offset, next_offset, size, max_timestamp
                )
                if aborted is not None:
                    self._checkpointer.aborted(aborted)
                start = self._state.log_start_offset
                result = _new_tuple(AppendResult, (None, base_offset, time_ms, start, position))
            else:
                self._undo(base_offset)
                result = rejected(from_ledger_error(error), self._state.log_start_offset)
            self.waiting.popleft()
        except Exception as fault:  # noqa: BLE001 - the state of the partition is in doubt
            self._containment.failed(self._partition, fault)
            return
        done(result)
        if self._duplicates:
            for each in self._duplicates.pop(base_offset, ()):
                each(result)

    def abandon(self, error: TopicsError) -> None:
        """Tell everybody who waits an error; what the ledger says later is passed over."""
        waiting, duplicates = tuple(self.waiting), self._duplicates
        self.waiting.clear()
        self._duplicates = {}
        result = rejected(error, self._state.log_start_offset)
        for done in (*(each[0] for each in waiting), *chain.from_iterable(duplicates.values())):
            self._containment.run(self._partition, done, result)

    def unlink(self) -> None:
        """The partition is closed: a fault has nothing to close any more."""
        self._partition = NamedUnit(self._partition.unit_kind, self._partition.unit_name)

    def _undo(self, base_offset: int) -> None:
        """Take back all pending appends when the first of them fails; the others will follow."""
        if self._failing_count == 0:
            self._failing_count = self._state.fail_from(base_offset)
            self._tail.truncate(base_offset)
        self._failing_count -= 1
