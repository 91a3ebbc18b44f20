"""A cursor's state: tables of its rules, and every small case against plain sets."""

from collections.abc import Collection
from itertools import combinations

import pytest
from pyroaring import BitMap

from kledger.ledger import (
    EARLIEST,
    LATEST,
    AlreadyMarkDeleted,
    Entry,
    InvalidArgument,
    InvalidPosition,
    Position,
)
from kledger.ledger.cursors import cursor_state
from kledger.ledger.cursors.cursor_records import CursorRecord
from kledger.ledger.cursors.cursor_state import (
    READ_GAP_MAX,
    CursorChanges,
    CursorState,
    EntryPart,
    PartialBatches,
)
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from tests.ledger.words import change, closed, ledger_list, opened, pos

PLACES = [pos(text) for text in ("3:0", "3:1", "3:2", "5:0", "5:1", "8:0", "8:1")]


def ledgers() -> LedgerListState:
    """Three entries in ledger 3, two in 5, two in 8, which is open."""
    return ledger_list(closed(3, 3), closed(5, 2), opened(8), confirmed=2)


def cursor(mark_delete: str = "3:-1", *deleted: str) -> CursorState:
    state = CursorState(ledgers(), pos(mark_delete))
    state.delete([pos(text) for text in deleted])
    return state


def ranges(state: CursorState) -> list[tuple[str, str]]:
    return [(str(after), str(upto)) for after, upto in state.individually_deleted]


def unacknowledged(state: CursorState) -> list[Position]:
    """What reading from the first entry on finds."""
    found = []
    place = state.next_unacknowledged(EARLIEST)
    while place is not None:
        if place > state.mark_delete_position:
            found.append(place)
        place = state.next_unacknowledged(place.successor)
    return found


def test_every_set_of_acknowledged_entries_in_two_steps_equals_plain_sets() -> None:
    for size in range(len(PLACES) + 1):
        for first in combinations(PLACES, size):
            for upto in (None, *PLACES):
                check_against_sets(set(first), upto)


def check_against_sets(acknowledged: set[Position], upto: Position | None) -> None:
    state = CursorState(ledgers(), pos("3:-1"))
    state.delete(sorted(acknowledged))
    if upto is not None and upto >= state.mark_delete_position:
        state.mark_delete(upto)
        acknowledged |= {each for each in PLACES if each <= upto}
    left = [each for each in PLACES if each not in acknowledged]
    assert left == unacknowledged(state)
    assert len(left) == state.backlog
    assert [each in acknowledged for each in PLACES] == list(map(state.is_acknowledged, PLACES))
    reached = PLACES.index(left[0]) if left else len(PLACES)
    assert (PLACES[reached - 1] if reached else pos("3:-1")) == state.mark_delete_position
    assert state.read_position > state.mark_delete_position
    for count, each in enumerate(left, 1):
        assert each == state.nth_unacknowledged(count)
    assert PLACES[-1] == state.nth_unacknowledged(len(left) + 1)
    holes = {
        Position(after.ledger_id, entry_id)
        for after, end in state.individually_deleted
        for entry_id in range(after.entry_id + 1, end.entry_id + 1)
    }
    assert {each for each in acknowledged if each > state.mark_delete_position} == holes


def test_the_mark_delete_position_swallows_holes_across_ledgers() -> None:
    state = cursor("3:-1", "3:2", "5:0", "5:1")
    assert [("3:1", "3:2"), ("5:-1", "5:1")] == ranges(state)
    state.mark_delete(pos("3:1"))
    assert (pos("5:1"), pos("8:0"), []) == (
        state.mark_delete_position,
        state.read_position,
        ranges(state),
    )


def test_the_first_hole_moves_the_mark_delete_position() -> None:
    state = cursor()
    state.delete([pos("3:1")])
    state.delete([pos("3:0")])
    assert pos("3:1") == state.mark_delete_position


def test_mark_deletes_that_are_refused_change_nothing() -> None:
    state = cursor("3:1", "5:1")
    version = state.version
    with pytest.raises(InvalidPosition):
        state.mark_delete(pos("8:2"))
    with pytest.raises(AlreadyMarkDeleted):
        state.mark_delete(pos("3:0"))
    state.mark_delete(pos("3:1"))
    with pytest.raises(InvalidPosition):
        state.delete([pos("5:0"), pos("8:2")])
    assert (version, [("5:0", "5:1")]) == (state.version, ranges(state))


