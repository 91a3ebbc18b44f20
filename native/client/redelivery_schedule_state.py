"""RedeliverySchedule: when each record is redelivered unless it is acknowledged before.

Rule: a record has at most one time; a new one replaces the old. Times are rounded up to ticks, so
that records that are due at about the same time are redelivered in one request.
Must not know: clocks, links.
"""

import heapq

from kledger.ledger import Position
from kledger.subscriptions.model import ALL, RecordMask

TICK_MAX_MS = 100
TICKS_PER_DELAY = 10


class RedeliverySchedule:
    """The schedule of one link."""

    __slots__ = ("_due", "_records", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, dict[Position, int]] = {}
        self._records: dict[Position, dict[int, int]] = {}  # mask of one record (or ALL) -> time

    @property
    def is_empty(self) -> bool:
        """Whether no record is scheduled."""
        return not self._records

    @property
    def next_ms(self) -> int | None:
        """The earliest time that may be due; None: no record is scheduled."""
        return self._times[0] if self._times else None

    def schedule(self, position: Position, records: int, *, now_ms: int, delay_ms: int) -> None:
        """Schedule one record of an entry, or the whole entry (ALL), after a delay."""
        self.forget(position, records)
        tick = max(1, min(TICK_MAX_MS, delay_ms // TICKS_PER_DELAY))
        due_ms = -(-(now_ms + delay_ms) // tick) * tick
        if due_ms not in self._due:
            self._due[due_ms] = {}
            heapq.heappush(self._times, due_ms)
        masks = self._due[due_ms]
        masks[position] = masks.get(position, 0) | records
        self._records.setdefault(position, {})[records] = due_ms

    def forget(self, position: Position, records: int) -> None:
        """Remove these records from the schedule."""
        times = self._records.get(position)
        if times is None:
            return
        removed = [each for each in times if records == ALL or each & records == each]
        for each in removed:
            self._remove(position, each, times.pop(each))
        if not times:
            del self._records[position]

    def forget_upto(self, position: Position, records: int) -> None:
        """Remove all records of earlier entries, and these of this one."""
        for each in [each for each in self._records if each < position]:
            self.forget(each, ALL)
        self.forget(position, records)

    def clear(self) -> None:
        """Remove all records."""
        self._times.clear()
        self._due.clear()
        self._records.clear()

    def pop_due(self, now_ms: int) -> list[RecordMask]:
        """Remove and return the records that are due, by position."""
        found: dict[Position, int] = {}
        while self._times and self._times[0] <= now_ms:
            for position, records in self._due.pop(heapq.heappop(self._times)).items():
                found[position] = found.get(position, 0) | records
        for position, records in found.items():
            self.forget(position, records)
        return [RecordMask(position, records) for position, records in sorted(found.items())]

    def _remove(self, position: Position, records: int, due_ms: int) -> None:
        masks = self._due.get(due_ms)
        if masks is None or position not in masks:
            return  # `pop_due` has removed it.
        left = 0 if records == ALL else masks[position] & ~records
        if left:
            masks[position] = left
        else:
            del masks[position]
