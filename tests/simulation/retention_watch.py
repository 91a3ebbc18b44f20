"""Retention watch: no ledger is removed that a durable cursor has not acknowledged.

Rule: groups are checked in the order in which they are written, because a crash undoes them in that
order: the cursor's rows at the time when a ledger's row is deleted count. Raising the log start may
remove unacknowledged entries.
Must not know: why ledgers are removed.
"""

from collections.abc import Callable, Iterable

from pyroaring import BitMap

from kledger.ledger import LedgerInfo, Position
from kledger.ledger.cursors.cursor_records import CursorRecord, decode_cursor
from kledger.ledger.cursors.cursor_recovery_plan import with_changes
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import LedgerRecord, decode_ledger, decode_managed_ledger
from tests.simulation.invariants import InvariantBroken

Excuse = Callable[[str, LedgerInfo], bool]
IsKnown = Callable[[str, str], bool]

_ID_END = 10
"""Where the id of the managed ledger ends in the keys of what belongs to it."""


class RetentionWatch:
    """The rows of managed ledgers, ledgers and cursors, as far as they are written."""

    def __init__(self, *, is_known: IsKnown, is_taken: Excuse) -> None:
        """Args:
        is_known: whether the creation of a cursor of that name was reported.
        is_taken: whether a ledger was removed on request, acknowledged or not.
        """
        self._is_known = is_known
        self._is_taken = is_taken
        self._names: dict[bytes, str] = {}
        self._ids: dict[bytes, bytes] = {}
        self._ledgers: dict[bytes, LedgerRecord] = {}
        self._snapshots: dict[bytes, CursorRecord] = {}
        self._progress: dict[bytes, CursorRecord] = {}
        self._changes: dict[bytes, dict[int, CursorRecord]] = {}

    def restart(self, groups: Iterable[CommitGroup]) -> None:
        """Restart from the groups that survived."""
        for each in (self._names, self._ids, self._ledgers, self._snapshots, self._progress):
            each.clear()
        self._changes.clear()
        for group in groups:
            self._take(group, is_checked=False)

    def see(self, group: CommitGroup) -> None:
        """Check a written group."""
        self._take(group, is_checked=True)

    def _take(self, group: CommitGroup, *, is_checked: bool) -> None:
        for key, value in group.rows:
            match key[:1]:
                case b"m":
                    self._take_managed_ledger(key, value)
                case b"l" if value is not None:
                    self._ledgers[key] = decode_ledger(keys.ledger_id_in(key), value)
                case b"l":
                    record = self._ledgers.pop(key, None)
                    if is_checked and record is not None:
                        self._check(key[2:_ID_END], record)
                case b"k" | b"p":
                    cursors = self._snapshots if key[:1] == b"k" else self._progress
                    if value is None:
                        cursors.pop(key[2:], None)
                    else:
                        cursors[key[2:]] = decode_cursor(value)

                case b"d":
                    changes = self._changes.setdefault(key[2:-2], {})
                    changes.pop(keys.cursor_change_number_in(key), None)
                    if value is not None:
                        changes[keys.cursor_change_number_in(key)] = decode_cursor(value)

    def _take_managed_ledger(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._names.pop(self._ids.pop(key, b""), None)
            return
        start, _ = keys.ledger_range(decode_managed_ledger(value).managed_ledger_id)
        self._ids[key] = start[2:]
        self._names[start[2:]] = keys.managed_ledger_name(key)

    def _check(self, id_: bytes, record: LedgerRecord) -> None:
        name = self._names.get(id_)
        if name is None or not record.entries:
            return
        info = LedgerInfo(
            ledger_id=record.ledger_id, entries=record.entries, size=record.size, closed_ms=1
        )
        if self._is_taken(name, info):
            return
        for key, snapshot in self._snapshots.items():
            cursor = key[len(id_) :].decode()
            if key.startswith(id_) and self._is_known(name, cursor):
                _check_unacknowledged(name, cursor, self._cursor_record(key, snapshot), record)

    def _cursor_record(self, key: bytes, snapshot: CursorRecord) -> CursorRecord:
        progress = self._progress.get(key)
        if progress is None:
            return snapshot
        changes = (change for _, change in sorted(self._changes.get(key, {}).items()))
        return with_changes(progress, (c for c in changes if c.generation == progress.generation))


def _check_unacknowledged(
    name: str, cursor: str, cursor_record: CursorRecord, ledger: LedgerRecord
) -> None:
    done = dict(cursor_record.deleted).get(ledger.ledger_id)
    bitmap = BitMap.deserialize(done) if done is not None else BitMap()
    for entry_id in range(ledger.entries):
        position = Position(ledger.ledger_id, entry_id)
        if position > cursor_record.mark_delete_position and entry_id not in bitmap:
            raise InvariantBroken(
                f"{name}: ledger {ledger.ledger_id} is removed, "
                f"cursor {cursor} has not acknowledged {position}"
            )