def test_the_position_before_an_empty_next_ledger_is_reached_without_backlog() -> None:
    state = CursorState(ledger_list(closed(3, 2), opened(8)), pos("3:-1"))
    with pytest.raises(InvalidPosition):
        state.mark_delete(pos("8:-1"))
    state.mark_delete(pos("3:1"))
    state.mark_delete(pos("8:-1"))
    assert (pos("8:-1"), pos("8:0"), 0) == (
        state.mark_delete_position,
        state.read_position,
        state.backlog,
    )


def test_properties_come_with_a_mark_delete_and_stay_without() -> None:
    state = cursor()
    state.mark_delete(pos("3:0"), {"a": 1})
    state.mark_delete(pos("3:1"))
    assert {"a": 1} == state.properties
    version = state.version
    state.mark_delete(pos("3:1"), {"b": 2})
    assert ({"b": 2}, version + 1) == (state.properties, state.version)
    state.mark_delete(pos("3:2"), {})
    assert {} == state.properties


def test_removed_and_acknowledged_entries_are_ignored() -> None:
    state = cursor("3:1", "5:1")
    version = state.version
    state.delete([pos("1:0"), pos("3:0"), pos("3:9"), pos("4:0"), pos("5:1"), EARLIEST])
    assert (version, 3) == (state.version, state.backlog - 1)


def test_a_batch_is_unacknowledged_until_its_last_index() -> None:
    state = cursor()
    assert state.batch_indexes(pos("5:0")) is None
    state.delete_batch_index(pos("5:0"), [0, 2], 4)
    assert frozenset({1, 3}) == state.batch_indexes(pos("5:0"))
    version = state.version
    state.delete_batch_index(pos("5:0"), [2], 4)
    assert version == state.version
    state.delete_batch_index(pos("5:0"), [3], 4)
    assert (frozenset({1}), 7) == (state.batch_indexes(pos("5:0")), state.backlog)
    state.delete_batch_index(pos("5:0"), [1], 4)
    assert (None, 6) == (state.batch_indexes(pos("5:0")), state.backlog)
    assert [("5:-1", "5:0")] == ranges(state)
    state.delete_batch_index(pos("5:0"), [1], 4)
    assert state.batch_indexes(pos("5:0")) is None


def test_batches_go_with_what_acknowledges_their_entry() -> None:
    state = cursor()
    for text in ("3:0", "5:0", "8:0"):
        state.delete_batch_index(pos(text), [0], 2)
    state.delete([pos("5:0")])
    state.mark_delete(pos("3:2"))
    assert [None, None, {1}] == [state.batch_indexes(pos(t)) for t in ("3:0", "5:0", "8:0")]
    record, _ = state.record(ranges_max=9, batches_max=9)
    assert [pos("8:0")] == [position for position, _ in record.batches]


def test_the_newest_of_what_is_acknowledged_is_known() -> None:
    state = cursor()
    assert pos("3:-1") == state.last_acknowledged
    state.delete_batch_index(pos("5:1"), [0], 2)
    assert pos("5:1") == state.last_acknowledged
    state.delete([pos("8:0")])
    assert pos("8:0") == state.last_acknowledged
    state.mark_delete(pos("8:1"))
    assert pos("8:1") == state.last_acknowledged


@pytest.mark.parametrize(("indexes", "size"), [([4], 4), ([-1], 4), ([0], 0)])
def test_indexes_outside_a_batch_are_refused(indexes: list[int], size: int) -> None:
    with pytest.raises(InvalidArgument):
        cursor().delete_batch_index(pos("3:0"), indexes, size)
    with pytest.raises(InvalidPosition):
        cursor().delete_batch_index(pos("8:2"), [0], 1)


@pytest.mark.parametrize(
    ("position", "target"),
    [
        (EARLIEST, "3:0"),
        (LATEST, "8:2"),
        (pos("8:9"), "8:2"),
        (pos("5:1"), "5:1"),
        (pos("5:7"), "8:0"),
        (pos("4:2"), "5:0"),
        (pos("1:0"), "3:0"),
        (pos("3:-1"), "3:0"),
    ],
)
def test_a_seek_goes_there_or_to_the_next(position: Position, target: str) -> None:
    assert pos(target) == cursor().seek_target(position)


