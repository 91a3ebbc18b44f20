"""What several tests of whole servers use."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kledger.cluster_words import Cluster


@pytest.fixture
async def cluster(postgres_url: str, tmp_path: Path) -> AsyncIterator["Cluster"]:
    """A cluster over a real database and a folder of objects."""
    from tests.kledger.cluster_words import Cluster

    store = (tmp_path / "objects").as_uri()
    made = await asyncio.to_thread(Cluster, postgres_url, store)
    yield made
    await asyncio.to_thread(made.database.close)
