"""Which row of a cursor counts."""

import pytest

from ledger.cursors.cursor_records import CursorRecord, encode_cursor
from ledger.cursors.cursor_recovery_plan import recover_cursor
from tests.ledger.words import pos

OLD = CursorRecord(mark_delete_position=pos("3:1"))
NEW = CursorRecord(mark_delete_position=pos("3:7"))
BAD = b"\x09 what is this"


@pytest.mark.parametrize(
    ("snapshot", "progress", "record", "problem_count"),
    [
        (encode_cursor(OLD), None, OLD, 0),
        (encode_cursor(OLD), encode_cursor(NEW), NEW, 0),
        (encode_cursor(OLD), BAD, OLD, 1),
        (BAD, encode_cursor(NEW), NEW, 0),
        (BAD, BAD, None, 2),
        (BAD, None, None, 1),
    ],
)
def test_the_newest_row_that_can_be_read_counts(
    snapshot: bytes, progress: bytes | None, record: CursorRecord | None, problem_count: int
) -> None:
    stored = recover_cursor("c", snapshot, progress)
    assert ("c", record, progress is not None) == (stored.name, stored.record, stored.has_progress)
    assert problem_count == len(stored.problems)