@pytest.mark.parametrize(
    ("position", "force", "mark_delete", "read"),
    [
        (EARLIEST, False, "3:-1", "3:0"),
        (EARLIEST, True, "3:-1", "3:0"),
        (LATEST, False, "8:1", "8:2"),
        (LATEST, True, "8:1", "8:2"),
        (pos("5:0"), False, "3:2", "5:0"),
        (pos("5:7"), False, "5:1", "8:0"),
        (pos("5:7"), True, "5:6", "5:7"),
        (pos("3:0"), False, "3:-1", "3:0"),
        (pos("8:9"), False, "8:1", "8:2"),
        (pos("8:9"), True, "8:1", "8:9"),
    ],
)
def test_a_reset_has_these_targets(
    position: Position, mark_delete: str, read: str, *, force: bool
) -> None:
    assert (pos(mark_delete), pos(read)) == cursor().reset_target(position, force=force)


def test_a_seek_stays_after_acknowledged_entries_unless_forced() -> None:
    state = cursor("3:1", "5:1")
    state.seek(pos("3:0"), force=False)
    assert pos("3:2") == state.read_position
    state.seek(pos("3:0"), force=True)
    state.revised()
    assert (pos("3:0"), pos("3:1")) == (state.read_position, state.mark_delete_position)
    state.delete([pos("5:1")])
    assert pos("3:0") == state.read_position
    state.mark_delete(pos("3:2"))
    assert pos("5:0") == state.read_position
    state.seek(LATEST, force=False)
    state.rewind()
    assert pos("5:0") == state.read_position


def test_a_state_becomes_another() -> None:
    state, target = cursor("3:0", "5:0"), cursor("3:1", "8:1")
    target.delete_batch_index(pos("8:0"), [0], 2)
    target.properties = {"a": 1}
    state.replace_with(target)
    state.revised()
    assert ranges(target) == ranges(state)
    assert (pos("3:1"), pos("3:2")) == (state.mark_delete_position, state.read_position)
    assert frozenset({1}) == state.batch_indexes(pos("8:0"))
    assert {"a": 1} == state.properties


def test_only_entries_exist() -> None:
    state = cursor()
    state.check_exists(pos("5:1"))
    for text in ("5:2", "4:0", "8:2", "3:-1"):
        with pytest.raises(InvalidPosition):
            state.check_exists(pos(text))


def test_a_reset_forgets_what_was_acknowledged_alone() -> None:
    state = cursor("3:2", "8:1")
    state.delete_batch_index(pos("8:0"), [0], 2)
    state.reset(*state.reset_target(pos("3:1"), force=False))
    state.revised()
    assert (pos("3:0"), pos("3:1"), 6) == (
        state.mark_delete_position,
        state.read_position,
        state.backlog,
    )
    assert (None, []) == (state.batch_indexes(pos("8:0")), ranges(state))


@pytest.mark.parametrize(
    ("position", "mark_delete", "read", "unacknowledged"),
    [
        (pos("5:0"), "3:2", "5:0", {2, 3}),
        (pos("3:0"), "3:-1", "3:0", {2, 3}),
        (EARLIEST, "3:-1", "3:0", None),
        (LATEST, "8:1", "8:2", None),
        (pos("8:2"), "8:1", "8:2", None),
        (pos("5:7"), "5:1", "8:0", None),
        (pos("4:0"), "3:2", "5:0", None),
        (pos("99:0"), "8:1", "8:2", None),
    ],
)
def test_a_reset_into_a_batch_acknowledges_what_lies_before_it(
    position: Position, mark_delete: str, read: str, unacknowledged: set[int] | None
) -> None:
    """What is acknowledged of an entry that does not exist is no part of another one."""
    state = cursor("3:2", "5:0", "8:1")
    state.delete_batch_index(pos("8:0"), [3], 4)
    state.reset_to(position, acknowledged=[0, 1], batch_size=4)
    state.revised()
    assert (pos(mark_delete), pos(read)) == (state.mark_delete_position, state.read_position)
    assert (unacknowledged, None) == (
        state.batch_indexes(state.read_position),
        state.batch_indexes(pos("8:0")) if read != "8:0" else None,
    )
    assert [] == ranges(state)


