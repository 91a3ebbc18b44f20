"""Searching for entries, from memory and from the storage, against linear scans."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import (
    Entry,
    Fenced,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StorageFailed,
)
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import EntryCorrupt
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import COLD, OpenStore, written


def at_most(number: int) -> Callable[[Entry], bool]:
    return lambda entry: int(entry.data) <= number


def time_of(entry: Entry) -> int:
    return int(entry.data)


async def test_find_newest_equals_a_linear_scan(
    ten: tuple[ManagedLedger, list[Position]],
) -> None:
    ml, positions = ten
    for newest in range(-1, 12):
        expected = positions[min(newest, 9)] if newest >= 0 else None
        assert expected == await ml.find_newest_matching(at_most(newest)), newest


async def test_find_newest_in_a_trimmed_log(ten: tuple[ManagedLedger, list[Position]]) -> None:
    ml, positions = ten
    await ml.trim_before(positions[8])
    assert positions[8] == await ml.find_newest_matching(at_most(8))
    assert None is await ml.find_newest_matching(at_most(3))


async def test_find_newest_in_an_empty_log(open_store: OpenStore) -> None:
    ml = await (await open_store()).open_managed_ledger("orders")
    assert None is await ml.find_newest_matching(lambda entry: True)


async def test_find_newest_skips_what_cannot_be_read(open_store: OpenStore) -> None:
    """Whichever of the reads fail, the answer is a readable entry that matches, or none."""
    engine = FaultyEngine(None)
    ml, positions = await written(await open_store(engine=engine, config=COLD), 10)
    for failing in range(6):
        for _ in range(failing):
            engine.fail_next("read", EntryCorrupt(1, 1, "checksum"))
        found = await ml.find_newest_matching(at_most(6))
        assert found is not None
        assert found in positions[failing:7]
    for _ in range(10):
        engine.fail_next("read", EntryCorrupt(1, 1, "checksum"))
    assert None is await ml.find_newest_matching(lambda entry: True)


async def test_a_storage_that_fails_ends_the_search(open_store: OpenStore) -> None:
    """Regression: it was taken for damage, and the result was an older entry, or none."""
    engine = FaultyEngine(None)
    ml, positions = await written(await open_store(engine=engine, config=COLD), 10)
    for healthy in range(4):
        for _ in range(healthy):
            engine.delay_next("read", 0)
        engine.fail_next("read", OSError(5, "input/output error"))
        with pytest.raises(StorageFailed):
            await ml.find_newest_matching(at_most(6))
    assert positions[6] == await ml.find_newest_matching(at_most(6))


async def test_a_closed_ledger_is_not_searched(open_store: OpenStore) -> None:
    ml = await (await open_store()).open_managed_ledger("orders")
    await ml.close()
    with pytest.raises(Fenced):
        await ml.find_newest_matching(lambda entry: True)
    with pytest.raises(Fenced):
        await ml.find_newest_before(5, time_of)


@given(
    counts=st.lists(st.integers(0, 9), max_size=6),
    newest=st.integers(-1, 60),
    trimmed=st.integers(0, 30),
    damaged=st.sets(st.integers(0, 53), max_size=8),
)
def test_any_log_is_searched_as_a_scan_would(
    counts: list[int], newest: int, trimmed: int, damaged: set[int]
) -> None:
    """Rolled, trimmed, damaged; with the reads counted."""

    async def check() -> None:
        engine = DamagedEngine()
        async with LedgerStore.open(None, engine=engine, config=COLD) as store:
            ml = await store.open_managed_ledger("orders")
            positions: list[Position] = []
            for count in counts:
                for _ in range(count):
                    positions.append(await ml.add_entry(b"%d" % len(positions)))
                await ml.roll_over()
            if trimmed < len(positions):
                await ml.trim_before(positions[trimmed])
            ids = {info.ledger_id for info in ml.ledgers}
            engine.damaged = {positions[n] for n in damaged if n < len(positions)}
            found = await ml.find_newest_matching(at_most(newest))
            kept = [p for p in positions[: newest + 1] if p.ledger_id in ids]
            assert max((p for p in kept if p not in engine.damaged), default=None) == found
            total = ml.number_of_entries(Position(0, 0), ml.last_confirmed_entry)
            assert engine.reads <= total.bit_length() + 2 + len(engine.damaged)

    asyncio.run(check())


class DamagedEngine(MemoryEngine):
    """Some entries cannot be read; reads are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged: set[Position] = set()
        self.reads = 0

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        self.reads += 1
        if (ledger_id, first_entry) in self.damaged:
            raise EntryCorrupt(ledger_id, first_entry, "checksum")
        return super().read(ledger_id, first_entry, last_entry, bytes_max)


@pytest.mark.parametrize("count", [10, 1000, 20_000])
async def test_reads_grow_with_the_logarithm(count: int, open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    config = ManagedLedgerConfig(max_entries_per_ledger=300)
    ml, positions = await written(await open_store(engine=engine, config=COLD), count, config)
    for newest in (0, 1, count // 3, count - 2, count - 1):
        before = engine.calls["read"]
        assert positions[newest] == await ml.find_newest_matching(at_most(newest))
        assert engine.calls["read"] - before <= count.bit_length() + 2


async def test_a_search_continues_after_a_trim(open_store: OpenStore) -> None:
    """Thousands of trimmed entries are skipped in one step, without reading."""
    engine = FaultyEngine(None)
    config = ManagedLedgerConfig(max_entries_per_ledger=100)
    ml, positions = await written(await open_store(engine=engine, config=COLD), 1000, config)
    hold = engine.hold_next("read")
    searching = asyncio.ensure_future(ml.find_newest_matching(at_most(950)))
    await hold.reached()
    await ml.trim_before(positions[900])
    hold.release()
    assert positions[950] == await searching
    assert engine.calls["read"] <= (1000).bit_length() + 2


async def test_newest_before_a_time_is_narrowed_by_closed_ledgers(
    open_store: OpenStore, clock: ManualClock
) -> None:
    """Ledgers of ten entries, one a second; a skew of two seconds leaves one or two of them."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=COLD)
    config = ManagedLedgerConfig(max_entries_per_ledger=10)
    ml = await store.open_managed_ledger("orders", config=config)
    begin, positions = clock.now_ms(), []
    for _ in range(500):
        positions.append(await ml.add_entry(b"%d" % clock.now_ms()))
        clock.advance(1000)
    await store.flush()
    for wanted in (-1, 0, 1, 9, 10, 11, 250, 257, 498, 499):
        timestamp = begin + wanted * 1000 + 1
        before = engine.calls["read"]
        expected = positions[wanted] if wanted >= 0 else None
        assert expected == await ml.find_newest_before(timestamp, time_of, clock_skew_ms=2000)
        assert engine.calls["read"] - before <= (20).bit_length() + 2
        assert expected == await ml.find_newest_before(timestamp, time_of, clock_skew_ms=None)
        assert expected == await ml.find_newest_before(timestamp, time_of)
    before = engine.calls["read"]
    assert positions[-1] == await ml.find_newest_before(begin + 10**9, time_of)
    assert engine.calls["read"] - before <= 2
