"""Fixtures of the ledger tests: a manual clock, and stores that are closed at the end."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from kledger.ledger import LedgerStore, ManagedLedger, Position, StoreConfig
from kledger.ledger.testing import ClockPace, FaultyEngine, ManualClock
from tests.ledger.words import COLD, SMALL, TWO, OpenStore, add_all, numbers, written


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
async def open_store(clock: ManualClock) -> AsyncIterator[OpenStore]:
    """Open stores in memory; at the end held operations are released and all stores closed."""
    stores: list[LedgerStore] = []
    paced = partial(LedgerStore.open, None, clock=clock, start_pace=partial(ClockPace, clock))

    async def open_one(**options: object) -> LedgerStore:
        store = await paced(**options)  # type: ignore[arg-type]
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        store._engine.release_waiting()
        await store.close()


@pytest.fixture
def engine() -> FaultyEngine:
    return FaultyEngine(None)


@pytest.fixture
async def store(open_store: OpenStore, engine: FaultyEngine) -> LedgerStore:
    return await open_store(engine=engine)


@pytest.fixture
async def ml(store: LedgerStore) -> ManagedLedger:
    """A managed ledger with four entries per ledger, on an engine that can be made to fail."""
    return await store.open_managed_ledger("orders", config=SMALL)


@pytest.fixture(params=["memory", "storage"])
async def ten(
    request: pytest.FixtureRequest, open_store: OpenStore
) -> tuple[ManagedLedger, list[Position]]:
    """Ten entries in ledgers of 4, 4 and 2, all in memory or none."""
    config = StoreConfig() if request.param == "memory" else COLD
    return await written(await open_store(config=config), 10)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A store with `orders` (ledgers 2 and 3 full, 4 with one entry) and `empty`."""
    async with LedgerStore.open(tmp_path) as store:
        ml = await store.open_managed_ledger("orders", config=TWO)
        await add_all(ml, numbers(0, 4))
        await store.open_managed_ledger("empty")
    return tmp_path