@pytest.mark.parametrize("before", ["3:-1", "3:1", "3:2", "5:0", "8:1"])
def test_a_reset_after_the_last_record_of_a_batch_acknowledges_the_batch(before: str) -> None:
    state = cursor(before)
    state.reset_to(pos("3:2"), acknowledged=range(4), batch_size=4)
    assert (pos("3:2"), pos("5:0"), 4) == (
        state.mark_delete_position,
        state.read_position,
        state.backlog,
    )


def test_a_reset_refuses_records_outside_the_batch() -> None:
    state = cursor("3:0")
    with pytest.raises(InvalidArgument):
        state.reset_to(pos("5:0"), acknowledged=[4], batch_size=4)
    assert (pos("3:0"), 6) == (state.mark_delete_position, state.backlog)


def test_whole_entries_and_parts_are_acknowledged_in_one_step() -> None:
    state = cursor()
    state.acknowledge(
        [
            EntryPart(pos("5:0"), None),
            EntryPart(pos("5:1"), [0], 2),
            EntryPart(pos("8:0"), [0], 2),
            EntryPart(pos("8:0"), [1], 2),
            EntryPart(pos("4:0"), None),
        ],
        upto=pos("3:1"),
    )
    assert pos("3:1") == state.mark_delete_position
    assert [("5:-1", "5:0"), ("8:-1", "8:0")] == ranges(state)
    assert frozenset({1}) == state.batch_indexes(pos("5:1"))
    state.acknowledge([EntryPart(pos("3:2"), None)], upto=pos("3:0"))
    assert pos("5:0") == state.mark_delete_position


@pytest.mark.parametrize(
    ("part", "upto", "error"),
    [
        (EntryPart(pos("5:1"), [2], 2), None, InvalidArgument),
        (EntryPart(pos("8:2"), None), None, InvalidPosition),
        (EntryPart(pos("8:2"), [0], 2), None, InvalidPosition),
        (EntryPart(pos("8:0"), None), pos("8:2"), InvalidPosition),
    ],
)
def test_one_part_that_cannot_be_acknowledged_stops_all(
    part: EntryPart, upto: Position | None, error: type[Exception]
) -> None:
    state = cursor()
    with pytest.raises(error):
        state.acknowledge([EntryPart(pos("5:0"), None), part], upto=upto or pos("3:0"))
    assert (pos("3:-1"), [], 0) == (state.mark_delete_position, ranges(state), state.version)


def test_positions_set_by_an_editor_are_followed() -> None:
    state = cursor("3:0", "5:0", "8:1")
    state.mark_delete_position = pos("3:2")
    state.revised()
    assert (pos("5:0"), pos("5:1")) == (state.mark_delete_position, state.read_position)
    state.mark_delete_position = pos("9:9")
    state.revised()
    assert (pos("8:1"), pos("8:2"), 0) == (
        state.mark_delete_position,
        state.read_position,
        state.backlog,
    )


def test_a_read_crosses_small_holes_and_stops_before_large_ones() -> None:
    many = ledger_list(closed(3, 200), opened(8), confirmed=1)
    state = CursorState(many, pos("3:-1"))
    state.delete([Position(3, each) for each in (2, 3, *range(50, 51 + READ_GAP_MAX))])
    assert pos("3:1") == state.read_end_from(pos("3:0"), 2)
    assert pos("3:4") == state.read_end_from(pos("3:0"), 3)
    assert pos("3:49") == state.read_end_from(pos("3:0"), 100)
    assert pos("3:199") == state.read_end_from(Position(3, 80), 200)
    assert Position(3, 51 + READ_GAP_MAX) == state.next_unacknowledged(pos("3:50"))


def test_acknowledged_ledgers_are_skipped() -> None:
    state = cursor("3:0", "5:0", "5:1")
    assert pos("8:0") == state.next_unacknowledged(pos("5:0"))
    assert pos("8:0") == state.next_unacknowledged(pos("3:3"))


