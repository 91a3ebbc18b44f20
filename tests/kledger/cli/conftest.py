"""Stores for the tests of `kledger ledger`, a server for those of what asks a running one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kledger.process import ServerProcess
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


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """A server in memory; each test has topics of its own."""
    with ServerProcess("--memory", native="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for this test."""
    return str(request.node.originalname)
