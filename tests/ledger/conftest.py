"""What the tests of this room share: a clock that stands still, and a way to open stores."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ledger import LedgerStore
from ledger.testing import ManualClock

OpenStore = Callable[..., Awaitable[LedgerStore]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
async def open_store(clock: ManualClock) -> AsyncIterator[OpenStore]:
    """Open stores in memory; what is still open at the end is closed."""
    stores: list[LedgerStore] = []

    async def open_one(**options: object) -> LedgerStore:
        store = await LedgerStore.open(None, clock=clock, **options)  # type: ignore[arg-type]
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()