def test_what_was_acknowledged_during_a_read_is_left_out() -> None:
    state = cursor("3:0")
    entries = [Entry(each, b"") for each in PLACES]
    since = state.mark_delete_position
    state.mark_delete(pos("3:2"))
    state.delete([pos("5:1")])
    kept = [entry.position for entry in state.without_acknowledged(entries, since)]
    assert [pos(text) for text in ("3:0", "5:0", "8:0", "8:1")] == kept


def test_reading_moves_the_read_position_on_and_never_back() -> None:
    state = cursor()
    state.read_upto(pos("3:2"))
    assert pos("5:0") == state.read_position
    state.read_upto(pos("3:0"))
    assert pos("5:0") == state.read_position
    assert state.has_unread
    state.read_upto(state.last_confirmed)
    assert (pos("8:2"), False) == (state.read_position, state.has_unread)


def test_entries_about_to_be_removed_are_acknowledged() -> None:
    kept = ledgers()
    state = CursorState(kept, pos("3:0"))
    state.delete([pos("3:2"), pos("5:0")])
    state.acknowledge_removed(pos("3:2"))
    kept.apply(change(kept, removed=[3]))
    assert (pos("5:0"), 3) == (state.mark_delete_position, state.backlog)
    state.acknowledge_removed(pos("3:2"))
    assert pos("5:0") == state.mark_delete_position


@pytest.mark.parametrize(
    ("mark_delete", "place", "backlog"),
    [
        ("8:9", "8:1", 0),
        ("9:-1", "8:1", 0),
        ("1:7", "3:-1", 7),
        ("4:0", "5:-1", 4),
        ("5:0", "5:0", 3),
        ("-1:-1", "3:-1", 7),
    ],
)
def test_a_recovered_position_fits_what_exists(mark_delete: str, place: str, backlog: int) -> None:
    record, _ = cursor().record(ranges_max=0, batches_max=0)
    state = CursorState(ledgers(), pos(mark_delete))
    assert (pos(place), backlog) == (state.mark_delete_position, state.backlog)
    assert pos("3:-1") == CursorState.recovered(ledgers(), record).mark_delete_position


def test_a_record_brings_everything_back_that_still_exists() -> None:
    state = cursor("3:0", "3:2", "5:1", "8:1")
    state.mark_delete(pos("3:0"), {"a": 1})
    for text in ("5:0", "8:0"):
        state.delete_batch_index(pos(text), [0], 3)
    record, is_cut = state.record(ranges_max=10, batches_max=10)
    assert not is_cut
    again = CursorState.recovered(ledgers(), record)
    assert ranges(state) == ranges(again)
    assert (pos("3:0"), {"a": 1}) == (again.mark_delete_position, again.properties)
    assert [frozenset({1, 2})] * 2 == [again.batch_indexes(pos(text)) for text in ("5:0", "8:0")]
    shorter = ledger_list(closed(5, 1), opened(8), confirmed=1)
    less = CursorState.recovered(shorter, record)
    assert ([], 2) == (ranges(less), less.backlog)
    assert [frozenset({1, 2})] * 2 == [less.batch_indexes(pos(text)) for text in ("5:0", "8:0")]


def test_above_the_limits_the_highest_are_left_out_and_nothing_else_is_acknowledged() -> None:
    state = cursor("3:-1", "3:1", "5:0", "8:1")
    for text in ("3:0", "5:1"):
        state.delete_batch_index(pos(text), [0], 2)
    record, is_cut = state.record(ranges_max=2, batches_max=1)
    assert is_cut
    again = CursorState.recovered(ledgers(), record)
    assert [("3:0", "3:1"), ("5:-1", "5:0")] == ranges(again)
    assert [{1}, None] == [again.batch_indexes(pos(text)) for text in ("3:0", "5:1")]


def test_a_copy_is_independent() -> None:
    state = cursor("3:0", "5:1")
    copied = state.copy()
    copied.mark_delete(pos("5:1"))
    assert (pos("3:0"), [("5:0", "5:1")]) == (state.mark_delete_position, ranges(state))
    assert pos("5:1") == copied.mark_delete_position


@pytest.mark.parametrize(("indexes", "size"), [(None, 0), ([], 1), ([0, 3], 4), ({2}, 3)])
def test_a_part_of_its_batch_is_taken(indexes: Collection[int] | None, size: int) -> None:
    EntryPart(pos("3:1"), indexes, size).check()


