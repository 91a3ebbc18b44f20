"""What the tests of this room share: a clock that stands still, and a way to open stores."""

from collections.abc import AsyncIterator

import pytest

from ledger import LedgerStore, ManagedLedger
from ledger.testing import FaultyEngine, ManualClock
from tests.ledger.words import SMALL, OpenStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
async def open_store(clock: ManualClock) -> AsyncIterator[OpenStore]:
    """Open stores in memory; what is still open at the end is closed, and nothing is held then."""
    stores: list[LedgerStore] = []

    async def open_one(**options: object) -> LedgerStore:
        store = await LedgerStore.open(None, clock=clock, **options)  # type: ignore[arg-type]
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
