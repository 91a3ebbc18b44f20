"""The cursorless read, rule by rule (PIP-480), from memory and from the storage."""

import asyncio
from itertools import product
from pathlib import Path

import pytest

from kledger.ledger import (
    EARLIEST,
    LATEST,
    Corrupt,
    Fenced,
    InvalidArgument,
    InvalidPosition,
    LedgerStore,
    ManagedLedger,
    NonRecoverable,
    Position,
    StorageFailed,
    StoreConfig,
)
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import EntryCorrupt, EntryMissing
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.ledger_reader import STEP_ENTRIES_MAX
from kledger.ledger.reads.entry_cache import OBJECT_BYTES
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import COLD, SMALL, OpenStore, datas, numbers, pos, written


class NothingResident(LogRocksdbEngine):
    """An engine whose page cache is empty."""

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> None:
        """Never."""


class EverythingResident(LogRocksdbEngine):
    """An engine whose page cache loses nothing."""

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Always."""
        return self.read(ledger_id, first_entry, last_entry, bytes_max)


# 1. Argument errors; the state comes first


@pytest.mark.parametrize(
    ("start", "count", "max_position"),
    [
        (None, 1, LATEST),
        (EARLIEST, 0, LATEST),
        (EARLIEST, -3, LATEST),
        (EARLIEST, 1, None),
        ("1:1", 1, LATEST),
    ],
)
async def test_bad_arguments_are_refused(
    ten: tuple[ManagedLedger, list[Position]], start: Position, count: int, max_position: Position
) -> None:
    ml, _ = ten
    with pytest.raises(InvalidArgument):
        await ml.read_entries(start, count, max_position)
    with pytest.raises(InvalidArgument):
        ml.read_cached(start, count, None, max_position)


async def test_a_closed_handle_raises_fenced_before_it_checks_arguments(
    ten: tuple[ManagedLedger, list[Position]],
) -> None:
    ml, _ = ten
    await ml.close()
    with pytest.raises(Fenced) as caught:
        await ml.read_entries(None, 0, None)  # type: ignore[arg-type]
    assert Fenced is type(caught.value)
    with pytest.raises(Fenced):
        ml.read_cached(EARLIEST, 1)


async def test_a_fenced_handle_raises_fenced(open_store: OpenStore) -> None:
    store = await open_store()
    ml, _ = await written(store, 3)
    await store.open_managed_ledger("orders")
    with pytest.raises(Fenced):
        await ml.read_entries(EARLIEST, 1)
    with pytest.raises(Fenced):
        await ml.read_entry(EARLIEST)


# 2 and 3. Where a read begins and ends


async def test_every_start_count_and_end_reads_what_a_list_would(
    ten: tuple[ManagedLedger, list[Position]],
) -> None:
    ml, positions = ten
    first, last = positions[0].ledger_id, positions[-1].ledger_id
    starts = [EARLIEST, LATEST]
    starts += [Position(id_, e) for id_ in range(first - 1, last + 2) for e in range(-1, 6)]
    pairs = list(zip(positions, numbers(0, 9), strict=True))
    for start, end, count in product(starts, starts, (1, 3, 5, 100)):
        at = min((p for p in positions if p >= start), default=None)
        expected = [] if at is None or end < at else [d for p, d in pairs if at <= p <= end]
        found = await ml.read_entries(start, count, end)
        assert expected[:count] == datas(found), (start, end, count)
        cached = ml.read_cached(start, count, None, end)
        assert cached is None or cached == found


async def test_a_range_is_read_in_chunks(ten: tuple[ManagedLedger, list[Position]]) -> None:
    ml, positions = ten
    for first, last, count in product((0, 3, 9), (0, 5, 9), (1, 4, 100)):
        chunks = [
            chunk
            async for chunk in ml.read_in_chunks(
                positions[first], positions[last], count=count, bytes_max=1 << 20
            )
        ]
        found = [entry for chunk in chunks for entry in chunk]
        assert numbers(0, 9)[first : last + 1] == datas(found)
        assert all(1 <= len(chunk) <= count for chunk in chunks)
    one_by_one = ml.read_in_chunks(EARLIEST, count=100, bytes_max=1)
    assert [[each] for each in numbers(0, 9)] == [datas(chunk) async for chunk in one_by_one]


async def test_entries_carry_their_positions(ten: tuple[ManagedLedger, list[Position]]) -> None:
    ml, positions = ten
    assert positions == [entry.position for entry in await ml.read_entries(EARLIEST, 100)]


# 4. Crosses ledgers; bounded by the last confirmed entry


async def test_entries_that_are_not_confirmed_are_not_read(open_store: OpenStore) -> None:
    """The current ledger is bounded by the last confirmed entry, not by the storage's own."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine)
    ml, positions = await written(store, 2)
    hold = engine.hold_next("sync")
    adding = asyncio.ensure_future(ml.add_entry(b"2"))
    await hold.reached()
    assert positions[-1] == ml.last_confirmed_entry
    assert numbers(0, 1) == datas(await ml.read_entries(EARLIEST, 10))
    hold.release()
    await adding
    assert numbers(0, 2) == datas(await ml.read_entries(EARLIEST, 10))


