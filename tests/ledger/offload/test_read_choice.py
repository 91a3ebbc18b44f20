"""Read choice: table 3.2 of tiered storage, and what a read does when a copy fails or goes."""

import asyncio
from collections.abc import Callable

import pytest

from kledger.ledger import (
    EARLIEST,
    Corrupt,
    Entry,
    InvalidArgument,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    NonRecoverable,
    OffloadPolicies,
    TierUnavailable,
)
from kledger.ledger.engine.errors import EntryCorrupt, EntryMissing
from kledger.ledger.offload.copy_reads import READ_TIMEOUT_MS
from kledger.ledger.offload.tier_services import PAUSE_MS
from kledger.ledger.testing import FaultyEngine, ManualClock, MemoryTier, MemoryTiers
from tests.ledger.offload.words import (
    COLD_STORE,
    change_policies,
    five,
    offload_all,
    primary_deleted,
    read_all,
    reads,
    tiered,
)
from tests.ledger.words import OpenStore, add_all, all_of, datas, numbers, settled

FIRST_FOUR = numbers(0, 3)


async def first_four(ml: ManagedLedger) -> list[bytes]:
    return datas(await ml.read_entries(EARLIEST, 4))


async def test_read_choice_without_a_copy_is_the_primary(
    store: LedgerStore, tier: MemoryTier
) -> None:
    for priority in ("tiered-first", "bookkeeper-first"):
        ml = await five(store, tier, read_priority=priority)
        assert FIRST_FOUR == await first_four(ml)
        assert not tier.calls
        await store.delete_managed_ledger("orders")


