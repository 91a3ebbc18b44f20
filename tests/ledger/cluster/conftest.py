"""Databases of a cluster, those that keep one contract, and folders for the rows of engines."""

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import pytest

from kledger.ledger.cluster.database import ClusterDatabase
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.postgres import PostgresDatabase

SHARED_MEMORY = "/dev/shm"

Connect: TypeAlias = Callable[[], ClusterDatabase]
"""Returns what another process would use of the same database."""
NODES = 3
NODE = 2
"""Whose tables keep the same contract as those of a cluster with one owner."""


class Databases:
    """A database without a cluster, and connections to it."""

    def __init__(self, url: str | None) -> None:
        """Args: url: of PostgreSQL; None: it is in memory."""
        self._url = url
        self._memory = MemoryDatabase()
        self._made: list[PostgresDatabase] = []

    def cluster(self) -> PostgresDatabase | MemoryDatabase:
        return self._memory if self._url is None else self._postgres(None)

    def node(self, node: int) -> ClusterDatabase:
        return self._memory.node(node) if self._url is None else self._postgres(node)

    def _postgres(self, node: int | None) -> PostgresDatabase:
        assert self._url is not None
        self._made.append(PostgresDatabase(self._url, node=node))
        return self._made[-1]

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture(params=["memory", "postgres"])
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """A database without a cluster."""
    is_real = request.param == "postgres"
    made = Databases(request.getfixturevalue("postgres_url") if is_real else None)
    yield made
    made.close()


@pytest.fixture(params=["cluster", "node"])
def connect(request: pytest.FixtureRequest, databases: Databases) -> Connect:
    """A cluster with one owner, or a node of a cluster; none of them has sessions."""
    is_node = request.param == "node"
    databases.cluster().create(
        cluster_id="test-cluster", store="memory://", nodes=NODES if is_node else 1
    )
    return partial(databases.node, NODE) if is_node else databases.cluster


@pytest.fixture
def database(connect: Connect) -> ClusterDatabase:
    """What the tests of one process need."""
    return connect()


@pytest.fixture(autouse=True)
def _rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders in memory, if the machine has such a file system: none has to last."""
    if os.access(SHARED_MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", SHARED_MEMORY)
