"""Search plan: which entry to read next in a search for the newest match.

Rule: matching entries precede all others, so each probe halves the range; unreadable entries are
skipped, each at most once, and are never the result.
Must not know: entries, storage, clocks. Source: Pulsar's OpFindNewest and PersistentMessageFinder.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from kledger.ledger.metadata.ledger_list_state import LedgerInfo
from kledger.ledger.position import Position

NONE = -1


class EntryNumbers:
    """The entries that exist at one moment, numbered from 0."""

    def __init__(self, infos: Sequence[LedgerInfo]) -> None:
        self._infos = [info for info in infos if info.entries]
        self._ends = list(accumulate(info.entries for info in self._infos))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def position(self, number: int) -> Position:
        """Return the position of an entry by its number."""
        at = bisect_right(self._ends, number)
        before = self._ends[at - 1] if at else 0
        return Position(self._infos[at].ledger_id, number - before)

    def first_from(self, position: Position) -> int:
        """Return the number of the first entry at or after a position; the count if none is."""
        before = 0
        for info, end in zip(self._infos, self._ends, strict=True):
            if info.ledger_id == position.ledger_id:
                return before + min(max(position.entry_id, 0), info.entries)
            if info.ledger_id > position.ledger_id:
                break
            before = end
        return before

    def around_time(self, timestamp_ms: int, clock_skew_ms: int) -> tuple[int, int]:
        """Narrow a search for the newest entry before a time by the times ledgers were closed.

        An entry is at most `clock_skew_ms` newer than the closing of its own ledger, and at most
        `clock_skew_ms` older than the closing of the previous ledger.

        Returns:
            The newest entry known to be older, or NONE; and the number after the last entry that
            may be older.
        """
        known, end = NONE, len(self)
        for info, ledger_end in zip(self._infos, self._ends, strict=True):
            if info.closed_ms is None:
                break
            if info.closed_ms + clock_skew_ms < timestamp_ms:
                known = ledger_end - 1
            elif info.closed_ms - clock_skew_ms >= timestamp_ms:
                end = ledger_end
                break
        return known, end


class NewestSearch:
    """A running search.

    `probe` is the entry to read next; None ends the search, and `found` is its result. The first
    entry is probed first, the last one second, as these two usually decide.
    """

    __slots__ = ("_end", "_middle", "_newest", "probe")

    def __init__(self, end: int, known: int = NONE) -> None:
        """Args: end: the number after the last entry; known: an entry known to match."""
        self._newest = known
        self._end = end
        self._middle = 0
        self.probe: int | None = None
        if known == NONE:
            self.probe = 0 if end else None
        else:
            self._halve(end - 1)

    @property
    def found(self) -> int | None:
        """The newest entry known to match."""
        return None if self._newest == NONE else self._newest

    def answer(self, *, is_match: bool) -> None:
        """Continue with the outcome of the probe."""
        probe = self.probe
        assert probe is not None, "the search has ended"
        if self._newest == NONE:
            if not is_match:
                self.probe = None
                return
            self._newest = probe
            self._halve(self._end - 1)
            return
        if is_match:
            self._newest = probe
        else:
            self._end = self._middle
        self._halve((self._newest + self._end) // 2)

    def skip(self, upto: int) -> None:
        """Continue from `upto`, as the probe and all entries before `upto` cannot be read."""
        assert self.probe is not None, "the search has ended"
        assert upto > self.probe, f"skipped from {self.probe} to {upto}"
        if upto < self._end:
            self.probe = upto
        elif self._newest == NONE:
            self.probe = None
        else:
            self._end = self._middle
            self._halve((self._newest + self._end) // 2)

    def _halve(self, middle: int) -> None:
        self._middle = middle
        self.probe = middle if self._newest < middle < self._end else None
