"""Deleting frees disk space: at a pace, only after deletions, and harmless when it fails."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kledger.ledger import EARLIEST, LedgerStore, ManagedLedger, ManagedLedgerConfig, StoreConfig
from kledger.ledger.commits.idle_watch import IDLE_MS
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.errors import Fenced, StorageFailed
from kledger.ledger.space_reclaim import (
    CHUNK_BYTES,
    FAULTS_IN_A_ROW_MAX,
    LOOK_DELAY_MS,
    throttled,
)
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import SystemClock
from tests.contained import Contained
from tests.ledger.words import OpenStore, all_of

FILE_BYTES = 200_000
ENTRY_BYTES = 8_000
SEGMENTS = ManagedLedgerConfig(max_entries_per_ledger=5)
BY_HAND = StoreConfig(log_rewrite_bytes_per_second=0)
FAST = StoreConfig(log_rewrite_bytes_per_second=CHUNK_BYTES * 1000)  # a chunk per millisecond


def entry(number: int) -> bytes:
    return (b"%08d" % number) * (ENTRY_BYTES // 8)


def log_bytes(folder: Path) -> int:
    """Return what the sealed files of the log take."""
    size = 0
    for path in sorted((folder / "log").iterdir())[:-1]:
        with suppress(FileNotFoundError):  # a checkpoint took it meanwhile
            size += path.stat().st_size
    return size


@pytest.fixture
def open_store(open_store: OpenStore) -> OpenStore:
    """Stores with one thread in their pool: a call runs after all earlier ones."""
    return partial(open_store, threads=StoreThreads(pool=partial(BlockingPool, 1)))


@pytest.fixture
def on_disk(tmp_path: Path) -> LogRocksdbEngine:
    return LogRocksdbEngine(tmp_path, file_bytes_max=FILE_BYTES, durability="os")


async def fill(store: LedgerStore, *, count: int = 100) -> list[ManagedLedger]:
    """Append to ten managed ledgers alternately, so that every file has some of each."""
    handles = [
        await store.open_managed_ledger(f"ml-{number}", config=SEGMENTS) for number in range(10)
    ]
    for number in range(count):
        await handles[number % 10].add_entry(entry(number))
    return handles


async def delete_most(store: LedgerStore) -> None:
    for number in range(1, 10):
        await store.delete_managed_ledger(f"ml-{number}")


async def reclaim_all(store: LedgerStore) -> int:
    steps = 0
    while await store.reclaim_step() is not None:
        steps += 1
    return steps


async def at_rest(store: LedgerStore) -> None:
    """Wait until the threads have done what they have in hand, however long it takes them."""
    await store.flush()
    await store.run_blocking(int)
    await asyncio.sleep(0)


async def advanced(
    clock: ManualClock, store: LedgerStore, is_done: Callable[[], bool], *, limit_ms: int = 60_000
) -> int:
    """Let time pass, a millisecond at a time, until something holds; returns how much it took."""
    for passed_ms in range(limit_ms):
        if is_done():
            return passed_ms
        clock.advance(1)
        await at_rest(store)
    raise AssertionError("it never happens")


async def test_space_of_deleted_managed_ledgers_is_freed(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine, tmp_path: Path
) -> None:
    store = await open_store(engine=on_disk, config=replace(FAST, durability="os"))
    kept = (await fill(store))[0]
    before, entries = log_bytes(tmp_path), await all_of(kept)
    await delete_most(store)
    await advanced(clock, store, lambda: log_bytes(tmp_path) < before // 4)
    assert entries == await all_of(kept)
    assert [entry(number) for number in range(0, 100, 10)] == entries
    await store.close()
    on_disk.close()


async def test_space_of_trimmed_ledgers_is_freed(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine, tmp_path: Path
) -> None:
    store = await open_store(engine=on_disk, config=replace(FAST, durability="os"))
    handles = await fill(store, count=200)
    before = log_bytes(tmp_path)
    for handle in handles:
        await handle.truncate()
    await advanced(clock, store, lambda: log_bytes(tmp_path) < before // 2)
    await store.close()
    on_disk.close()


async def test_space_left_by_an_earlier_run_is_freed_after_the_start(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine, tmp_path: Path
) -> None:
    store = await open_store(engine=on_disk, config=replace(BY_HAND, durability="os"))
    await fill(store)
    await delete_most(store)
    await store.close()
    before = log_bytes(tmp_path)
    store = await open_store(engine=on_disk, config=replace(FAST, durability="os"))
    await advanced(clock, store, lambda: log_bytes(tmp_path) < before // 4)
    await store.close()
    on_disk.close()


async def test_chunks_keep_the_pace(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine, tmp_path: Path
) -> None:
    """A chunk every 100 ms: all live entries of one of these small files."""
    slow = StoreConfig(durability="os", log_rewrite_bytes_per_second=CHUNK_BYTES * 10)
    store = await open_store(engine=on_disk, config=slow)
    await fill(store)
    await delete_most(store)
    reclaim, moved_bytes, moves_count = store._reclaim, 0, 0
    deleted_ms = clock.monotonic_ms()

    def has_moved_beyond(size: int) -> Callable[[], bool]:
        return lambda: reclaim.moved_bytes > size

    while moves_count < 4:
        await advanced(clock, store, has_moved_beyond(moved_bytes))
        moved_bytes, moves_count = reclaim.moved_bytes, moves_count + 1
    # A chunk is moved some ticks after its time.
    assert clock.monotonic_ms() - deleted_ms >= 3 * 100
    await store.close()
    on_disk.close()


async def test_each_chunk_waits_for_the_pace(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine
) -> None:
    """Whatever the clock does, there are no more chunks than the pace allowed."""
    periods: list[float] = []
    allowed = asyncio.Semaphore(0)

    class ByHand:
        def __init__(self, period_s: float) -> None:
            periods.append(period_s)

        async def acquire(self) -> None:
            await allowed.acquire()

    config = StoreConfig(durability="os", log_rewrite_bytes_per_second=CHUNK_BYTES * 50)
    store = await open_store(engine=on_disk, config=config, start_pace=ByHand)
    await fill(store)
    await delete_most(store)
    reclaim = store._reclaim
    await advanced(clock, store, lambda: clock.monotonic_ms() >= 10 * LOOK_DELAY_MS)
    assert ([0.02], 0) == (periods, reclaim.moved_bytes)
    allowed.release()
    await advanced(clock, store, lambda: reclaim.moved_bytes > 0)
    assert CHUNK_BYTES >= reclaim.moved_bytes
    await store.close()
    on_disk.close()


async def test_the_throttler_spaces_chunks_in_real_time() -> None:
    """The first comes at once, each other a period after the one before."""
    pace, clock = throttled(0.02), SystemClock()
    begun_ms = clock.monotonic_ms()
    for _ in range(4):
        await pace.acquire()
    assert clock.monotonic_ms() - begun_ms >= 3 * 20


async def test_a_log_that_is_half_alive_waits_until_appends_stop(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine
) -> None:
    """Copies would take from producers what they need; a log dead by more is worth it at once."""
    store = await open_store(engine=on_disk, config=replace(FAST, durability="os"))
    handles = await fill(store, count=400)
    reclaim = store._reclaim

    async def appending(for_ms: int) -> None:
        for number in range(0, for_ms, 100):
            await handles[0].add_entry(entry(number))
            for _ in range(10):
                clock.advance(10)
                await at_rest(store)

    for number in range(6, 10):
        await store.delete_managed_ledger(f"ml-{number}")
    await appending(3 * IDLE_MS)
    assert 0 == reclaim.moved_bytes
    assert IDLE_MS <= await advanced(clock, store, lambda: reclaim.moved_bytes > 0) + 10
    await appending(100)
    moved_bytes = reclaim.moved_bytes
    for number in range(1, 6):
        await store.delete_managed_ledger(f"ml-{number}")
    await appending(3 * IDLE_MS)
    assert reclaim.moved_bytes > moved_bytes
    await store.close()
    on_disk.close()


async def test_store_without_deletions_never_searches(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine
) -> None:
    looked = 0

    class Counting(FaultyEngine):
        def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
            nonlocal looked
            looked += 1
            return super().next_moves(dead_share_max=dead_share_max, bytes_max=bytes_max)

    store = await open_store(engine=Counting(on_disk))
    await advanced(clock, store, lambda: looked > 0)
    handle = await store.open_managed_ledger("ml", config=SEGMENTS)
    for number in range(20):
        await handle.add_entry(entry(number))
    for _ in range(100):
        clock.advance(60_000)
        await asyncio.sleep(0)
    assert 1 == looked
    await handle.truncate()
    await advanced(clock, store, lambda: looked > 1)
    await store.close()
    on_disk.close()


async def test_step_by_hand(
    open_store: OpenStore, on_disk: LogRocksdbEngine, tmp_path: Path
) -> None:
    """The way of a simulation: no task, no pace."""
    store = await open_store(engine=on_disk, config=replace(BY_HAND, durability="os"))
    kept = (await fill(store))[0]
    before = log_bytes(tmp_path)
    await delete_most(store)
    assert await reclaim_all(store) > 3
    await store.close()
    on_disk.checkpoint()
    assert log_bytes(tmp_path) < before // 4
    assert kept.total_size == 10 * ENTRY_BYTES
    on_disk.close()


async def test_failed_write_is_no_loss_and_no_end(
    open_store: OpenStore,
    clock: ManualClock,
    on_disk: LogRocksdbEngine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FaultyEngine(on_disk)
    store = await open_store(engine=engine, config=BY_HAND)
    kept = (await fill(store))[0]
    entries, before = await all_of(kept), log_bytes(tmp_path)
    await delete_most(store)
    engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await reclaim_all(store)
    assert entries == await all_of(kept)
    await reclaim_all(store)
    await store.close()
    on_disk.checkpoint()
    assert log_bytes(tmp_path) < before // 4
    on_disk.close()


async def test_failed_write_in_the_background_waits_for_the_next_deletion(
    open_store: OpenStore,
    clock: ManualClock,
    on_disk: LogRocksdbEngine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FaultyEngine(on_disk)
    store = await open_store(engine=engine, config=BY_HAND)
    kept = (await fill(store))[0]
    before, entries = log_bytes(tmp_path), await all_of(kept)
    await delete_most(store)
    await store.close()

    engine.fail_next("commit", OSError(28, "No space left on device"))
    store = await open_store(engine=engine, config=FAST)
    await advanced(clock, store, lambda: "dead space is kept" in caplog.text)
    kept = await store.open_managed_ledger("ml-0", config=SEGMENTS)
    assert entries == await all_of(kept)
    assert log_bytes(tmp_path) >= before
    await store.open_managed_ledger("short-lived")
    await store.delete_managed_ledger("short-lived")
    await advanced(clock, store, lambda: log_bytes(tmp_path) < before // 4)
    assert entries == await all_of(kept)
    await store.close()
    on_disk.close()


async def test_a_fault_waits_for_the_next_deletion_and_many_in_a_row_end_the_work(
    open_store: OpenStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    contained: Contained,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Regression: it restarted at once, so a failing clock made it a busy loop."""
    slept: list[int] = []

    async def fails(delay_ms: int) -> None:
        slept.append(delay_ms)
        raise RuntimeError("injected")

    monkeypatch.setattr(clock, "sleep", fails)
    store = await open_store(engine=FaultyEngine(None), config=FAST)
    for number in range(FAULTS_IN_A_ROW_MAX + 2):
        for _ in range(100):
            await at_rest(store)
        assert min(number + 1, FAULTS_IN_A_ROW_MAX) == len(slept) == len(contained.messages)
        await store.open_managed_ledger("short-lived")
        await store.delete_managed_ledger("short-lived")
    assert "until the store is opened again: 10 faults in a row" in caplog.text


