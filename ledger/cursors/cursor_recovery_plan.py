"""Cursor recovery: the state of a cursor from its rows.

Rule: the progress row is newer than the snapshot and wins, together with the change rows of its
generation. An unreadable change is left out; if the progress row is unreadable, the snapshot is
used without changes, since they may belong to either; if that is unreadable too, the cursor begins
at the first entry. Redelivery is acceptable, loss is not.
Must not know: engines, open cursors.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyroaring import BitMap

from kledger.ledger.cursors.cursor_records import CursorRecord, decode_cursor
from kledger.ledger.errors import Corrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCursor:
    """A cursor as it is stored.

    Attributes:
        record: None if no row was readable.
        has_progress: whether there is a progress row, readable or not.
        generation: the highest of all readable rows.
        change_rows: the numbers of change rows are lower than this.
        problems: messages about unreadable rows.
    """

    name: str
    record: CursorRecord | None
    has_progress: bool = False
    generation: int = 0
    change_rows: int = 0
    problems: tuple[str, ...] = ()


def recover_cursor(
    name: str, snapshot: bytes | None, progress: bytes | None, changes: Mapping[int, bytes]
) -> StoredCursor:
    """Return the cursor that the readable rows describe.

    Args:
        name: of the cursor.
        snapshot: its row.
        progress: its row.
        changes: its rows by their numbers.
    """
    newer, problems = _read(progress)
    older, older_problems = _read(snapshot)
    found = [_read(changes[number]) for number in sorted(changes)]
    read = [each for each, _ in found if each is not None]
    if newer is None:
        record, problems = older, problems + older_problems
    else:
        record = with_changes(newer, (each for each in read if each.generation == newer.generation))
        problems += [problem for _, wrong in found for problem in wrong]
    generations = [each.generation for each in (older, newer, *read) if each is not None]
    return StoredCursor(
        name=name,
        record=record,
        has_progress=progress is not None,
        generation=max(generations, default=0),
        change_rows=max(changes, default=-1) + 1,
        problems=tuple(problems),
    )


def with_changes(whole: CursorRecord, changes: Iterable[CursorRecord]) -> CursorRecord:
    """Return a whole row with its changes, in the order in which they were written."""
    deleted = {ledger_id: BitMap.deserialize(bitmap) for ledger_id, bitmap in whole.deleted}
    batches, newest = dict(whole.batches), whole
    for change in changes:
        newest = change
        batches.update(change.batches)
        for ledger_id, bitmap in change.deleted:
            deleted[ledger_id] = deleted.get(ledger_id, BitMap()) | BitMap.deserialize(bitmap)
    if newest is whole:
        return whole
    return replace(
        newest,
        deleted=tuple((ledger_id, deleted[ledger_id].serialize()) for ledger_id in sorted(deleted)),
        batches=tuple(sorted(batches.items())),
    )


def _read(row: bytes | None) -> tuple[CursorRecord | None, list[str]]:
    """Return a record, or what is wrong with the row; nothing of a row that is not there."""
    if row is None:
        return None, []
    try:
        return decode_cursor(row), []
    except Corrupt as error:
        return None, [str(error)]
