"""PIP-480 while the log changes: what a read may return, and that it pins nothing.

`test_ledger_reader.py` has the rules for a log that does not change.
"""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable

import pytest

from kledger.ledger import (
    EARLIEST,
    LATEST,
    Fenced,
    InvalidArgument,
    ManagedLedger,
    ManagedLedgerConfig,
    NonRecoverable,
    Position,
    StorageFailed,
    StoreConfig,
)
from kledger.ledger.engine.errors import EntryMissing
from kledger.ledger.ownership import Ownership
from kledger.ledger.testing import FaultyEngine
from tests.ledger.words import COLD, SMALL, OpenStore, add_all, append, datas, numbers


@pytest.fixture
async def cold(open_store: OpenStore, engine: FaultyEngine) -> ManagedLedger:
    """Ten entries in ledgers of 4, 4 and 2, none in memory."""
    store = await open_store(engine=engine, config=COLD)
    ml = await store.open_managed_ledger("orders", config=SMALL)
    await add_all(ml, numbers(0, 9))
    return ml


# 1. Arguments, and the state before them


@pytest.mark.parametrize("count", [None, "3", 1.5, 0, -1])
async def test_rule_1_a_count_must_be_a_positive_number(cold: ManagedLedger, count: int) -> None:
    with pytest.raises(InvalidArgument, match="count: expected a positive number"):
        await cold.read_entries(EARLIEST, count)
    with pytest.raises(InvalidArgument, match="count: expected a positive number"):
        cold.read_cached(EARLIEST, count)


async def test_rule_1_errors_are_raised_when_the_read_is_awaited(cold: ManagedLedger) -> None:
    reading = cold.read_entries(None, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="start"):
        await reading


async def test_a_missing_end_is_refused_and_leaving_it_out_is_not(
    cold: ManagedLedger,
) -> None:
    with pytest.raises(InvalidArgument, match="max_position"):
        await cold.read_entries(EARLIEST, 1, None)  # type: ignore[arg-type]
    assert await cold.read_entries(EARLIEST, 99, LATEST) == await cold.read_entries(EARLIEST, 99)


async def test_a_count_has_no_limit_and_is_met(open_store: OpenStore) -> None:
    for config in (StoreConfig(), COLD, StoreConfig(cache_bytes=7_000)):
        store = await open_store(config=config)
        limits = ManagedLedgerConfig(max_entries_per_ledger=7)
        ml = await store.open_managed_ledger("orders", config=limits)
        await add_all(ml, numbers(0, 999))
        assert numbers(0, 998) == datas(await ml.read_entries(EARLIEST, 999))
        assert numbers(0, 999) == datas(await ml.read_entries(EARLIEST, 1 << 60))


async def test_a_closed_handle_raises_whatever_the_arguments(cold: ManagedLedger) -> None:
    await cold.close()
    for arguments in ((None, 0, None), (EARLIEST, 1, LATEST)):
        with pytest.raises(Fenced):
            await cold.read_entries(*arguments)


# 2 and 3. Places are those of the moment at which the read begins