async def test_fenced_store_moves_nothing(open_store: OpenStore, on_disk: LogRocksdbEngine) -> None:
    engine = FaultyEngine(on_disk)
    store = await open_store(engine=engine, config=BY_HAND)
    await fill(store)
    await delete_most(store)
    engine.fail_next("sync")
    with pytest.raises(Fenced):
        await reclaim_all(store)
    with pytest.raises(Fenced):
        await store.reclaim_step()
    await store.close()
    on_disk.close()


async def test_close_waits_for_the_chunk_in_flight(
    open_store: OpenStore, clock: ManualClock, on_disk: LogRocksdbEngine
) -> None:
    engine = FaultyEngine(on_disk)
    store = await open_store(engine=engine, config=BY_HAND)
    kept = (await fill(store))[0]
    entries = await all_of(kept)
    await delete_most(store)
    await store.close()
    store = await open_store(engine=engine, config=FAST)
    hold = engine.hold_next("commit")
    async with asyncio.timeout(60):
        while not hold.is_waiting:
            clock.advance(1)
            await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    hold.release()
    await closing
    store = await open_store(engine=engine, config=BY_HAND)
    again = await store.open_managed_ledger("ml-0", config=SEGMENTS)
    assert entries == [each.data for each in await again.read_entries(EARLIEST, 100)]
    await store.close()
    on_disk.close()


