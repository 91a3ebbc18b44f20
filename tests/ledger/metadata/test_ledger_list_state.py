"""The list of ledgers against a model that knows every entry by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest

from kledger.ledger.metadata.ledger_list_state import LedgerInfo, LedgerListState
from kledger.ledger.metadata.records import LedgerRecord, ManagedLedgerRecord
from kledger.ledger.position import EARLIEST, LATEST, Position
from tests.ledger.words import change, closed, ledger_list, opened, pos

IDS = (2, 4, 5)
OPEN_ID = 7
COUNTS = (0, 1, 3)
GRID = [
    EARLIEST,
    LATEST,
    *(Position(ledger_id, entry_id) for ledger_id in range(1, 9) for entry_id in range(-1, 5)),
]


@dataclass
class Model:
    """The rules of positions, implemented over a plain list of all entries."""

    counts: dict[int, int]
    open_id: int | None
    lac: Position

    @property
    def entries(self) -> list[Position]:
        return [Position(id_, e) for id_, count in self.counts.items() for e in range(count)]

    def is_valid(self, p: Position) -> bool:
        if p.ledger_id not in self.counts or p.entry_id < 0:
            return False
        if p.ledger_id == self.open_id:
            in_it = self.lac.ledger_id == self.open_id
            return p.entry_id == 0 or (in_it and p.entry_id <= self.lac.entry_id + 1)
        if p.ledger_id == self.lac.ledger_id:
            return p.entry_id <= self.lac.entry_id
        return p.entry_id < self.counts[p.ledger_id]

    def next_valid(self, p: Position) -> Position:
        candidate = Position(p.ledger_id, p.entry_id + 1 if p.entry_id >= 0 else 0)
        while not self.is_valid(candidate):
            later = [id_ for id_ in self.counts if id_ > candidate.ledger_id]
            if not later:
                if self.open_id is not None and self.counts[self.open_id] == 0:
                    return Position(self.open_id, 0)
                return Position(self.lac.ledger_id, self.lac.entry_id + 1)
            candidate = Position(min(later), 0)
        return candidate

    def previous(self, p: Position) -> Position:
        if p.entry_id > 0:
            return Position(p.ledger_id, p.entry_id - 1)
        earlier = [id_ for id_ in self.counts if id_ < p.ledger_id]
        if not earlier:
            return Position(p.ledger_id, -1)
        last = [entry for entry in self.entries if entry.ledger_id < p.ledger_id]
        return last[-1] if last else Position(earlier[0], -1)

    def progress_of(self, p: Position) -> int:
        return sum(entry <= p for entry in self.entries)

    def first_position(self) -> Position:
        if not self.counts or min(self.counts) > self.lac.ledger_id:
            return Position(self.lac.ledger_id, -1)
        return Position(min(self.counts), -1)


def cases(counts_of_each: Sequence[int] = COUNTS) -> Iterator[tuple[LedgerListState, Model]]:
    """Make all lists of up to four ledgers, open or terminated, whole or trimmed."""
    for counts in (c for n in range(4) for c in product(counts_of_each, repeat=n)):
        records = [closed(id_, count) for id_, count in zip(IDS, counts, strict=False)]
        last = [Position(each.ledger_id, each.entries - 1) for each in records if each.entries]
        for confirmed in (*counts_of_each, None):
            end = last[-1] if last else Position(OPEN_ID if confirmed is not None else 2, -1)
            if confirmed:
                end = Position(OPEN_ID, confirmed - 1)
            for removed in range(len(records) + 1):
                yield trimmed(records, confirmed, end, removed)


def trimmed(
    records: list[LedgerRecord], confirmed: int | None, lac: Position, removed: int
) -> tuple[LedgerListState, Model]:
    """Make a list without its first `removed` ledgers; None confirmed: a terminated one."""
    if confirmed is None:
        state = ledger_list(*records, terminated_at=lac)
    else:
        state = ledger_list(*records, opened(OPEN_ID), confirmed=confirmed)
    if removed:
        state.apply(change(state, removed=[record.ledger_id for record in records[:removed]]))
    kept = {record.ledger_id: record.entries for record in records[removed:]}
    if confirmed is None:
        return state, Model(kept, None, lac)
    return state, Model({**kept, OPEN_ID: confirmed}, OPEN_ID, lac)


def test_positions_are_as_the_rules_say_in_every_small_list() -> None:
    for state, model in cases(range(4)):
        assert model.lac == state.lac
        assert model.first_position() == state.first_position
        for p in GRID:
            assert model.is_valid(p) == state.is_valid(p), (p, model)
            assert model.next_valid(p) == state.next_valid(p), (p, model)
            assert model.previous(p) == state.previous(p), (p, model)
            assert (p <= model.lac) == state.has_entries_from(p), (p, model)
            assert model.progress_of(p) == state.progress_of(p), (p, model)


def test_positions_without_entries_between_them_are_the_same_progress() -> None:
    """The last entry of a ledger and the start of the next one are different positions."""
    state = ledger_list(closed(2, 3), closed(4, 1), opened(7), confirmed=2)
    order = ["2:-1", "2:0", "2:1", "2:2 2:9 3:5 4:-1", "4:0 5:0 7:-1", "7:0", "7:1 7:9 8:0"]
    positions = [[pos(text) for text in same.split()] for same in order]
    found = [{state.progress_of(position) for position in same} for same in positions]
    assert [{progress} for progress in range(7)] == found


def test_reads_are_placed_at_the_first_existing_entry() -> None:
    for state, model in cases():
        for p in GRID:
            expected = min((entry for entry in model.entries if entry >= p), default=None)
            assert expected == state.first_readable(p), (p, model)


def test_counts_equal_a_linear_count() -> None:
    for state, model in cases():
        entries = model.entries
        assert len(entries) == state.total_entries
        assert entries == [state.locate(index) for index in range(len(entries))]
        for start, end in product(GRID[::2], GRID[::3]):
            expected = sum(start <= entry <= end for entry in entries)
            assert expected == state.number_of_entries(start, end), (start, end, model)


def test_sizes_add_up() -> None:
    for state, model in cases():
        assert 10 * len(model.entries) == state.total_size
        assert state.total_size == sum(info.size for info in state.infos())
        for p in GRID:
            # Entries of one ledger have one size here, so that the estimate is exact.
            expected = 10 * sum(entry >= p for entry in model.entries)
            assert expected == state.estimated_backlog_bytes(p), (p, model)


def test_backlog_is_estimated_by_the_average_of_the_ledger() -> None:
    state = ledger_list(closed(1, 4, size=100), closed(2, 3, size=10), opened(3), confirmed=2)
    assert [130, 105, 80, 55, 30, 30] == [
        state.estimated_backlog_bytes(Position(1, entry_id)) for entry_id in range(6)
    ]
    assert 27 == state.estimated_backlog_bytes(pos("2:1"))


def test_infos_have_the_confirmed_counts_of_the_open_ledger() -> None:
    state = ledger_list(closed(4, 2, size=7, closed_ms=99), opened(5), confirmed=3)
    assert (
        LedgerInfo(ledger_id=4, entries=2, size=7, closed_ms=99),
        LedgerInfo(ledger_id=5, entries=3, size=30, closed_ms=None),
    ) == state.infos()


def test_rollover_closes_one_ledger_and_opens_the_next() -> None:
    state = ledger_list(opened(1), confirmed=2)
    state.apply(change(state, put=[closed(1, 2, size=20, closed_ms=5), opened(3)]))
    assert ((1, 3), 3, pos("1:1")) == (state.ledger_ids, state.open_id, state.lac)
    state.advance(pos("3:0"), 10)
    assert (3, 30) == (state.total_entries, state.total_size)


def test_lac_stays_when_its_ledger_is_deleted() -> None:
    state = ledger_list(closed(1, 2), opened(2))
    state.apply(change(state, removed=[1]))
    assert pos("1:1") == state.lac
    assert pos("1:-1") == state.first_position
    assert None is state.first_readable(EARLIEST)
    assert state.has_entries_from(pos("1:1"))


def test_termination_leaves_nothing_open() -> None:
    state = ledger_list(closed(1, 2), opened(2))
    state.apply(change(state, removed=[2], terminated_at=pos("1:1")))
    assert state.is_terminated
    assert None is state.open_id
    assert pos("1:2") == state.next_valid(pos("1:1"))


def test_a_change_of_the_wrong_version_is_a_fault() -> None:
    """Metadata is compare-and-set: a version is applied once and none is left out."""
    state = ledger_list(opened(1))
    stale = change(state)
    state.apply(stale)
    with pytest.raises(AssertionError, match="version 2 after 2"):
        state.apply(stale)
    with pytest.raises(AssertionError):
        state.apply(replace(stale, head=replace(stale.head, version=4)))


def test_closing_with_another_count_than_confirmed_is_a_fault() -> None:
    state = ledger_list(opened(1), confirmed=2)
    with pytest.raises(AssertionError, match="closed with 3 entries, 2 are confirmed"):
        state.apply(change(state, put=[closed(1, 3), opened(2)]))


def test_an_open_ledger_in_the_middle_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="open but not last"):
        LedgerListState(ManagedLedgerRecord(managed_ledger_id=1), [opened(1), opened(2)])


def test_the_description_follows_every_change() -> None:
    """What is closed is described once, and anew when the list has changed."""
    state = ledger_list(closed(2, 3), opened(4), confirmed=1)
    assert [(2, 3), (4, 1)] == [(each.ledger_id, each.entries) for each in state.infos()]
    state.advance(Position(4, 1), 20)
    assert [(2, 3), (4, 2)] == [(each.ledger_id, each.entries) for each in state.infos()]
    state.apply(change(state, put=[closed(4, 2), opened(5)]))
    assert [1, 1, None] == [each.closed_ms for each in state.infos()]
    state.apply(change(state, removed=[2]))
    assert [4, 5] == [each.ledger_id for each in state.infos()]
