"""Write tail state: where the next entry of a managed ledger goes, and when its ledger is full.

Rule: it is ahead of what is confirmed, and is rewound to that when a write fails. An append only
compares three numbers (`check_*`); when it reaches one of them, due() decides.
Must not know: storage, clocks; times are given in monotonic milliseconds.

A mark is a row with the number of entries and bytes of the open ledger. Recovery counts from the
last mark, so it reads no more data than lies between two marks.
"""

from enum import Enum

from kledger.ledger.config import KIB, NO_LIMIT, ManagedLedgerConfig
from kledger.ledger.metadata.records import NO_TIMESTAMP, LedgerRecord
from kledger.ledger.position import Position

MARK_ENTRIES = 256
MARK_BYTES = 256 * KIB
JITTER_PERCENT = 5
_NEVER = 1 << 62
_KNUTH = 2_654_435_761


class TailDue(Enum):
    """What the handle must do after an append that reached a check."""

    NOTHING = "nothing"
    MARK = "mark"
    """Write a mark with the entry that was just appended."""
    ROLL = "roll"
    """The ledger is full: close it, the next entry goes into a new one."""


class WriteTailState:
    """The submitted end of the open ledger.

    Attributes:
        next_entry: id of the next entry, also the number of entries submitted.
        size: their bytes.
        before: the last entry before this ledger; after a failed write, the last confirmed one.
        active_ms: when an append to it was last confirmed; when it was opened while it is empty.
        check_entry, check_size, check_ms: an append must call due() if its entry id, the size after
            it, or its time reaches one of these.
    """

    __slots__ = (
        "_config",
        "_marked_entries",
        "_marked_size",
        "active_ms",
        "before",
        "check_entry",
        "check_ms",
        "check_size",
        "ledger_id",
        "max_timestamp_ms",
        "next_entry",
        "opened_ms",
        "size",
    )

    def __init__(self, config: ManagedLedgerConfig) -> None:
        self._config = config
        self.open_ledger(-1, before=Position(-1, -1), now_ms=0)

    def open_ledger(self, ledger_id: int, *, before: Position, now_ms: int) -> None:
        """Continue in a new, empty ledger."""
        self.ledger_id = ledger_id
        self.before = before
        self.opened_ms = self.active_ms = now_ms
        self.max_timestamp_ms = NO_TIMESTAMP
        self._go_to(0, 0)

    def rewind(
        self, ledger_id: int, *, entries: int, size: int, lac: Position, opened_ms: int
    ) -> None:
        """Go back to what is confirmed; the largest timestamp stays, as an upper bound."""
        self.ledger_id = ledger_id
        self.before = lac
        self.opened_ms = opened_ms
        self._go_to(entries, size)

    def configure(self, config: ManagedLedgerConfig) -> None:
        """Apply new limits from the next append on."""
        self._config = config
        self.check_entry = 0

    @property
    def last_position(self) -> Position:
        """The newest entry submitted."""
        if self.next_entry:
            return Position(self.ledger_id, self.next_entry - 1)
        return self.before

    @property
    def is_marked(self) -> bool:
        """Whether the last mark is exact."""
        return self._marked_entries == self.next_entry

    @property
    def roll_deadline_ms(self) -> int | None:
        """When a timer should roll the ledger over, as of now; None is never.

        That is at its maximum age, spread by some percent so that ledgers do not all roll at once,
        or when it was inactive for too long, whatever its minimum age.
        """
        old_ms, idle_ms = self._config.max_rollover_ms, self._config.inactive_rollover_ms
        deadlines = []
        if old_ms != NO_LIMIT:
            spread = (self.ledger_id * _KNUTH & 0xFFFFFFFF) / (1 << 32)
            deadlines.append(self.opened_ms + old_ms + int(old_ms * JITTER_PERCENT / 100 * spread))
        if idle_ms != NO_LIMIT:
            deadlines.append(self.active_ms + idle_ms)
        return min(deadlines, default=None)

    def due(self, now_ms: int) -> TailDue:
        """Decide what the latest append makes due, and set the next checks."""
        age_ms = now_ms - self.opened_ms
        if self._is_full(age_ms) and self._may_roll(age_ms):
            return TailDue.ROLL
        needs_mark = (
            self.next_entry >= self._marked_entries + MARK_ENTRIES
            or self.size >= self._marked_size + MARK_BYTES
        )
        if needs_mark:
            self.note_marked()
        self._set_checks(may_roll=self._may_roll(age_ms))
        return TailDue.MARK if needs_mark else TailDue.NOTHING

    def note_marked(self) -> None:
        """Note that a mark with the present numbers was submitted."""
        self._marked_entries = self.next_entry
        self._marked_size = self.size

    def record(self, *, closed_ms: int = 0) -> LedgerRecord:
        """Return the present numbers as a record: a mark, or with `closed_ms` a closed ledger."""
        return LedgerRecord(
            ledger_id=self.ledger_id,
            entries=self.next_entry,
            size=self.size,
            closed_ms=closed_ms,
            max_timestamp_ms=self.max_timestamp_ms,
        )

    def _is_full(self, age_ms: int) -> bool:
        config = self._config
        return (
            _reaches(self.next_entry, config.max_entries_per_ledger)
            or _reaches(self.size, config.max_bytes_per_ledger)
            or _reaches(age_ms, config.max_rollover_ms)
        )

    def _may_roll(self, age_ms: int) -> bool:
        return self._config.min_rollover_ms <= 0 or age_ms > self._config.min_rollover_ms

    def _go_to(self, entries: int, size: int) -> None:
        self.next_entry = entries
        self.size = size
        # The last stored mark is not known here; assuming none writes at most one row too many.
        self._marked_entries = self._marked_size = 0
        # The next append calls due() in any case, as the age is not known here.
        self.check_entry = 0
        self.check_size = self.check_ms = _NEVER

    def _set_checks(self, *, may_roll: bool) -> None:
        config = self._config
        self.check_entry = self._marked_entries + MARK_ENTRIES - 1
        self.check_size = self._marked_size + MARK_BYTES
        if not may_roll:
            self.check_ms = self.opened_ms + config.min_rollover_ms + 1
            return
        self.check_ms = _NEVER
        if config.max_entries_per_ledger != NO_LIMIT:
            self.check_entry = min(self.check_entry, config.max_entries_per_ledger - 1)
        if config.max_bytes_per_ledger != NO_LIMIT:
            self.check_size = min(self.check_size, config.max_bytes_per_ledger)
        if config.max_rollover_ms != NO_LIMIT:
            self.check_ms = self.opened_ms + config.max_rollover_ms


def _reaches(value: int, limit: int) -> bool:
    return limit != NO_LIMIT and value >= limit
