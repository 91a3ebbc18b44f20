"""Databases of a cluster, those that keep one contract, and folders for the rows of engines."""

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from kledger.ledger.cluster.database import ClusterDatabase
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.postgres import PostgresDatabase

SHARED_MEMORY = "/dev/shm"

Connect: TypeAlias = Callable[[], ClusterDatabase]
"""Returns what another process would use of the same database."""


@pytest.fixture(params=["memory", "postgres"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """A database without a cluster."""
    if request.param == "memory":
        memory = MemoryDatabase()
        yield lambda: memory
        return
    url = request.getfixturevalue("postgres_url")
    made: list[PostgresDatabase] = []

    def connect_postgres() -> ClusterDatabase:
        made.append(PostgresDatabase(url))
        return made[-1]

    yield connect_postgres
    for each in made:
        each.close()


@pytest.fixture
def database(connect: Connect) -> ClusterDatabase:
    """A database with a cluster without sessions."""
    made = connect()
    made.create(cluster_id="test-cluster", store="memory://")
    return made


@pytest.fixture(autouse=True)
def _rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders in memory, if the machine has such a file system: none has to last."""
    if os.access(SHARED_MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", SHARED_MEMORY)
