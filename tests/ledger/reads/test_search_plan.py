"""Searches over numbers, against a scan of them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.metadata.ledger_list_state import LedgerInfo
from kledger.ledger.reads.search_plan import EntryNumbers, NewestSearch
from tests.ledger.words import pos


def searched(search: NewestSearch, is_match: Callable[[int], bool], damaged: set[int]) -> list[int]:
    """Answer probes until the search ends; return the probes."""
    probes = []
    while search.probe is not None:
        probes.append(search.probe)
        if search.probe in damaged:
            search.skip(search.probe + 1)
        else:
            search.answer(is_match=is_match(search.probe))
    return probes


@given(st.integers(0, 300), st.integers(-1, 301), st.sets(st.integers(0, 299)))
def test_the_answer_is_that_of_a_scan(count: int, newest: int, damaged: set[int]) -> None:
    search = NewestSearch(count)
    probes = searched(search, lambda number: number <= newest, damaged)
    readable = [number for number in range(min(count, newest + 1)) if number not in damaged]
    assert max(readable, default=None) == search.found
    assert len(set(probes)) == len(probes), "nothing is looked at twice"
    looked_at = [number for number in probes if number not in damaged]
    assert len(looked_at) <= count.bit_length() + 2


@given(st.integers(1, 300), st.integers(0, 299), st.integers(0, 299), st.integers(0, 300))
def test_entries_known_to_match_are_not_probed(
    count: int, newest: int, known: int, end: int
) -> None:
    known, newest = min(known, count - 1), min(max(newest, known), count - 1)
    end = min(max(end, newest + 1), count)
    search = NewestSearch(end, known)
    probes = searched(search, lambda number: number <= newest, set())
    assert newest == search.found
    assert all(known < probe < end for probe in probes)
    assert len(probes) <= (end - known).bit_length() + 1


@pytest.mark.parametrize(("newest", "probes"), [(-1, [0]), (9, [0, 9]), (4, [0, 9, 4, 6, 5])])
def test_the_first_entry_is_probed_first_and_the_last_second(
    newest: int, probes: list[int]
) -> None:
    assert probes == searched(NewestSearch(10), lambda number: number <= newest, set())


def info(ledger_id: int, entries: int, closed_ms: int | None) -> LedgerInfo:
    return LedgerInfo(ledger_id=ledger_id, entries=entries, size=1, closed_ms=closed_ms)


INFOS = (info(2, 3, 100), info(4, 0, 150), info(5, 2, 200), info(9, 4, 300), info(11, 1, None))


def test_entries_are_numbered_across_ledgers() -> None:
    numbers = EntryNumbers(INFOS)
    positions = ["2:0", "2:1", "2:2", "5:0", "5:1", "9:0", "9:1", "9:2", "9:3", "11:0"]
    assert len(positions) == len(numbers)
    assert [pos(each) for each in positions] == [numbers.position(n) for n in range(10)]
    for number, position in enumerate(positions):
        assert number == numbers.first_from(pos(position))
    places = {"1:5": 0, "2:-1": 0, "2:3": 3, "4:-1": 3, "5:7": 5, "11:1": 10, "12:-1": 10}
    assert places == {place: numbers.first_from(pos(place)) for place in places}
    assert 0 == len(EntryNumbers(()))


@pytest.mark.parametrize(
    ("timestamp", "skew", "expected"),
    [
        (50, 0, (-1, 3)),
        (100, 0, (-1, 3)),
        (101, 0, (2, 5)),
        (101, 1, (-1, 5)),
        (110, 5, (2, 5)),
        (195, 5, (2, 5)),
        (196, 5, (2, 9)),
        (250, 60, (2, 10)),
        (301, 0, (8, 10)),
        (500, 0, (8, 10)),
        (500, 10_000, (-1, 10)),
    ],
)
def test_ledgers_closed_well_before_or_after_a_time_are_left_out(
    timestamp: int, skew: int, expected: tuple[int, int]
) -> None:
    """Closing at the very time, give or take the skew, leaves a ledger in."""
    assert expected == EntryNumbers(INFOS).around_time(timestamp, skew)


@given(st.data(), st.integers(0, 20))
def test_narrowing_by_time_changes_no_answer(data: st.DataObject, skew: int) -> None:
    """Entries get times by a clock that is off by up to the skew, ledgers by the right one."""
    infos: list[LedgerInfo] = []
    times: list[int] = []
    now = 100
    for ledger_id in range(data.draw(st.integers(0, 5))):
        count = data.draw(st.integers(0, 6))
        for _ in range(count):
            now += data.draw(st.integers(0, 9))
            shifted = now + data.draw(st.integers(-skew, skew))
            times.append(max(shifted, times[-1]) if times else shifted)
        now += data.draw(st.integers(0, 9))
        infos.append(info(ledger_id, count, now))
    timestamp = data.draw(st.integers(60, 300))
    known, end = EntryNumbers(infos).around_time(timestamp, skew)
    search = NewestSearch(end, known)
    searched(search, lambda number: times[number] < timestamp, set())
    expected = max((n for n, time in enumerate(times) if time < timestamp), default=None)
    assert expected == search.found
