"""Ledger check: compares the stored entries of managed ledgers with their records.

Rule: every entry is read; a function of the caller checks its content. A damage is reported once.
Must not know: Kafka, how damage of the folder is found.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kledger.ledger.cursors.cursor_records import decode_cursor
from kledger.ledger.errors import Corrupt
from kledger.ledger.inspection.folder_inspection import FolderDamage, FolderInspection
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import (
    LedgerRecord,
    decode_copy_deletion,
    decode_counter,
    decode_ledger,
    decode_managed_ledger,
)
from kledger.ledger.position import Position

CheckEntry: TypeAlias = Callable[[str, Position, bytes | None], str | None]
"""Called with a managed ledger's name, a position and the entry; returns a reason if it is wrong.
Positions of one managed ledger are in order. None stands for an unreadable entry, which is reported
anyway, and for the entries of a ledger that only a tier has."""


class Problem(NamedTuple):
    """One damage; unknown numbers are -1, and an unknown name is empty."""

    file: str
    position: int
    reason: str
    ledger_id: int
    entry_id: int
    managed_ledger: str


class LedgerCheck:
    """One pass over the index.

    Attributes:
        managed_ledger_count, entry_count, entry_bytes: what was checked, damaged ones included.
    """

    def __init__(self, engine: FolderInspection, index: str, check_entry: CheckEntry) -> None:
        self.managed_ledger_count = 0
        self.entry_count = 0
        self.entry_bytes = 0
        self._engine = engine
        self._index = index
        self._check_entry = check_entry
        self._names: dict[int, str] = {}
        self._problems: list[Problem] = []

    def check_all(self) -> None:
        """Check every managed ledger, entries without one, and the id counter."""
        newest_id = 0
        for key, row in self._engine.scan(*keys.managed_ledger_range()):
            newest_id = max(newest_id, self._check_stored(keys.managed_ledger_name(key), row))
        for ledger_id in self._engine.ledger_ids():
            newest_id = max(newest_id, ledger_id)
            if ledger_id not in self._names:
                self._wrong("has entries, but belongs to no managed ledger", ledger_id)
        self._check_copy_deletions()
        self._check_counter(newest_id)

    def check_one(self, name: str) -> None:
        """Check one managed ledger, which must exist."""
        row = self._engine.get(keys.managed_ledger_key(name))
        assert row is not None, f"managed ledger {name} does not exist"
        self._check_stored(name, row)

    def check_orphan(self, ledger_id: int) -> None:
        """Check the entries of a ledger that belongs to no managed ledger."""
        self._check_entries(LedgerRecord(ledger_id=ledger_id))

    def problems(self) -> list[Problem]:
        """Return all problems, each damaged frame once, with the names of their managed ledgers."""
        reported = {(each.file, each.position) for each in self._problems}
        damages = [self._named(each) for each in self._engine.damages]
        own = [each for each in damages if each.position < 0 or each[:2] not in reported]
        return [*own, *self._problems]

    def _check_stored(self, name: str, row: bytes) -> int:
        """Check one managed ledger; return the newest id in it."""
        self.managed_ledger_count += 1
        try:
            head = decode_managed_ledger(row)
        except Corrupt as error:
            self._problems.append(Problem(self._index, -1, str(error), -1, -1, name))
            return 0
        newest_id = head.managed_ledger_id
        for key, value in self._engine.scan(*keys.ledger_range(head.managed_ledger_id)):
            ledger_id = keys.ledger_id_in(key)
            newest_id = max(newest_id, ledger_id)
            self._names[ledger_id] = name
            try:
                self._check_entries(decode_ledger(ledger_id, value))
            except Corrupt as error:
                self._wrong(str(error), ledger_id)
        for ledger_id in head.ids_beside_list:
            newest_id = max(newest_id, ledger_id)
            self._names[ledger_id] = name
        if (compacted := head.compacted) is not None:
            record = LedgerRecord(
                ledger_id=compacted.ledger_id,
                entries=compacted.entries,
                size=compacted.size,
                closed_ms=max(compacted.compacted_ms, 1),  # 0 means open
            )
            self._check_entries(record, is_compacted=True)
        self._check_cursors(name, head.managed_ledger_id)
        return newest_id

    def _check_cursors(self, name: str, managed_ledger_id: int) -> None:
        for start, end in keys.cursor_ranges(managed_ledger_id):
            for key, row in self._engine.scan(start, end):
                try:
                    decode_cursor(row)
                except Corrupt as error:
                    reason = f"cursor {keys.cursor_name_in(key)}: {error}"
                    self._problems.append(Problem(self._index, -1, reason, -1, -1, name))

    def _check_copy_deletions(self) -> None:
        for key, row in self._engine.scan(*keys.copy_deletion_range()):
            try:
                decode_copy_deletion(keys.attempt_in(key), row)
            except Corrupt as error:
                self._wrong(str(error))

    def _check_entries(self, record: LedgerRecord, *, is_compacted: bool = False) -> None:
        """Read every entry of a ledger; a closed one must have the counts of its record.

        `check_entry` does not get entries of a compacted ledger, as offsets may be missing there.
        """
        ledger_id = record.ledger_id
        name = self._names.get(ledger_id, "")
        if record.is_in_tier_only:
            self._check_entry(name, Position(ledger_id, 0), None)
            if next(self._engine.locations(ledger_id), None) is not None:
                self._wrong("has entries, although its primary copy was deleted", ledger_id)
            return
        next_entry, size = 0, 0
        for location, path, data in self._engine.entries(ledger_id):
            self._expect_up_to(location.entry_id, next_entry, ledger_id)
            next_entry = location.entry_id + 1
            size += location.data_length
            self.entry_count += 1
            self.entry_bytes += location.data_length
            if not isinstance(data, bytes):
                self._problems.append(self._named(data))
                self._check_entry(name, Position(ledger_id, location.entry_id), None)
            elif is_compacted:
                continue
            elif wrong := self._check_entry(name, Position(ledger_id, location.entry_id), data):
                self._problems.append(
                    Problem(path, location.position, wrong, ledger_id, location.entry_id, name)
                )
        if next_entry < record.entries:
            self._expect_up_to(record.entries, next_entry, ledger_id)
        elif record.closed_ms and (next_entry, size) != (record.entries, record.size):
            self._wrong(
                f"{next_entry} entries of {size} bytes, its record has {record.entries} "
                f"of {record.size}", ledger_id,
            )  # fmt: skip

    def _expect_up_to(self, found: int, expected: int, ledger_id: int) -> None:
        if found != expected:
            self._wrong(f"entries {expected} to {found - 1} are not in the index", ledger_id)

    def _check_counter(self, newest_id: int) -> None:
        row = self._engine.get(keys.ID_COUNTER)
        try:
            next_id = decode_counter(row) if row is not None else 1
        except Corrupt as error:
            self._wrong(str(error))
            return
        if next_id <= newest_id:
            self._wrong(f"the next id is {next_id}, but {newest_id} is in use")

    def _wrong(self, reason: str, ledger_id: int = -1) -> None:
        name = self._names.get(ledger_id, "")
        self._problems.append(Problem(self._index, -1, reason, ledger_id, -1, name))

    def _named(self, damage: FolderDamage) -> Problem:
        return Problem(*damage, self._names.get(damage.ledger_id, ""))