MIB = 1 << 20


@pytest.mark.slow
async def test_nine_tenths_of_128_mib_are_freed_within_a_minute(
    open_store: OpenStore, clock: ManualClock, tmp_path: Path
) -> None:
    """A sixteenth of 2 GiB in files of a sixteenth of their size, by the settings a server has."""
    engine = LogRocksdbEngine(tmp_path, file_bytes_max=16 * MIB, durability="os")
    store = await open_store(engine=engine, config=StoreConfig(durability="os"))
    handles = [await store.open_managed_ledger(f"ml-{number}") for number in range(10)]
    data = bytes(range(256)) * 64
    for number in range(128 * MIB // len(data)):
        await handles[number % 10].add_entry(data)
    live_bytes = handles[0].total_size
    assert 13 * MIB > live_bytes > 12 * MIB
    await delete_most(store)

    def disk_bytes() -> int:
        """Return what all files take; allocated space, as some are sparse."""
        found = 0
        for path in tmp_path.rglob("*"):
            with suppress(FileNotFoundError):
                found += path.stat().st_blocks * 512
        return found

    assert disk_bytes() > 9 * live_bytes
    await advanced(clock, store, lambda: disk_bytes() < 1.3 * live_bytes)
    assert live_bytes >= store._reclaim.moved_bytes > live_bytes // 2
    assert [data] * (live_bytes // len(data)) == await all_of(handles[0])
    await store.close()
    engine.close()


@pytest.mark.parametrize("tick_count", range(8))
async def test_a_store_closes_in_every_tick_of_a_search(
    open_store: OpenStore, clock: ManualClock, tick_count: int
) -> None:
    """Regression: closed during a search, with other appends, it waited for the next search."""
    store = await open_store()
    ml = await store.open_managed_ledger("orders")
    await asyncio.sleep(0)
    await ml.add_entry(b"x")
    clock.advance(LOOK_DELAY_MS)
    for _ in range(tick_count):
        await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), 60)
