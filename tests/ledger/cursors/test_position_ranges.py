"""A set of positions against a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import EARLIEST, Position
from kledger.ledger.cursors.position_ranges import EntryRange, PositionRanges

POSITIONS = st.builds(Position, st.integers(1, 4), st.integers(0, 40))
SETS = st.sets(POSITIONS, max_size=80)


def members(ranges: PositionRanges) -> set[Position]:
    return {
        Position(run.ledger_id, entry_id)
        for run in ranges.entry_ranges()
        for entry_id in range(run.first, run.last + 1)
    }


def runs_of(positions: set[Position]) -> list[EntryRange]:
    entry_ranges: list[EntryRange] = []
    for ledger_id, entry_id in sorted(positions):
        if entry_ranges and (entry_ranges[-1].ledger_id, entry_ranges[-1].last + 1) == (
            ledger_id,
            entry_id,
        ):
            entry_ranges[-1] = entry_ranges[-1]._replace(last=entry_id)
        else:
            entry_ranges.append(EntryRange(ledger_id, entry_id, entry_id))
    return entry_ranges


@given(SETS)
def test_it_holds_what_was_added(positions: set[Position]) -> None:
    ranges = PositionRanges(positions)
    assert runs_of(positions) == list(ranges.entry_ranges())
    assert len(positions) == ranges.count
    assert bool(positions) == bool(ranges)
    assert sorted({each.ledger_id for each in positions}) == list(ranges.ledger_ids)
    for ledger_id in range(6):
        count = sum(each.ledger_id == ledger_id for each in positions)
        assert count == ranges.count_in(ledger_id)
    assert max(positions, default=EARLIEST) == ranges.last
    assert all(not ranges.add(each) for each in positions)
    assert Position(1, -1) not in ranges


@given(SETS, st.builds(Position, st.integers(0, 5), st.integers(-1, 42)))
def test_removing_equals_a_set(positions: set[Position], at: Position) -> None:
    behind, beside = PositionRanges(positions), PositionRanges(positions)
    behind.remove_upto(at)
    beside.remove_in_ledger_from(at)
    for ranges, expected in (
        (behind, {each for each in positions if each > at}),
        (beside, {e for e in positions if e.ledger_id != at.ledger_id or e < at}),
    ):
        assert expected == members(ranges)
        assert len(expected) == ranges.count
        assert sorted({each.ledger_id for each in expected}) == list(ranges.ledger_ids)


@given(SETS, st.builds(Position, st.integers(0, 5), st.integers(-1, 42)), st.integers(1, 60))
def test_looking_equals_a_set(positions: set[Position], at: Position, count: int) -> None:
    ranges = PositionRanges(positions)
    following = sorted(e.entry_id for e in positions if e.ledger_id == at.ledger_id and e >= at)
    assert (following[0] if following else None) == ranges.first_from(at)
    absent = [e for e in range(at.entry_id + 1, 120) if Position(at.ledger_id, e) not in positions]
    assert absent[count - 1] == ranges.nth_absent(at, count)


@given(SETS, st.integers(0, 30))
def test_the_lowest_runs_are_kept(positions: set[Position], ranges_max: int) -> None:
    ranges = PositionRanges(positions)
    kept = ranges.lowest(ranges_max)
    assert runs_of(positions)[:ranges_max] == list(kept.entry_ranges())
    assert runs_of(positions) == list(ranges.entry_ranges())
    assert (len(runs_of(positions)) <= ranges_max) == (kept is ranges)


@given(SETS)
def test_dumped_and_loaded_it_is_the_same(positions: set[Position]) -> None:
    ranges = PositionRanges.load(PositionRanges(positions).dump())
    assert positions == members(ranges)
    assert len(positions) == ranges.count


def test_a_copy_is_independent() -> None:
    ranges = PositionRanges([Position(1, 1)])
    copied = ranges.copy()
    copied.add(Position(1, 2))
    copied.add(Position(2, 0))
    assert {Position(1, 1)} == members(ranges)
    assert 3 == copied.count


def test_a_long_run_is_found_in_few_steps() -> None:
    ranges = PositionRanges()
    for entry_id in range(70_000):
        ranges.add(Position(1, entry_id))
    assert Position(1, 69_999) == ranges.range_end(Position(1, 3))
    assert [EntryRange(1, 0, 69_999)] == list(ranges.entry_ranges())
