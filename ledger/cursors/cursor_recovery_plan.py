"""Cursor recovery: which of a cursor's two rows says where it stands.

Rule: the progress row is the newer one and wins; where it cannot be read, the snapshot holds; where
that cannot be read either, the cursor begins at the first entry. What is owed twice is a nuisance,
what is not owed any more is a loss.
Must not know: engines, cursors that are open.
"""

from dataclasses import dataclass

from ledger.cursors.cursor_records import CursorRecord, decode_cursor
from ledger.errors import Corrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCursor:
    """A cursor as the storage has it.

    Attributes:
        record: None when nothing could be read.
        has_progress: whether there is a progress row, readable or not.
        problems: what could not be read, in words.
    """

    name: str
    record: CursorRecord | None
    has_progress: bool = False
    problems: tuple[str, ...] = ()


def recover_cursor(name: str, snapshot: bytes | None, progress: bytes | None) -> StoredCursor:
    """Return what the rows of a cursor say, the newest that can be read."""
    problems = []
    record = None
    for row in (progress, snapshot):
        if row is not None and record is None:
            try:
                record = decode_cursor(row)
            except Corrupt as error:
                problems.append(str(error))
    return StoredCursor(
        name=name,
        record=record,
        has_progress=progress is not None,
        problems=tuple(problems),
    )
