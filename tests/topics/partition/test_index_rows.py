"""Rows of intervals, found by halving, against a list of them."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import LedgerStore
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import records
from kledger.topics.partition.index_rows import WALK_ROWS, IndexRows
from kledger.topics.partition.offset_index import Interval
from tests.topics.words import CountingEngine

KEYS = PartitionKeys(UUID(int=7), 3)
OTHERS = (KEYS.interval(4, 0), KEYS.interval(6, 0), PartitionKeys(UUID(int=7), 4).interval(5, 1))


def intervals(lengths: Sequence[int]) -> list[Interval]:
    """Intervals of so many entries, one offset an entry."""
    found, first = [], 0
    for length in lengths:
        end = first + length
        found.append(Interval(first, end, first, end, end, end))
        first = end
    return found


async def stored(store: LedgerStore, kept: Sequence[Interval]) -> IndexRows:
    row = records.encode_interval(Interval(0, 1, 1 << 40, 1 << 41, 0, 0))
    await store.put_rows([(key, row) for key in OTHERS])
    await store.put_rows(
        [(KEYS.interval(5, each.first_entry), records.encode_interval(each)) for each in kept]
    )
    return IndexRows(store, KEYS)


def begins_by(offset: int, row: Interval) -> bool:
    return row.first_offset <= offset


@given(st.lists(st.integers(1, 5), max_size=20), st.sets(st.integers(0, 19)), st.integers(0, 60))
def test_halving_finds_what_a_scan_finds(lengths: list[int], lost: set[int], place: int) -> None:
    """Also where rows are missing in between."""
    every = intervals(lengths)
    kept = [each for index, each in enumerate(every) if index not in lost]

    async def check() -> None:
        async with LedgerStore.open(None) as store:
            rows = await stored(store, kept)
            found = await rows.around(5, sum(lengths), partial(begins_by, place))
            before = max((each for each in kept if each.first_offset <= place), default=None)
            behind = min((each for each in kept if each.first_offset > place), default=None)
            assert (before, behind) == found
            assert before == rows.last_from(5, place)
            walked = [row async for row in rows.walk(5, place)]
            assert [each for each in kept if each.first_entry >= place] == walked

    asyncio.run(check())


@pytest.mark.parametrize("count", [1, 10, 1000])
async def test_one_row_a_step_and_a_step_for_every_doubling(count: int) -> None:
    engine = CountingEngine()
    async with LedgerStore.open(None, engine=engine) as store:
        rows = await stored(store, intervals([100] * count))
        end = 100 * count
        for place in range(0, end, end // 7):
            engine.rows_touched = 0
            await rows.around(5, end, partial(begins_by, place))
            assert engine.rows_touched <= end.bit_length() + 1


async def test_rows_are_never_read_on_the_loop() -> None:
    """They may have to come from a disk."""
    engine = CountingEngine()
    async with LedgerStore.open(None, engine=engine) as store:
        rows = await stored(store, intervals([1] * 40))
        engine.scanned_in.clear()
        await rows.around(5, 40, partial(begins_by, 20))
        assert 40 == len([row async for row in rows.walk(5, 0)])
        assert engine.scanned_in
        assert threading.main_thread() not in engine.scanned_in


async def test_a_walk_fetches_a_few_rows_at_a_time() -> None:
    engine = CountingEngine()
    async with LedgerStore.open(None, engine=engine) as store:
        rows = await stored(store, intervals([1] * 100))
        engine.rows_touched = 0
        walk = rows.walk(5, 10)
        assert 10 == (await anext(walk)).first_entry
        assert engine.rows_touched == WALK_ROWS
        assert list(range(11, 100)) == [each.first_entry async for each in walk]
