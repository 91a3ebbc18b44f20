"""Stopped store: reads as much as possible of a store that is not running, damaged or not.

Rule: nothing is changed. Records say which ledgers belong to a managed ledger, as at a start; the
counts of open ledgers, and of those with a damaged record, are taken from their entries. All calls
block.
Must not know: what entries and the user's rows mean.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from kledger.ledger.compacted_entry import decode_compacted
from kledger.ledger.engine import data_folder
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import StorageError
from kledger.ledger.entry import Entry
from kledger.ledger.errors import Corrupt, LedgerError, from_engine
from kledger.ledger.inspection.folder_inspection import FolderInspection
from kledger.ledger.inspection.ledger_check import CheckEntry, LedgerCheck, Problem
from kledger.ledger.inspection.tier_listing import TierListing, list_tier
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import (
    CompactedLedger,
    LedgerRecord,
    ManagedLedgerRecord,
    decode_ledger,
    decode_managed_ledger,
)
from kledger.ledger.position import EARLIEST, Position

ORPHAN_PREFIX = "ledger:"
"""With its id, the name of a ledger that belongs to no managed ledger."""


class StoredState(StrEnum):
    """The state of a managed ledger in a stopped store.

    OPEN: its last ledger was not closed; the next opening closes it.
    CLOSED: all its ledgers are closed.
    TERMINATED: it was terminated.
    NAMELESS: entries of a ledger that belongs to no managed ledger, or whose records are lost.
    UNREADABLE: its record is damaged, so that its ledgers are not known.
    """

    OPEN = "open"
    CLOSED = "closed"
    TERMINATED = "terminated"
    NAMELESS = "nameless"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class StoredManagedLedger:
    """A managed ledger as it is stored.

    Attributes:
        name: its name; `ledger:ID` for a nameless one.
        ledgers: ascending by id, with their true entries and sizes.
        head: its record, None if there is none.
    """

    name: str
    state: StoredState
    ledgers: tuple[LedgerRecord, ...]
    head: ManagedLedgerRecord | None

    @property
    def entries(self) -> int:
        """Entries of all ledgers."""
        return sum(each.entries for each in self.ledgers)

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(each.size for each in self.ledgers)

    @property
    def compacted(self) -> CompactedLedger | None:
        """What a compaction made of the beginning."""
        return self.head.compacted if self.head is not None else None

    @property
    def first_position(self) -> Position | None:
        """Position of the first entry, None if there is none."""
        ids = (each.ledger_id for each in self.ledgers if each.entries)
        return next((Position(ledger_id, 0) for ledger_id in ids), None)

    @property
    def last_position(self) -> Position | None:
        """Position of the last entry, None if there is none."""
        ends = (each for each in reversed(self.ledgers) if each.entries)
        return next((Position(each.ledger_id, each.entries - 1) for each in ends), None)

    @property
    def properties(self) -> dict[str, str]:
        """Texts of the user."""
        return self.head.properties if self.head is not None else {}

    @property
    def terminated_at(self) -> Position | None:
        """Its final last position, None while it is not terminated."""
        return self.head.terminated_at if self.head is not None else None


Read: TypeAlias = Entry | Problem
ReadTier: TypeAlias = Callable[[LedgerRecord, int], Iterator[Buffer]]
"""Yields the entries of a ledger from one on, of its copy in a tier. Raises LedgerError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The extent of a verification, and the problems found."""

    managed_ledger_count: int
    entry_count: int
    entry_bytes: int
    problems: list[Problem]


class StoppedStore:
    """An open folder; a context manager.

    Attributes:
        torn_tail: the end of the log that the next start will cut off, None if nothing; not a
            damage.
        read_tier: reads what only a tier has; None: `entries` has a Problem in place of it.
    """

    def __init__(self, path: str | Path) -> None:
        """Lock the folder and open it for reading.

        Raises:
            StoreInUse: the store is not stopped.
            StoreUnusable: the folder has no store, or cannot be read.
        """
        folder = Path(path)
        try:
            self._engine = FolderInspection(folder, is_for_reading=True)
        except StorageError as error:
            raise from_engine(error) from error
        self.torn_tail = self._engine.torn_tail
        self.read_tier: ReadTier | None = None
        self._index = str(folder / data_folder.INDEX)

    @property
    def damages(self) -> list[Problem]:
        """The damage of the folder that was found when it was opened."""
        return [Problem(*each, managed_ledger="") for each in self._engine.damages]

    @property
    def is_index_lost(self) -> bool:
        """Whether everything is read from the log alone.

        Rows in removed log files are lost then: records, and rows of the user, so also names and
        offsets.
        """
        return not self._engine.has_index

    # Managed ledgers

    def managed_ledgers(self) -> Iterator[StoredManagedLedger]:
        """Yield all managed ledgers by name, then ledgers that belong to none."""
        for key, row in self._engine.scan(*keys.managed_ledger_range()):
            yield self._load(keys.managed_ledger_name(key), row)
        for ledger_id in self._orphan_ids():
            yield self._load_orphan(ledger_id)

    def names(self) -> list[str]:
        """Return the names of all managed ledgers."""
        rows = self._engine.scan(*keys.managed_ledger_range())
        return [keys.managed_ledger_name(key) for key, _ in rows]

    def find(self, name: str) -> StoredManagedLedger | None:
        """Return a managed ledger by its name, or a nameless ledger by `ledger:ID`."""
        row = self._engine.get(keys.managed_ledger_key(name))
        if row is not None:
            return self._load(name, row)
        digits = name.removeprefix(ORPHAN_PREFIX)
        if digits == name or not digits.isdecimal() or int(digits) not in self._orphan_ids():
            return None
        return self._load_orphan(int(digits))

    def log_files(self, ledger_id: int) -> list[str]:
        """Return the paths of the log files with entries of a ledger."""
        numbers = {
            each.file for locations in self._engine.locations(ledger_id) for each in locations
        }
        return [self._engine.path(number) for number in sorted(numbers)]

    # Entries

    def entries(self, stored: StoredManagedLedger, start: Position = EARLIEST) -> Iterator[Read]:
        """Yield the entries from a position on, with a Problem for each unreadable one.

        In place of ledgers that were removed after a compaction, what that has kept comes first.
        """
        yield from self._compacted_entries(stored, start)
        for record in stored.ledgers:
            if record.ledger_id < start.ledger_id:
                continue
            first = start.entry_id if record.ledger_id == start.ledger_id else 0
            yield from self._entries_of(stored.name, record, max(first, 0))

    def last_entry(self, stored: StoredManagedLedger) -> Entry | None:
        """Return the last entry, None if there is none or it cannot be read."""
        last = stored.last_position
        found = next(self.entries(stored, last), None) if last is not None else None
        return found if isinstance(found, Entry) else None

    def verify(self, stored: StoredManagedLedger | None, check_entry: CheckEntry) -> Verification:
        """Read every entry of one managed ledger, or of all, and compare with the records."""
        check = LedgerCheck(self._engine, self._index, check_entry)
        if stored is None:
            check.check_all()
        elif stored.state is StoredState.NAMELESS:
            check.check_orphan(stored.ledgers[0].ledger_id)
        else:
            check.check_one(stored.name)
        problems = check.problems()
        if stored is not None:
            own = {stored.name, ""}
            problems = [each for each in problems if each.managed_ledger in own]
        return Verification(
            managed_ledger_count=check.managed_ledger_count,
            entry_count=check.entry_count,
            entry_bytes=check.entry_bytes,
            problems=problems,
        )

    def tier_listing(self) -> TierListing:
        """Return what the tiers should have."""
        return list_tier(self._engine)

    # Rows of the user

    def get_row(self, key: bytes) -> bytes | None:
        """Return a row as `LedgerStore.get_row` does."""
        return self._engine.get(keys.user_key(key))

    def scan_rows(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return rows as `LedgerStore.scan_rows` does."""
        rows = self._engine.scan(*keys.user_range(prefix))
        return [(keys.user_key_in(key), value) for key, value in rows]

    # Ending

    def close(self) -> None:
        """Release the folder. May be repeated."""
        self._engine.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the folder."""
        self.close()

    # Inside

    def _load(self, name: str, row: bytes) -> StoredManagedLedger:
        try:
            head = decode_managed_ledger(row)
        except Corrupt:
            return StoredManagedLedger(
                name=name, state=StoredState.UNREADABLE, ledgers=(), head=None
            )
        rows = self._engine.scan(*keys.ledger_range(head.managed_ledger_id))
        ledgers = [self._load_ledger(keys.ledger_id_in(key), value) for key, value in rows]
        state = StoredState.CLOSED if all(each.closed_ms for each in ledgers) else StoredState.OPEN
        if head.terminated_at is not None:
            state = StoredState.TERMINATED
        return StoredManagedLedger(name=name, state=state, ledgers=tuple(ledgers), head=head)

    def _load_orphan(self, ledger_id: int) -> StoredManagedLedger:
        ledgers = (self._counted(LedgerRecord(ledger_id=ledger_id)),)
        name = f"{ORPHAN_PREFIX}{ledger_id}"
        return StoredManagedLedger(
            name=name, state=StoredState.NAMELESS, ledgers=ledgers, head=None
        )

    def _load_ledger(self, ledger_id: int, row: bytes) -> LedgerRecord:
        try:
            record = decode_ledger(ledger_id, row)
        except Corrupt:
            record = LedgerRecord(ledger_id=ledger_id)
        return record if record.closed_ms else self._counted(record)

    def _counted(self, mark: LedgerRecord) -> LedgerRecord:
        """Return the counts of a ledger that is not closed: its mark and the entries after it."""
        entries, size = mark.entries, mark.size
        for locations in self._engine.locations(mark.ledger_id, mark.entries):
            entries = locations[-1].entry_id + 1
            size += sum(location.data_length for location in locations)
        return replace(mark, entries=entries, size=size)

    def _orphan_ids(self) -> list[int]:
        named = self._named_ids()
        return [each for each in self._engine.ledger_ids() if each not in named]

    def _named_ids(self) -> set[int]:
        """Return the ids of the ledgers that belong to a managed ledger."""
        named: set[int] = set()
        for _, row in self._engine.scan(*keys.managed_ledger_range()):
            with suppress(Corrupt):
                head = decode_managed_ledger(row)
                rows = self._engine.scan(*keys.ledger_range(head.managed_ledger_id))
                named.update(keys.ledger_id_in(key) for key, _ in rows)
                named.update(head.ids_beside_list)
        return named

    def _entries_of(self, name: str, record: LedgerRecord, first: int) -> Iterator[Read]:
        """Yield the entries of a ledger up to its end, and a Problem for each gap."""
        ledger_id, expected = record.ledger_id, first
        if record.is_in_tier_only:
            yield from self._tiered_entries(name, record, first)
            return
        for location, _, data in self._engine.entries(ledger_id, first):
            if location.entry_id >= record.entries:
                break  # written, but not confirmed before the ledger was closed
            if location.entry_id > expected:
                yield self._missing(name, ledger_id, expected, location.entry_id)
            expected = location.entry_id + 1
            if isinstance(data, bytes):
                yield Entry(Position(ledger_id, location.entry_id), data)
            else:
                yield Problem(*data, name)
        if expected < record.entries:
            yield self._missing(name, ledger_id, expected, record.entries)

    def _tiered_entries(self, name: str, record: LedgerRecord, first: int) -> Iterator[Read]:
        """Yield the entries of a ledger that only a tier has, or why they cannot be read."""
        assert record.offload is not None
        reason = f"are in tier {record.offload.driver}"
        entry_id = first
        if self.read_tier is not None:
            try:
                for data in self.read_tier(record, first):
                    yield Entry(Position(record.ledger_id, entry_id), data)
                    entry_id += 1
            except LedgerError as error:
                reason = f"{reason} and cannot be read: {error}"
            else:
                return
        reason = f"entries {entry_id} to {record.entries - 1} {reason}"
        yield Problem(self._index, -1, reason, record.ledger_id, entry_id, name)

    def _compacted_entries(self, stored: StoredManagedLedger, start: Position) -> Iterator[Read]:
        """Yield the entries of the compacted ledger that are before every other entry."""
        compacted = stored.compacted
        if compacted is None or start > compacted.horizon:
            return
        first = stored.first_position
        for location, _, data in self._engine.entries(compacted.ledger_id, 0):
            if not isinstance(data, bytes):
                yield Problem(*data, stored.name)
                continue
            entry = decode_compacted(location.entry_id, data)
            if first is not None and entry.position >= first:
                return
            if entry.position >= start:
                yield Entry(entry.position, entry.data)

    def _missing(self, name: str, ledger_id: int, first: int, end: int) -> Problem:
        reason = f"entries {first} to {end - 1} are not in the index"
        return Problem(self._index, -1, reason, ledger_id, first, name)
