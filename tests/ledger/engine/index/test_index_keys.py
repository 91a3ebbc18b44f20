"""Keys sort as their numbers do, and are decoded."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.engine.index import index_keys
from kledger.ledger.engine.index.index_keys import (
    ENTRY_PREFIX,
    EntryLocation,
    entry_key,
    ledger_range,
    location_value,
)
from kledger.ledger.engine.log.recovery_plan import Watermark

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)


@given(u64, u64, u32, u32, u32)
def test_entry_round_trips(ledger: int, entry: int, file: int, position: int, size: int) -> None:
    key = entry_key(ENTRY_PREFIX, ledger, entry)
    found = index_keys.decode_entry(key, location_value(file, position, size))
    assert EntryLocation(entry, file, position, size) == found


@given(st.sets(st.integers(0, 12), min_size=1), st.integers(0, 12))
def test_run_ends_at_the_first_gap(entries: set[int], first: int) -> None:
    rows = [
        (entry_key(ENTRY_PREFIX, 7, entry), location_value(3, 100 * entry, entry))
        for entry in sorted(entries)
        if entry >= first
    ]
    upto = next(entry for entry in range(first, 14) if entry not in entries)
    expected = [EntryLocation(entry, 3, 100 * entry, entry) for entry in range(first, upto)]
    assert expected == index_keys.decode_run(7, first, rows)


@given(st.tuples(u64, u64), st.tuples(u64, u64))
def test_entries_sort_by_ledger_then_entry(left: tuple[int, int], right: tuple[int, int]) -> None:
    keys = [entry_key(ENTRY_PREFIX, *each) for each in (left, right)]
    assert (left < right) == (keys[0] < keys[1])


@given(u64, u64, u64)
def test_range_of_a_ledger_holds_its_entries_only(ledger: int, entry: int, other: int) -> None:
    start, end = ledger_range(ledger)
    key = entry_key(ENTRY_PREFIX, other, entry)
    assert (ledger == other) == (start <= key < end)


@given(u32, u64, u64)
def test_space_round_trips(file: int, ledger: int, size: int) -> None:
    key = index_keys.space_key(file, ledger)
    assert index_keys.SPACE_PREFIX <= key < index_keys.SPACE_END
    assert (file, ledger, size) == index_keys.decode_space(key, index_keys.encode_space(size))


@given(u32, u32, u64)
def test_watermark_round_trips(file: int, position: int, group: int) -> None:
    mark = Watermark(file, position, group)
    assert mark == index_keys.decode_watermark(index_keys.encode_watermark(mark))


def test_kinds_do_not_overlap() -> None:
    kinds = [ENTRY_PREFIX, index_keys.ROW_PREFIX, index_keys.SPACE_PREFIX, index_keys.WATERMARK_KEY]
    assert len(set(kinds)) == len(kinds)
    assert all(1 == len(kind) for kind in kinds)
