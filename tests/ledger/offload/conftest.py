"""Fixtures of the tests of offloading: object stores, and a managed ledger over a tier."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kledger.ledger import LedgerStore
from kledger.ledger.offload.object_store import ObjectStore
from kledger.ledger.testing import FaultyEngine, MemoryTier, MemoryTiers
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.tasks import Supervisor
from tests.ledger.offload.words import COLD_STORE
from tests.ledger.words import OpenStore


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    pool = BlockingPool(2)
    yield pool
    pool.close()


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    crashes: list[BaseException] = []
    supervisor = Supervisor(crashes.append)
    yield supervisor
    await supervisor.close()
    assert [] == crashes


@pytest.fixture(params=["memory", "file"])
async def object_store(
    request: pytest.FixtureRequest, tmp_path: Path, pool: BlockingPool
) -> AsyncIterator[ObjectStore]:
    """A store of either kind that needs no server."""
    url = "memory://" if request.param == "memory" else f"file://{tmp_path}/tier"
    store = ObjectStore(url, pool=pool)
    yield store
    await store.close()


@pytest.fixture
def tier() -> MemoryTier:
    return MemoryTier()


@pytest.fixture
async def store(open_store: OpenStore, engine: FaultyEngine, tier: MemoryTier) -> LedgerStore:
    return await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))
