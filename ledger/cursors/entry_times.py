"""Entry times: when entries were added, for a search by time in a log of opaque entries.

Rule: only steps are kept, and only the newest ones: what is not known any more, as after a restart,
has the latest time of its ledger. A search then finds too few entries to be old, never too many.
Must not know: what entries hold; whoever does gives a function of its own.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable

from kledger.ledger.position import Position

STEPS_MAX = 100_000
"""Beyond so many steps the oldest ledgers are forgotten."""
UNKNOWN_MS = (1 << 63) - 1


class EntryTimes:
    """Times of the entries of one managed ledger."""

    __slots__ = ("_latest_of", "_step_count", "_steps")

    def __init__(self, latest_of: Callable[[int], int | None]) -> None:
        """Args: latest_of: tells the latest time of a closed ledger, None if it is not known."""
        self._latest_of = latest_of
        self._steps: dict[int, tuple[array[int], array[int]]] = {}
        self._step_count = 0

    def record(self, position: Position, time_ms: int) -> None:
        """An entry behind all noted before was added."""
        ledger_id, entry_id = position
        steps = self._steps.get(ledger_id)
        if steps is None:
            steps = self._steps[ledger_id] = (array("q"), array("q"))
        ids, times = steps
        if (not ids or entry_id > ids[-1]) and (not times or times[-1] != time_ms):
            ids.append(entry_id)
            times.append(time_ms)
            self._step_count += 1
        while self._step_count > STEPS_MAX and len(self._steps) > 1:
            self.forget(next(iter(self._steps)))

    def forget(self, ledger_id: int) -> None:
        """A ledger is gone."""
        if steps := self._steps.pop(ledger_id, None):
            self._step_count -= len(steps[0])

    def time_of(self, position: Position) -> int:
        """Return the time of an entry, or the latest that it can have."""
        ledger_id, entry_id = position
        if steps := self._steps.get(ledger_id):
            at = bisect_right(steps[0], entry_id)
            if at:
                return steps[1][at - 1]
        latest = self._latest_of(ledger_id)
        return UNKNOWN_MS if latest is None else latest
