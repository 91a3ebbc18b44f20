"""Words of the tests of offloading: a managed ledger over a tier in memory."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from kledger.ledger import (
    EARLIEST,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    OffloadPolicies,
    Position,
    StorageEngine,
    StoreConfig,
)
from kledger.ledger.metadata import keys
from kledger.ledger.offload.copy_deletions import LATE_WRITES_MS
from kledger.ledger.testing import ManualClock, MemoryTier
from tests.ledger.words import add_all, datas, numbers

ATTEMPT = UUID(int=7)
COLD_STORE = StoreConfig(cache_bytes=0)


def policies(tier: MemoryTier | None, **options: object) -> OffloadPolicies:
    return OffloadPolicies(driver=tier, **options)  # type: ignore[arg-type]  # any of its fields


def tiered(tier: MemoryTier | None, **options: object) -> ManagedLedgerConfig:
    """Two entries in a ledger."""
    return ManagedLedgerConfig(max_entries_per_ledger=2, offload=policies(tier, **options))


def change_policies(ml: ManagedLedger, **options: object) -> None:
    offload = replace(ml.config.offload, **options)  # type: ignore[arg-type]
    ml.reconfigure(replace(ml.config, offload=offload))


async def five(
    store: LedgerStore, tier: MemoryTier | None, *, name: str = "orders", **options: object
) -> ManagedLedger:
    """Five entries in ledgers of 2, 2 and 1, of which the last one is open."""
    ml = await store.open_managed_ledger(name, config=tiered(tier, **options))
    await add_all(ml, numbers(0, 4))
    return ml


def open_position(ml: ManagedLedger) -> Position:
    """The first position of the open ledger."""
    return Position(ml.ledgers[-1].ledger_id, 0)


async def offload_all(ml: ManagedLedger) -> Position:
    return await ml.offload_prefix(open_position(ml))


def offloaded(ml: ManagedLedger) -> list[bool]:
    return [info.offloaded for info in ml.ledgers]


def primary_deleted(ml: ManagedLedger) -> list[bool]:
    return [info.primary_deleted for info in ml.ledgers]


async def read_all(ml: ManagedLedger) -> list[bytes]:
    return datas(await ml.read_entries(EARLIEST, 1 << 30))


def reads(ml: ManagedLedger) -> tuple[int, int, int]:
    """Entries read from the cache, the primary and the tier."""
    counts = ml.read_counts
    return counts.cache, counts.primary, counts.tier


def pending(engine: StorageEngine) -> int:
    """How many deletions in the tier are stored."""
    return len(engine.scan(*keys.copy_deletion_range()))


async def until(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Let time pass until a condition holds."""
    for _ in range(10_000):
        if condition():
            return
        clock.advance(LATE_WRITES_MS // 10)
        for _ in range(20):
            await asyncio.sleep(0)
    raise AssertionError("the condition does not hold")