async def test_read_choice_tiered_first_is_the_tier(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    before = engine.calls["read"]
    assert FIRST_FOUR == await first_four(ml)
    assert (0, 0, 4) == reads(ml)
    assert before == engine.calls["read"]


async def test_read_choice_bookkeeper_first_never_touches_the_tier_while_the_primary_is_there(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier, read_priority="bookkeeper-first")
    await offload_all(ml)
    tier.is_down = True
    assert FIRST_FOUR == await first_four(ml)
    assert (0, 4, 0) == reads(ml)
    assert {"offload": 2} == dict(tier.calls)


@pytest.mark.parametrize("priority", ["tiered-first", "bookkeeper-first"])
async def test_read_choice_after_the_deletion_of_the_primary_is_the_tier_directly(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine, priority: str
) -> None:
    """No error of a missing ledger is provoked: the storage is not asked once (PIP-73)."""
    ml = await five(store, tier, read_priority=priority)
    await offload_all(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    assert [True, True, False] == primary_deleted(ml)
    before = engine.calls["read"]
    assert FIRST_FOUR == await first_four(ml)
    assert before == engine.calls["read"]
    assert (0, 0, 4) == reads(ml)
    assert not store.health.faults()


async def test_read_choice_changes_at_once_for_an_open_handle(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    await first_four(ml)
    change_policies(ml, read_priority="bookkeeper-first")
    await first_four(ml)
    change_policies(ml, read_priority="tiered-storage-first")
    await first_four(ml)
    assert (0, 4, 8) == reads(ml)
    assert "tiered-first" == ml.config.offload.read_priority


def test_read_choice_refuses_an_unknown_priority() -> None:
    with pytest.raises(InvalidArgument, match=r"read_priority: expected one of .*got 'newest'"):
        OffloadPolicies(read_priority="newest")  # type: ignore[arg-type]


async def test_read_choice_falls_back_to_the_primary_when_the_tier_fails(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    tier.is_down = True
    assert FIRST_FOUR == await first_four(ml)
    assert (0, 4, 0) == reads(ml)
    assert 2 == ml.read_counts.fell_back
    assert 2 == store.metrics.snapshot()["tier_fallbacks"]
    tier.is_down = False
    assert FIRST_FOUR == await first_four(ml)
    assert (0, 4, 4) == reads(ml)


@pytest.mark.parametrize("error", [TierUnavailable("t"), NonRecoverable("t"), Corrupt("t")])
async def test_read_choice_of_a_dead_tier_without_a_primary_is_an_error(
    store: LedgerStore, tier: MemoryTier, error: Exception
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([ml.ledgers[0].ledger_id])
    tier.fail_next("open", error)
    with pytest.raises(type(error), match="t"):
        await first_four(ml)
    assert FIRST_FOUR == await first_four(ml)
    assert 0 == ml.read_counts.fell_back


async def test_read_choice_of_a_dead_tier_whose_primary_is_deleted_meanwhile_may_be_repeated(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine
) -> None:
    """Found by the simulator: the entries seemed to be lost, and health showed it."""
    ml = await five(store, tier)
    await offload_all(ml)
    tier.is_down = True
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(first_four(ml))
    await hold.reached()
    ledgers = [info.ledger_id for info in ml.ledgers]
    await ml.delete_primaries(ledgers)
    hold.fail(EntryMissing(ledgers[0], 0))
    with pytest.raises(TierUnavailable):
        await reading
    assert not store.health.faults()


async def test_read_choice_bookkeeper_first_goes_on_to_the_tier_when_the_primary_is_damaged(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine
) -> None:
    ml = await five(store, tier, read_priority="bookkeeper-first")
    await offload_all(ml)
    engine.fail_next("read", EntryCorrupt(2, 0, "a bit has flipped"))
    assert FIRST_FOUR == await first_four(ml)
    assert (0, 2, 2) == reads(ml)
    assert store.health.faults()
    assert 0 == ml.read_counts.fell_back


async def test_read_choice_of_a_read_under_way_follows_the_deletion_of_the_primary(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine
) -> None:
    """A read of the primary is held while that copy is deleted: the tier serves it."""
    ml = await five(store, tier, read_priority="bookkeeper-first")
    await offload_all(ml)
    hold = engine.hold_next("read")
    reading = asyncio.ensure_future(first_four(ml))
    await hold.reached()
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    hold.release()
    assert FIRST_FOUR == await reading
    assert (0, 0, 4) == reads(ml)
    assert not store.health.faults(), "nobody looks for a disk that is broken"


async def test_read_choice_of_a_read_that_the_tier_holds_ends_with_the_trim(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    hold = tier.hold_next("open")
    reading = asyncio.ensure_future(first_four(ml))
    await hold.reached()
    await ml.trim_before(ml.last_confirmed_entry)
    hold.fail(NonRecoverable("the copy was deleted"))
    assert [b"4"] == await reading


async def test_read_choice_of_a_tier_that_hangs_ends_in_time(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([ml.ledgers[0].ledger_id])
    hold = tier.hold_next("open")
    reading = asyncio.ensure_future(first_four(ml))
    await hold.reached()
    await settled(clock, READ_TIMEOUT_MS)
    await asyncio.wait([reading])
    with pytest.raises(TierUnavailable, match="reading ledger 2 from memory: no answer within"):
        reading.result()


async def test_read_choice_asks_a_tier_that_hangs_again_after_a_pause(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock
) -> None:
    """Else each read of a ledger with two copies would wait as long as the first one."""
    ml = await five(store, tier)
    await offload_all(ml)
    hold = tier.hold_next("open")
    reading = asyncio.ensure_future(ml.read_entries(EARLIEST, 2))
    await hold.reached()
    await settled(clock, READ_TIMEOUT_MS)
    assert [b"0", b"1"] == datas(await reading)
    assert FIRST_FOUR == await first_four(ml)
    assert (0, 6, 0) == reads(ml)
    assert 3 == ml.read_counts.fell_back
    clock.advance(PAUSE_MS)
    assert FIRST_FOUR == await first_four(ml)
    assert (0, 6, 4) == reads(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    store._services.tier.pauses.begin(tier.name)
    assert FIRST_FOUR == await first_four(ml), "there is no other copy"


async def test_read_choice_keeps_the_newest_entries_in_memory(
    open_store: OpenStore, tier: MemoryTier
) -> None:
    store = await open_store(offloaders=MemoryTiers(tier))
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    assert numbers(0, 4) == await all_of(ml)
    cached = ml.read_cached(EARLIEST, 3)
    assert cached is not None
    assert FIRST_FOUR[:3] == datas(cached)
    assert (8, 0, 0) == reads(ml)
    ml.evict_cached()
    assert numbers(0, 4) == await all_of(ml)
    assert (8, 1, 4) == reads(ml)


async def test_read_choice_holds_for_every_way_to_read(
    store: LedgerStore, tier: MemoryTier, engine: FaultyEngine
) -> None:
    """Single entries, searches, cursors, replays and chunks read the tier, too."""
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    before = engine.calls["read"]
    first, second = (info.ledger_id for info in ml.ledgers[:2])
    assert b"0" == (await ml.read_entry(ml.next_valid_position(EARLIEST))).data
    cursor = await ml.open_cursor("c", initial=EARLIEST)
    entries = await cursor.read(4)
    assert FIRST_FOUR == datas(entries)
    again, _ = await cursor.replay([entries[1].position])
    assert [b"1"] == datas(again)
    chunks = [
        datas(each)
        async for each in ml.read_in_chunks(EARLIEST, entries[3].position, count=3, bytes_max=99)
    ]
    assert [FIRST_FOUR[:3], FIRST_FOUR[3:]] == chunks
    assert before == engine.calls["read"]
    newest = await ml.find_newest_matching(lambda entry: entry.data <= b"2")
    assert entries[2].position == newest
    assert {first, second} >= {newest.ledger_id}
    assert tier.calls["read"] > 5


async def test_read_choice_of_a_search_skips_a_ledger_whose_only_copy_is_lost_at_once(
    store: LedgerStore, tier: MemoryTier
) -> None:
    """Asking for each of its entries would take a request of the tier each."""
    config = ManagedLedgerConfig(max_entries_per_ledger=100, offload=OffloadPolicies(driver=tier))
    ml = await store.open_managed_ledger("orders", config=config)
    positions = await add_all(ml, numbers(0, 301))
    await offload_all(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    lost = ml.ledgers[1].ledger_id
    (key,) = (each for each in tier.copies if each[0] == lost)
    del tier.copies[key]
    for newest, expected in ((150, 99), (250, 250), (99, 99)):
        calls = tier.calls["open"]
        assert positions[expected] == await ml.find_newest_matching(at_most(newest))
        assert tier.calls["open"] - calls < 20


def at_most(newest: int) -> Callable[[Entry], bool]:
    return lambda entry: int(entry.data) <= newest


async def test_read_choice_of_a_tier_that_no_setting_names_is_an_error_that_says_so(
    open_store: OpenStore, engine: FaultyEngine, tier: MemoryTier
) -> None:
    store = await open_store(engine=engine, config=COLD_STORE)
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([ml.ledgers[0].ledger_id])
    await ml.close()
    store = await open_store(engine=engine, config=COLD_STORE)
    ml = await store.open_managed_ledger("orders", config=tiered(None))
    with pytest.raises(TierUnavailable, match="tier memory, which no setting names"):
        await first_four(ml)
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await store.open_managed_ledger("orders", config=tiered(None))
    assert FIRST_FOUR == await first_four(ml)


async def test_opening_reads_nothing_from_the_tier(
    open_store: OpenStore, engine: FaultyEngine, tier: MemoryTier
) -> None:
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    await ml.open_cursor("c", initial=EARLIEST)
    ledgers, calls = ml.ledgers, dict(tier.calls)
    await ml.close()
    assert ledgers[:2] == (store.stored_ledgers("orders") or ())[:2]
    store = await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    await ml.open_cursor("c")
    assert ledgers[:2] == ml.ledgers[:2]
    assert calls == dict(tier.calls)


async def test_equality_of_copies_holds_for_bytes_positions_and_the_end(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    written = [b"", b"\xff" * 5000, bytes(range(256)), b"x"]
    await add_all(ml, written)
    primary, last = await ml.read_entries(EARLIEST, 9), ml.last_confirmed_entry
    await offload_all(ml)
    copy = await ml.read_entries(EARLIEST, 9)
    assert [(each.position, each.data) for each in primary] == [
        (each.position, each.data) for each in copy
    ]
    assert written == datas(copy)
    assert last == ml.last_confirmed_entry
    assert (0, 4, 4) == reads(ml)
    await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    assert written == await read_all(ml)
    assert last == ml.last_confirmed_entry


async def test_reads_are_counted_across_handles_of_one_managed_ledger(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    await first_four(ml)
    await ml.close()
    ml = await store.open_managed_ledger("orders", config=tiered(tier))
    await ml.read_entries(EARLIEST, 1)
    assert (0, 0, 5) == reads(ml)
    assert 5 == store.metrics.snapshot()['entries_read{source="tier"}']
    await store.delete_managed_ledger("orders")
    assert 5 == store.metrics.snapshot()['entries_read{source="tier"}']
    assert (0, 0, 0) == reads(await five(store, tier))


async def test_entries_that_a_byte_limit_discards_are_not_counted(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    assert 3 == len(await ml.read_entries(EARLIEST, 9, bytes_max=3))
    assert (0, 0, 3) == reads(ml)