async def test_vanished_ledgers_are_skipped(ten: tuple[ManagedLedger, list[Position]]) -> None:
    ml, positions = ten
    await ml.trim_before(positions[4])
    assert numbers(4, 9) == datas(await ml.read_entries(positions[1], 100))
    assert numbers(4, 9) == datas(await ml.read_entries(EARLIEST, 100))


async def test_a_read_of_nothing_but_an_empty_ledger_ends() -> None:
    """Reading an empty current ledger looped for ever upstream (#8284)."""
    async with LedgerStore.open(None) as store:
        ml = await store.open_managed_ledger("orders")
        assert [] == await ml.read_entries(EARLIEST, 10)
        await ml.add_entry(b"x")
        await ml.roll_over()
        await ml.truncate()
        assert [] == await ml.read_entries(EARLIEST, 10)


async def test_a_ledger_trimmed_while_it_is_read_is_skipped(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    ml, positions = await written(await open_store(engine=engine, config=COLD), 10)
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(ml.read_entries(positions[1], 100))
    await hold.reached()
    await ml.trim_before(positions[4])
    hold.release()
    assert numbers(4, 9) == datas(await reading)


@pytest.mark.parametrize("search", [False, True])
async def test_an_entry_deleted_while_it_is_read_is_missing_and_not_damaged(
    open_store: OpenStore, *, search: bool
) -> None:
    """Regression: a search skipped the entry as damaged, and returned one of a deleted log."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=COLD)
    ml, positions = await written(store, 1)
    hold = engine.hold_next("read")
    look = ml.find_newest_matching(lambda entry: True) if search else ml.read_entry(positions[0])
    reading = asyncio.ensure_future(look)
    await hold.reached()
    await store.delete_managed_ledger("orders")
    hold.release()
    with pytest.raises(Fenced):
        await reading


async def test_an_entry_trimmed_while_it_is_read_is_at_no_valid_position(
    open_store: OpenStore,
) -> None:
    engine = FaultyEngine(None)
    ml, positions = await written(await open_store(engine=engine, config=COLD), 10)
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(ml.read_entry(positions[1]))
    await hold.reached()
    await ml.trim_before(positions[4])
    hold.release()
    with pytest.raises(InvalidPosition):
        await reading


# 5. Bounded work


async def test_a_byte_limit_ends_the_read_but_not_before_the_first(
    open_store: OpenStore,
) -> None:
    for config in (StoreConfig(), COLD):
        store = await open_store(config=config)
        ml = await store.open_managed_ledger("sizes", config=SMALL)
        for size in (10, 10, 10, 10, 30, 10):
            await ml.add_entry(bytes(size))
        for limit, expected in ((1, 1), (10, 1), (29, 2), (40, 4), (41, 4), (70, 5), (80, 6)):
            assert expected == len(await ml.read_entries(EARLIEST, 9, bytes_max=limit)), limit
            cached = ml.read_cached(EARLIEST, 9, limit)
            assert cached is None or expected == len(cached)


async def test_a_long_read_from_memory_is_whole(open_store: OpenStore) -> None:
    store = await open_store()
    ml = await store.open_managed_ledger("orders")
    count = 70 * STEP_ENTRIES_MAX
    for _ in range(count):
        ml.append_nowait(b"x", 1, 1, lambda position, error: None)
    await store.flush()
    assert count == len(await ml.read_entries(EARLIEST, count + 1))
    assert count == len(ml.read_cached(EARLIEST, count + 1) or [])


# 6. Failures


async def test_a_failure_before_any_entry_is_an_error(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    ml, positions = await written(await open_store(engine=engine, config=COLD), 10)
    for error, expected in (
        (EntryMissing(1, 2), NonRecoverable),
        (EntryCorrupt(1, 2, "checksum"), Corrupt),
        (OSError("input/output error"), StorageFailed),
    ):
        engine.fail_next("read", error)
        with pytest.raises(expected):
            await ml.read_entries(positions[0], 10)
    assert numbers(0, 9) == datas(await ml.read_entries(positions[0], 10))


async def test_a_failure_after_the_first_entry_returns_the_entries_before_it(
    open_store: OpenStore,
) -> None:
    engine = FaultyEngine(None)
    ml, positions = await written(await open_store(engine=engine, config=COLD), 10)
    hold = engine.hold_next("read")
    engine.fail_next("read", EntryCorrupt(1, 2, "checksum"))
    reading = asyncio.ensure_future(ml.read_entries(positions[1], 10))
    await hold.reached()
    hold.release()
    assert numbers(1, 3) == datas(await reading)


async def test_fencing_after_the_first_entry_returns_the_entries_before_it(
    open_store: OpenStore,
) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=COLD)
    ml, positions = await written(store, 10)
    first, second = engine.hold_next("read"), engine.hold_next("read")
    reading = asyncio.ensure_future(ml.read_entries(positions[0], 10))
    await first.reached()
    first.release()
    await second.reached()
    await store.open_managed_ledger("orders")
    second.release()
    assert numbers(0, 3) == datas(await reading)


async def test_fencing_during_the_first_read_is_an_error(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=COLD)
    ml, positions = await written(store, 10)
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(ml.read_entries(positions[0], 10))
    await hold.reached()
    await store.open_managed_ledger("orders")
    hold.release()
    with pytest.raises(Fenced):
        await reading


# Memory and storage together


async def test_a_partial_hit_reads_only_what_is_missing(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    four = 4 * (10 + OBJECT_BYTES)
    store = await open_store(engine=engine, config=StoreConfig(cache_bytes=four))
    ml = await store.open_managed_ledger("orders")
    for number in range(8):
        await ml.add_entry(b"%010d" % number)
    assert four == store.cached_bytes
    assert None is ml.read_cached(EARLIEST, 8)
    found = await ml.read_entries(EARLIEST, 8)
    assert [b"%010d" % number for number in range(8)] == datas(found)
    assert 1 == engine.calls["read"]
    tail = ml.read_cached(found[4].position, 8)
    assert tail == found[4:]
    assert four == store.cached_bytes, "a cold read does not fill the cache"


@pytest.mark.parametrize("cache_bytes", [0, 4 * (10 + OBJECT_BYTES)])
async def test_what_needs_no_disk_is_read_as_by_a_task(
    open_store: OpenStore, cache_bytes: int
) -> None:
    """Over the ends of ledgers, from the page cache into the entry cache, within every limit."""
    store = await open_store(engine=MemoryEngine(), config=StoreConfig(cache_bytes=cache_bytes))
    ml = await store.open_managed_ledger("orders", config=SMALL)
    positions = [await ml.add_entry(b"%010d" % number) for number in range(10)]
    for start, count, bytes_max in product((EARLIEST, *positions), (1, 3, 10), (1, 25, 60, 1000)):
        expected = await ml.read_entries(start, count, bytes_max=bytes_max)
        assert expected == ml.read_resident(start, count, bytes_max)
    assert [] == ml.read_resident(LATEST, 1, 1000)


async def test_what_needs_a_disk_is_left_to_a_task(open_store: OpenStore, tmp_path: Path) -> None:
    four = StoreConfig(cache_bytes=4 * (10 + OBJECT_BYTES))
    store = await open_store(engine=NothingResident(tmp_path), config=four)
    ml = await store.open_managed_ledger("orders", config=SMALL)
    positions = [await ml.add_entry(b"%010d" % number) for number in range(8)]
    assert [] == ml.read_resident(EARLIEST, 8, 1000)
    assert positions[4:] == [entry.position for entry in ml.read_resident(positions[4], 8, 1000)]


async def test_a_damaged_resident_entry_is_left_to_the_read_that_raises(
    open_store: OpenStore,
) -> None:
    class Damaged(MemoryEngine):
        def read_resident(self, *_: int) -> None:
            raise EntryCorrupt(1, 0, "planted")

    ml, positions = await written(await open_store(engine=Damaged(), config=COLD), 2)
    assert [] == ml.read_resident(positions[0], 2, 1000)
    with pytest.raises(Corrupt):
        await ml.read_entries(positions[0], 2)


async def test_the_tail_never_touches_the_storage(open_store: OpenStore) -> None:
    engine = FaultyEngine(None)
    ml, positions = await written(await open_store(engine=engine), 10)
    assert numbers(2, 9) == datas(ml.read_cached(positions[2], 100) or [])
    assert numbers(0, 9) == datas(await ml.read_entries(EARLIEST, 100))
    assert b"7" == (await ml.read_entry(positions[7])).data
    assert 0 == engine.calls["read"]


async def test_a_limited_read_asks_the_storage_once(open_store: OpenStore) -> None:
    """What does not fit any more was read too, and thrown away: every fetch cost two reads."""
    engine = FaultyEngine(None)
    store = await open_store(engine=engine, config=COLD)
    ml = await store.open_managed_ledger("orders")
    for number in range(8):
        await ml.add_entry(b"%010d" % number)
    assert 2 == len(await ml.read_entries(EARLIEST, 8, bytes_max=25))
    assert 1 == engine.calls["read"]


async def test_only_a_disk_is_read_ahead(open_store: OpenStore, tmp_path: Path) -> None:
    """A test that holds and counts reads of an engine sees only those of its callers."""
    for engine in (None, FaultyEngine(None), FaultyEngine(tmp_path / "faulty")):
        store = await open_store(engine=engine, config=COLD)
        assert 0 == await read_in_advance(store)
    for make, ahead_bytes in ((EverythingResident, 0), (NothingResident, 25)):
        disk = make(tmp_path / make.__name__)
        async with LedgerStore.open(None, engine=disk, config=COLD) as store:
            assert ahead_bytes == await read_in_advance(store)
        disk.close()


async def read_in_advance(store: LedgerStore) -> int:
    """Return how many bytes are read ahead for a sequential reader."""
    ml = await store.open_managed_ledger("orders")
    for number in range(8):
        await ml.add_entry(b"%010d" % number)
    first = await ml.read_entries(EARLIEST, 8, bytes_max=25)
    second = await ml.read_entries(first[-1].position.successor, 8, bytes_max=25)
    assert [b"%010d" % number for number in range(4)] == datas([*first, *second])
    return store._services.cold_reads.ahead_bytes


# read_entry


async def test_read_entry_reads_exactly_one(ten: tuple[ManagedLedger, list[Position]]) -> None:
    ml, positions = ten
    for position, data in zip(positions, numbers(0, 9), strict=True):
        entry = await ml.read_entry(position)
        assert (position, data) == (entry.position, entry.data)
    beyond = ml.last_confirmed_entry.successor
    for missing in (EARLIEST, LATEST, beyond, Position(positions[0].ledger_id, 4), pos("99:0")):
        with pytest.raises(InvalidPosition):
            await ml.read_entry(missing)
    with pytest.raises(InvalidArgument):
        await ml.read_entry("1:1")  # type: ignore[arg-type]
