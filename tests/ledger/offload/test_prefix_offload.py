"""Prefix offload: closed non-empty ledgers before a position; which position is returned."""

import asyncio

import pytest

from kledger.ledger import (
    LATEST,
    AlreadyClosed,
    InvalidArgument,
    InvalidPosition,
    LedgerStore,
    ManagedLedgerConfig,
    OffloadInProgress,
    OffloadPolicies,
    Position,
    TierUnavailable,
)
from kledger.ledger.testing import MemoryTier
from tests.ledger.offload.words import (
    change_policies,
    five,
    offload_all,
    offloaded,
    open_position,
    read_all,
    reads,
)
from tests.ledger.words import numbers, pos


async def test_prefix_offload_copies_closed_ledgers_and_returns_the_first_position_without_copy(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    first, second, last = (info.ledger_id for info in ml.ledgers)
    assert Position(second, 0) == await ml.offload_prefix(Position(second, 1))
    assert [True, False, False] == offloaded(ml)
    assert Position(last, 0) == await ml.offload_prefix(Position(last, 0))
    assert [True, True, False] == offloaded(ml)
    assert [first, second] == tier.ledger_ids
    assert numbers(0, 4) == await read_all(ml)
    assert (0, 1, 4) == reads(ml)


async def test_prefix_offload_again_copies_nothing_twice(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    assert open_position(ml) == await offload_all(ml)
    assert open_position(ml) == await ml.offload_prefix(Position(ml.ledgers[0].ledger_id, 0))
    assert open_position(ml) == await offload_all(ml)
    assert 2 == tier.calls["offload"]


async def test_prefix_offload_stops_before_a_given_position(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    second = ml.ledgers[1].ledger_id
    assert Position(second, 0) == await ml.offload_prefix(
        open_position(ml), before=Position(second, 1)
    )
    assert [True, False, False] == offloaded(ml), "entry 1 of the second is not before it"
    await ml.offload_prefix(open_position(ml), before=Position(second, 2))
    assert [True, True, False] == offloaded(ml)


async def test_prefix_offload_takes_the_first_position_of_an_empty_open_ledger(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await ml.roll_over()
    assert 0 == ml.ledgers[-1].entries
    assert open_position(ml) == await offload_all(ml)
    assert [True, True, True, False] == offloaded(ml)


async def test_prefix_offload_up_to_latest_copies_all_closed_ledgers(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    assert open_position(ml) == await ml.offload_prefix(LATEST)
    assert [True, True, False] == offloaded(ml)
    last = await ml.terminate()
    assert last.successor == await ml.offload_prefix(LATEST)
    assert [True, True, True] == offloaded(ml), "no ledger is open any more"


@pytest.mark.parametrize("position", [pos("0:0"), pos("99:0"), pos("2:-1")])
async def test_prefix_offload_refuses_invalid_positions(
    store: LedgerStore, tier: MemoryTier, position: Position
) -> None:
    ml = await five(store, tier)
    assert not ml.is_valid_position(position)
    with pytest.raises(InvalidPosition, match=str(position)):
        await ml.offload_prefix(position)
    with pytest.raises(InvalidPosition):
        await ml.offload_prefix(Position(ml.ledgers[0].ledger_id, 2))
    with pytest.raises(InvalidArgument, match="expected a Position"):
        await ml.offload_prefix(7)  # type: ignore[arg-type]
    assert not tier.copies


async def test_prefix_offload_is_refused_without_a_tier(store: LedgerStore) -> None:
    ml = await five(store, None)
    with pytest.raises(InvalidArgument, match="orders has no tier"):
        await offload_all(ml)


async def test_prefix_offload_of_a_closed_or_fenced_handle_is_refused(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await ml.close()
    with pytest.raises(AlreadyClosed):
        await ml.offload_prefix(ml.last_confirmed_entry)


async def test_prefix_offload_runs_once_at_a_time(store: LedgerStore, tier: MemoryTier) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    with pytest.raises(OffloadInProgress, match="orders"):
        await offload_all(ml)
    hold.release()
    assert open_position(ml) == await running
    await offload_all(ml)


async def test_prefix_offload_continues_after_a_failure_and_reports_the_first(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    await ml.roll_over()
    tier.fail_next("offload", TierUnavailable("one"))
    tier.fail_next("offload", TierUnavailable("two"))
    with pytest.raises(TierUnavailable, match="one"):
        await offload_all(ml)
    assert [False, False, True, False] == offloaded(ml)
    assert open_position(ml) == await offload_all(ml)


async def test_prefix_offload_translates_errors_that_no_tier_should_raise(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    tier.fail_next("offload", ZeroDivisionError("a bug"))
    with pytest.raises(TierUnavailable, match="offloading ledger 2 of orders: ZeroDivision"):
        await offload_all(ml)
    assert [False, True, False] == offloaded(ml)


async def test_prefix_offload_skips_a_ledger_that_is_trimmed_meanwhile(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    await ml.trim_before(Position(ml.ledgers[1].ledger_id, 0))
    hold.release()
    assert open_position(ml) == await running
    assert [True, False] == offloaded(ml)


async def test_prefix_offload_ends_cleanly_when_it_is_cancelled(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    running = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert open_position(ml) == await offload_all(ml)
    assert [True, True, False] == offloaded(ml)


async def test_prefix_offload_of_several_logs_copies_a_limited_number_at_once(
    store: LedgerStore, tier: MemoryTier
) -> None:
    config = ManagedLedgerConfig(max_entries_per_ledger=2, offload=OffloadPolicies(driver=tier))
    logs = [await store.open_managed_ledger(f"{each}", config=config) for each in range(4)]
    for ml in logs:
        await asyncio.gather(*(ml.add_entry(each) for each in numbers(0, 4)))
    holds = [tier.hold_next("offload") for _ in logs]
    running = [asyncio.ensure_future(offload_all(ml)) for ml in logs]
    await holds[0].reached()
    await holds[1].reached()
    assert store.config.offload_parallel == tier.calls["offload"]
    for hold in holds:
        hold.release()
    await asyncio.gather(*running)
    assert 8 == len(tier.copies)


async def test_a_terminated_log_is_copied_up_to_its_end(
    store: LedgerStore, tier: MemoryTier
) -> None:
    ml = await five(store, tier)
    last = await ml.terminate()
    change_policies(ml, threshold_bytes=0)
    assert last.successor == await ml.offload_due()
    assert [True, True, True] == offloaded(ml)
    assert numbers(0, 4) == await read_all(ml)