@pytest.mark.parametrize(("indexes", "size"), [([0], 0), ([4], 4), ([-1, 0], 4), ([0], -1)])
def test_an_index_outside_is_refused(indexes: Collection[int], size: int) -> None:
    with pytest.raises(InvalidArgument, match="indexes: expected 0 to"):
        EntryPart(pos("3:1"), indexes, size).check()


def some(*texts: str) -> PartialBatches:
    batches = PartialBatches()
    for text in texts:
        batches.set(pos(text), BitMap([1]))
    return batches


def names(batches: PartialBatches) -> list[str]:
    return [str(position) for position in batches]


def test_batches_are_in_the_order_of_their_positions() -> None:
    batches = some("5:1", "3:2", "5:0", "3:2")
    assert ["3:2", "5:0", "5:1"] == names(batches)
    assert (3, (pos("5:1"),)) == (len(batches), batches.last)
    assert () == some().last


def test_what_is_left_of_a_batch_is_what_was_set_last() -> None:
    batches = some("3:2")
    batches.set(pos("3:2"), BitMap([4, 7]))
    assert BitMap([4, 7]) == batches.get(pos("3:2"))
    assert batches.get(pos("3:3")) is None


def test_one_batch_or_all_up_to_a_position_are_removed() -> None:
    batches = some("3:2", "5:0", "5:1", "8:0")
    batches.remove(pos("5:0"))
    batches.remove(pos("5:0"))
    assert ["3:2", "5:1", "8:0"] == names(batches)
    batches.remove_upto(pos("5:1"))
    assert ["8:0"] == names(batches)
    assert batches.get(pos("5:1")) is None


def test_a_copy_does_not_follow() -> None:
    batches = some("3:2", "5:0")
    copied = batches.copy()
    batches.set(pos("3:2"), BitMap([9]))
    batches.remove(pos("5:0"))
    assert ["3:2", "5:0"] == names(copied)
    assert BitMap([1]) == copied.get(pos("3:2"))


def test_the_lowest_are_dumped_and_come_back() -> None:
    batches = some("5:1", "3:2", "5:0")
    loaded = PartialBatches.load(reversed(batches.dump(2)))
    assert ["3:2", "5:0"] == names(loaded)
    assert BitMap([1]) == loaded.get(pos("5:0"))


def record(changes: CursorChanges, upto: str = "3:0") -> CursorRecord:
    return changes.record(pos(upto), {"page": 2}, generation=7)


def deleted(found: CursorRecord) -> list[tuple[int, list[int]]]:
    return [(ledger_id, list(BitMap.deserialize(bitmap))) for ledger_id, bitmap in found.deleted]


@pytest.fixture(name="changes")
def make_changes() -> CursorChanges:
    changes = CursorChanges()
    changes.restart()
    return changes


def test_nothing_is_collected_before_the_first_row() -> None:
    changes = CursorChanges()
    changes.add_entry(pos("3:1"))
    changes.add_batch(pos("3:2"), BitMap([1]))
    assert (True, 0) == (changes.is_whole, len(changes))


def test_entries_and_batches_after_the_mark_delete_position_are_changes(
    changes: CursorChanges,
) -> None:
    for each in ("5:2", "3:1", "3:9", "3:4"):
        changes.add_entry(pos(each))
    for each in ("3:3", "5:2", "5:7"):
        changes.add_batch(pos(each), BitMap([1, 2]))
    changes.add_batch(pos("5:7"), BitMap([2]))
    found = record(changes, "3:4")
    assert [(3, [9]), (5, [2])] == deleted(found)
    assert ((pos("5:7"), BitMap([2]).serialize()),) == found.batches
    assert (pos("3:4"), {"page": 2}, 7) == (
        found.mark_delete_position, found.properties, found.generation,
    )  # fmt: skip
    changes.restart()
    assert ((), ()) == (record(changes).deleted, record(changes).batches)


def test_too_many_changes_become_a_whole_row(
    changes: CursorChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_state, "CHANGES_MAX", 3)
    for number in range(3):
        changes.add_entry(pos(f"3:{number}"))
        changes.add_batch(pos(f"5:{number}"), BitMap([1]))
    assert (False, 6) == (changes.is_whole, len(changes))
    changes.add_entry(pos("3:9"))
    assert (True, 0) == (changes.is_whole, len(changes))
