"""Which row of a cursor counts."""

from dataclasses import replace

import pytest
from pyroaring import BitMap

from kledger.ledger.cursors.cursor_records import CursorRecord, encode_cursor
from kledger.ledger.cursors.cursor_recovery_plan import recover_cursor
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
    stored = recover_cursor("c", snapshot, progress, {})
    assert ("c", record, progress is not None) == (stored.name, stored.record, stored.has_progress)
    assert problem_count == len(stored.problems)


def row(text: str, *deleted: int, generation: int = 2, **properties: int) -> CursorRecord:
    """What was acknowledged in ledger 3, alone."""
    bitmaps = ((3, BitMap(deleted).serialize()),) if deleted else ()
    return CursorRecord(
        mark_delete_position=pos(text),
        generation=generation,
        deleted=bitmaps,
        properties=properties,
    )


def encoded(*changes: CursorRecord) -> dict[int, bytes]:
    return {number: encode_cursor(each) for number, each in enumerate(changes)}


WHOLE = row("3:1", 4, 6, time=1)


def test_changes_go_on_from_the_whole_row_in_their_order() -> None:
    one, two = row("3:1", 8, time=2), row("3:2", 10, 12, time=3)
    stored = recover_cursor("c", encode_cursor(OLD), encode_cursor(WHOLE), encoded(one, two))
    assert row("3:2", 4, 6, 8, 10, 12, time=3) == stored.record
    assert (2, 2, ()) == (stored.generation, stored.change_rows, stored.problems)


def test_the_newest_of_what_is_left_of_a_batch_counts() -> None:
    batches = [(pos("3:9"), BitMap(left).serialize()) for left in ([1, 2, 3], [2, 3], [3])]
    whole, *changes = [replace(WHOLE, deleted=(), batches=(each,)) for each in batches]
    stored = recover_cursor("c", encode_cursor(OLD), encode_cursor(whole), encoded(*changes))
    assert stored.record is not None
    assert (batches[-1],) == stored.record.batches


@pytest.mark.parametrize("generation", [1, 3])
def test_changes_of_another_generation_say_nothing(generation: int) -> None:
    """A reset came between: what they acknowledged is unacknowledged again."""
    change = row("3:9", 11, generation=generation)
    stored = recover_cursor("c", encode_cursor(OLD), encode_cursor(WHOLE), encoded(change))
    assert WHOLE == stored.record
    assert max(2, generation) == stored.generation


def test_an_unreadable_change_is_redelivered_and_the_others_hold() -> None:
    changes = encoded(row("3:1", 8), row("3:1", 10), row("3:2", 12))
    changes[1] = changes[1][:-1]
    stored = recover_cursor("c", encode_cursor(OLD), encode_cursor(WHOLE), changes)
    assert row("3:2", 4, 6, 8, 12) == stored.record
    assert 1 == len(stored.problems)


def test_without_the_whole_row_changes_are_void() -> None:
    stored = recover_cursor("c", encode_cursor(OLD), BAD, encoded(row("3:9", 11)))
    assert OLD == stored.record
    stored = recover_cursor("c", encode_cursor(OLD), None, encoded(row("3:9", 11)))
    assert (OLD, ()) == (stored.record, stored.problems)
    assert (2, 1) == (stored.generation, stored.change_rows)
