"""The stores that the tests of `kledger ledger` look into."""

import asyncio
from pathlib import Path

import pytest

from tests.kledger.cli.stores import copy, make_store


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, not to be changed."""
    folder = tmp_path_factory.mktemp("ledger") / "data"
    asyncio.run(make_store(folder))
    return folder


@pytest.fixture
def spoilt(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return copy(stopped, tmp_path / "data")
