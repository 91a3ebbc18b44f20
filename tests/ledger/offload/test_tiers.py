"""The offloaders of a store: by URL, by kind, and by the texts that are stored with a copy."""

import asyncio
from pathlib import Path

import pytest

from kledger.ledger import (
    InvalidArgument,
    LedgerStore,
    ManagedLedgerConfig,
    OffloadPolicies,
    TierUnavailable,
)
from kledger.ledger.metadata.records import OffloadContext
from kledger.ledger.offload.tiers import Tiers
from kledger.ledger.testing import MemoryTier, MemoryTiers
from tests.ledger.offload.words import ATTEMPT, COLD_STORE, change_policies, five, offload_all
from tests.ledger.words import OpenStore, add_all, all_of, numbers


def copy_in(tier: MemoryTier) -> OffloadContext:
    return OffloadContext(attempt=ATTEMPT, driver=tier.name, location=tier.location)


def test_a_url_has_one_offloader() -> None:
    tier = MemoryTier()
    tiers = Tiers(MemoryTiers(tier))
    first = tiers.resolved(OffloadPolicies(driver="memory:memory"))
    assert tier is first.driver is tiers.resolved(first).driver
    assert None is tiers.resolved(OffloadPolicies()).driver
    with pytest.raises(InvalidArgument, match="memory:other"):
        tiers.resolved(OffloadPolicies(driver="memory:other"))


def test_a_copy_is_reached_through_the_offloader_of_its_kind() -> None:
    tier, other, latest = MemoryTier(), MemoryTier("other"), MemoryTier()
    tiers = Tiers(MemoryTiers(tier))
    assert tier is tiers.find(copy_in(tier)), "of the factory"
    tiers.resolved(OffloadPolicies(driver=latest))
    assert latest is tiers.find(copy_in(tier)), "used last"
    assert tier is tiers.find(copy_in(tier), tier), "of the managed ledger"
    assert latest is tiers.find(copy_in(tier), other), "that of the managed ledger is another kind"
    with pytest.raises(TierUnavailable, match="other"):
        tiers.find(copy_in(other))


async def test_a_url_is_resolved_when_a_managed_ledger_opens_or_its_settings_change(
    open_store: OpenStore, tier: MemoryTier
) -> None:
    store = await open_store(config=COLD_STORE, offloaders=MemoryTiers(tier))
    bad = ManagedLedgerConfig(offload=OffloadPolicies(driver="memory:bad"))
    with pytest.raises(InvalidArgument, match="memory:bad"):
        await store.open_managed_ledger("orders", config=bad)
    with pytest.raises(InvalidArgument, match="memory:bad"):
        store.create_managed_ledger_nowait("orders", config=bad, lost=lambda error: None)
    assert [] == store.managed_ledger_names(), "nothing was created"
    ml = await five(store, None)
    with pytest.raises(InvalidArgument, match="memory:bad"):
        ml.reconfigure(bad)
    assert None is ml.config.offload.driver
    change_policies(ml, driver="memory:memory")
    await offload_all(ml)
    assert 2 == len(tier.copies)


async def test_a_store_knows_object_stores_by_itself(tmp_path: Path) -> None:
    config = ManagedLedgerConfig(
        max_entries_per_ledger=2,
        offload=OffloadPolicies(driver=(tmp_path / "tier").as_uri()),
    )
    async with LedgerStore.open(tmp_path / "data", config=COLD_STORE) as store:
        ml = await store.open_managed_ledger("orders", config=config)
        await add_all(ml, numbers(0, 4))
        await offload_all(ml)
        await ml.delete_primaries([info.ledger_id for info in ml.ledgers])
    async with LedgerStore.open(tmp_path / "data", config=COLD_STORE) as store:
        ml = await store.open_managed_ledger("orders")
        assert numbers(0, 4) == await all_of(ml), "its location is stored with every copy"
        assert 4 == ml.read_counts.tier
        await ml.truncate()
        while (deleting := store._services.tier.deletions._task) is not None:
            await asyncio.wait([deleting], timeout=60)
        assert [] == [each for each in (tmp_path / "tier").rglob("*") if each.is_file()]
