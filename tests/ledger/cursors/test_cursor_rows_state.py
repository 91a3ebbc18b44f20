"""When a whole row is written."""

from kledger.ledger.cursors.cursor_rows_state import (
    CHANGE_BYTES_MIN,
    CHANGE_ROWS_MAX,
    SMALL_PARTS_MAX,
    CursorRowsState,
)
from tests.ledger.words import pos

LIMIT = 1_000
MANY = SMALL_PARTS_MAX + 1
PLACE = pos("3:1")


def is_whole_due(rows: CursorRowsState, parts: int = MANY) -> bool:
    return rows.is_whole_due(PLACE, parts, range(1))


def written(size: int = 100_000, *, is_cut: bool = False) -> CursorRowsState:
    rows = CursorRowsState(LIMIT, generation=4)
    assert is_whole_due(rows), "there is nothing to go on from"
    assert 5 == rows.begin_whole()
    rows.wrote_whole(size, cut_at=PLACE if is_cut else None)
    return rows


def changes_until_whole(rows: CursorRowsState, size: int) -> int:
    count = 0
    while not is_whole_due(rows):
        assert count == rows.write_change(size, 1)
        count += 1
    return count


def test_a_small_cursor_is_always_written_as_a_whole() -> None:
    assert [True, False] == [is_whole_due(written(), parts) for parts in (SMALL_PARTS_MAX, MANY)]


def test_changes_end_when_they_are_many_or_as_large_as_the_whole_row() -> None:
    assert CHANGE_ROWS_MAX == changes_until_whole(written(), 60)
    assert 100 == changes_until_whole(written(), 1_000)
    assert CHANGE_BYTES_MIN // 64 == changes_until_whole(written(200), 64)


def test_what_was_left_out_is_not_wanted_before_the_next_whole_row() -> None:
    """A row keeps a quarter more than it must; an acknowledgement takes one range at most."""
    rows = written(is_cut=True)
    assert 1_250 == rows.parts_max
    assert not rows.is_whole_due(PLACE, MANY, range(250))
    rows.write_change(1, 240)
    assert not rows.is_whole_due(PLACE, MANY, range(10))
    assert rows.is_whole_due(PLACE, MANY, range(11))
    assert rows.is_whole_due(pos("3:2"), MANY, range(1)), "it passed uncounted ranges"


def test_changes_continue_a_complete_row_wherever_the_position_is() -> None:
    assert not written().is_whole_due(pos("3:2"), MANY, range(10_000))


def test_numbers_begin_anew_with_a_whole_row_and_all_are_known_for_the_end() -> None:
    rows = CursorRowsState(LIMIT, rows_kept=2)
    assert 2 == rows.rows_kept
    rows = written()
    for _ in range(3):
        rows.write_change(1, 1)
    rows.begin_whole()
    rows.wrote_whole(100, cut_at=None)
    assert (0, 3) == (rows.write_change(1, 1), rows.rows_kept)
    rows.begin_anew()
    assert is_whole_due(rows)