async def test_rule_2_a_trimmed_start_continues_at_the_next_entry(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    start = (await cold.read_entries(EARLIEST, 2))[-1].position
    await cold.truncate()
    assert numbers(8, 9) == datas(await cold.read_entries(start, 99))
    assert [] == await cold.read_entries(start, 99, start)


async def test_rule_3_an_end_that_is_trimmed_leaves_nothing(cold: ManagedLedger) -> None:
    end = (await cold.read_entries(EARLIEST, 8))[-1].position
    assert numbers(0, 7) == datas(await cold.read_entries(EARLIEST, 99, end))
    await cold.trim_before(end.successor)
    assert [] == await cold.read_entries(EARLIEST, 99, end)


async def test_rule_3_a_start_after_the_end_is_the_end(cold: ManagedLedger) -> None:
    """It looped for ever upstream (#14667)."""
    positions = [entry.position for entry in await cold.read_entries(EARLIEST, 99)]
    for start in positions:
        for end in (EARLIEST, *positions[: positions.index(start)]):
            assert [] == await asyncio.wait_for(cold.read_entries(start, 99, end), 60)


# 4 and 5. While the log changes under a read of the storage


async def held_read(
    ml: ManagedLedger, engine: FaultyEngine, change: Callable[[], Awaitable[object]]
) -> list[bytes]:
    """Read all, with a change while the first ledger is being read."""
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(ml.read_entries(EARLIEST, 99))
    await hold.reached()
    await change()
    hold.release()
    return datas(await reading)


async def test_rule_4_entries_appended_meanwhile_are_read_up_to_the_last_confirmed(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    async def change() -> None:
        await add_all(cold, numbers(10, 20))

    assert numbers(0, 20) == await held_read(cold, engine, change)


async def test_rule_4_unconfirmed_entries_are_not_returned(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    hold = engine.hold_next("sync")
    append(cold, b"10")
    await hold.reached()
    assert numbers(0, 9) == datas(await cold.read_entries(EARLIEST, 99))
    hold.release()


async def test_rule_4_a_rollover_meanwhile_changes_nothing(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    assert numbers(0, 9) == await held_read(cold, engine, cold.roll_over)


async def test_rule_4_ledgers_trimmed_meanwhile_are_skipped_or_were_read_before(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    assert numbers(8, 9) == await held_read(cold, engine, cold.truncate)


async def test_rule_4_ledgers_whose_trim_is_being_applied_are_skipped(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    """The engine has dropped them, in its thread, and the event loop does not know it yet."""
    first = cold.ledgers[0].ledger_id
    read, commit = engine.hold_next("read"), engine.hold_next("commit")
    reading = asyncio.ensure_future(cold.read_entries(EARLIEST, 99))
    await read.reached()
    trimming = asyncio.ensure_future(cold.truncate())
    await commit.reached()
    read.fail(EntryMissing(first, 0))
    await asyncio.wait([reading], timeout=0.1)  # enough for it to fail at once
    commit.release()
    await trimming
    assert numbers(8, 9) == datas(await reading)


async def test_rule_4_all_trimmed_meanwhile_is_an_end(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    async def change() -> None:
        await cold.roll_over()
        await cold.truncate()

    assert [] == await held_read(cold, engine, change)


async def test_rule_4_the_end_of_the_log_is_an_end(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    assert numbers(0, 9) == await held_read(cold, engine, cold.terminate)
    assert numbers(0, 9) == datas(await cold.read_entries(EARLIEST, 99))


async def test_rule_4_a_deleted_log_is_missing_and_not_damaged(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    owner: Ownership = cold._on_closed.__self__  # type: ignore[attr-defined]
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(cold.read_entries(EARLIEST, 99))
    await hold.reached()
    await owner.delete(["orders"])
    hold.release()
    with pytest.raises(Fenced):
        await reading


async def test_rule_5_a_read_at_the_end_returns_at_once(cold: ManagedLedger) -> None:
    for start in (LATEST, cold.last_confirmed_entry.successor):
        reading = cold.read_entries(start, 1)
        with pytest.raises(StopIteration) as ended:
            reading.send(None)
        assert [] == ended.value.value


async def test_rule_5_each_ledger_is_asked_for_the_rest_once(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    for count, reads in ((4, 1), (5, 2), (9, 3), (10, 3), (99, 3)):
        before = engine.calls["read"]
        assert min(count, 10) == len(await cold.read_entries(EARLIEST, count))
        assert reads == engine.calls["read"] - before


# 6. Failures


@pytest.mark.parametrize("healthy", [0, 1, 2])
async def test_rule_6_what_was_read_before_a_failure_is_the_answer_and_the_read_stops(
    cold: ManagedLedger, engine: FaultyEngine, healthy: int
) -> None:
    for _ in range(healthy):
        engine.delay_next("read", 0)
    engine.fail_next("read", EntryMissing(1, 1))
    before = engine.calls["read"]
    if healthy:
        assert numbers(0, 4 * healthy - 1) == datas(await cold.read_entries(EARLIEST, 99))
    else:
        with pytest.raises(NonRecoverable):
            await cold.read_entries(EARLIEST, 99)
    assert healthy + 1 == engine.calls["read"] - before


async def test_rule_6_the_next_read_raises_the_error(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    engine.delay_next("read", 0)
    for _ in range(2):
        engine.fail_next("read")
    found = await cold.read_entries(EARLIEST, 99)
    assert 4 == len(found)
    with pytest.raises(StorageFailed):
        await cold.read_entries(found[-1].position.successor, 99)


async def test_an_empty_answer_for_a_range_with_entries_ends_the_read(
    cold: ManagedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It span for ever upstream (#24515)."""

    async def nothing(*_: object, **__: object) -> list[bytes]:
        return []

    monkeypatch.setattr(cold._services.cold_reads, "read", nothing)
    assert [] == await asyncio.wait_for(cold.read_entries(EARLIEST, 99), 60)


# 7. Nothing stays pinned


async def test_rule_7_nothing_is_pinned(open_store: OpenStore, engine: FaultyEngine) -> None:
    """Neither a read from memory nor one from the storage keeps an entry alive."""
    store = await open_store(engine=engine, config=StoreConfig(cache_bytes=500))
    ml = await store.open_managed_ledger("orders", config=SMALL)
    await add_all(ml, [b"%010d" % number for number in range(10)])
    cold_reads, cached = store._services.cold_reads, store.cached_bytes
    for _ in range(3):
        entries = await ml.read_entries(EARLIEST, 99)
        assert (cached, 0, 0) == (
            store.cached_bytes, cold_reads.in_flight_bytes, cold_reads.ahead_bytes,
        )  # fmt: skip
    newest = entries[-1].data
    counts = []
    for _ in range(3):
        entries = await ml.read_entries(EARLIEST, 99)
        del entries
        gc.collect()
        counts.append(sys.getrefcount(newest))
    assert 1 == len(set(counts)), "a finished read keeps no reference"
    await ml.roll_over()
    await ml.truncate()
    assert (0, []) == (store.cached_bytes, await ml.read_entries(EARLIEST, 9))
    assert sys.getrefcount(newest) < counts[0], (
        "the cache has evicted it, and there is no other reference"
    )


async def test_rule_7_a_read_moves_nothing_and_stops_no_trim(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    before = cold.ledgers, cold.properties, engine.calls["commit"]
    first = await cold.read_entries(EARLIEST, 3)
    assert first == await cold.read_entries(EARLIEST, 3), "there is no read position to move"
    assert before == (cold.ledgers, cold.properties, engine.calls["commit"])
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(cold.read_entries(EARLIEST, 3))
    await hold.reached()
    await cold.truncate()
    assert 1 == len(cold.ledgers), "a read in flight does not block a trim"
    hold.release()
    await reading


async def test_rule_7_a_cancelled_read_leaves_nothing(
    cold: ManagedLedger, engine: FaultyEngine
) -> None:
    cold_reads = cold._services.cold_reads
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(cold.read_entries(EARLIEST, 3))
    await hold.reached()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    hold.release()
    assert numbers(0, 2) == datas(await cold.read_entries(EARLIEST, 3))
    assert 0 == cold_reads.in_flight_bytes


async def test_a_read_across_many_small_ledgers_neither_recurses_nor_blocks_the_loop(
    open_store: OpenStore,
) -> None:
    """One entry per ledger, and most of them trimmed away in the middle of it."""
    store = await open_store()
    one = ManagedLedgerConfig(max_entries_per_ledger=1)
    ml = await store.open_managed_ledger("orders", config=one)
    count = 2 * sys.getrecursionlimit()
    positions = await add_all(ml, [b"x"] * count)
    ticks = 0

    async def others() -> None:
        nonlocal ticks
        while not reading.done():
            ticks += 1
            await asyncio.sleep(0)

    reading = asyncio.ensure_future(ml.read_entries(EARLIEST, count))
    await others()
    assert positions == [entry.position for entry in await reading]
    assert 20 < ticks
    reading = asyncio.ensure_future(ml.read_entries(EARLIEST, count))
    await asyncio.sleep(0)
    await ml.trim_before(Position(positions[-5].ledger_id, 0))
    assert positions[-5:] == [entry.position for entry in (await reading)[-5:]]
