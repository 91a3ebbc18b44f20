"""Fixtures of the tests of tiers: stores in memory and in folders."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kledger.ledger.offload.object_store import ObjectStore
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.tasks import Supervisor


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
