"""Words for tests of shared tables: a record table over them, and databases that have them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kledger.ledger import TableStore
from kledger.ledger.cluster.postgres_connection import TIMEOUT_MS
from kledger.ledger.cluster.shared_database import SharedDatabase
from kledger.ledger.cluster.shared_statements import CREATE_SHARED
from kledger.ledger.record_table import RecordTable
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.containment import Containment
from kledger.runtime.tasks import Supervisor
from tests.ledger.test_record_table import ROWS
from tests.postgres_server import PostgresServer

GUARD_S = 60


class SharedWords(RecordTable[str, str]):
    """A table that tells its waiters of every replay."""

    def __init__(self, tables: TableStore) -> None:
        super().__init__(tables, ROWS, self._note)
        self.replayed: list[tuple[str, str | None]] = []
        self.changed = asyncio.Event()
        self.load()

    def _note(self, key: str) -> None:
        self.replayed.append((key, self.get(key)))
        self.changed.set()

    async def wait_for(self, key: str, record: str | None) -> None:
        async with asyncio.timeout(GUARD_S):
            while self.get(key) != record:
                self.changed.clear()
                await self.changed.wait()


async def put(tables: TableStore, words: SharedWords, key: str, record: str | None) -> None:
    async with tables.change_lock():
        assert await words.submit(key, record) is None


def create_shared(server: PostgresServer, url: str) -> None:
    """Make the shared tables in a database of the server."""
    name = url.partition("@/")[2].partition("?")[0]
    server.execute("CREATE SCHEMA kledger", CREATE_SHARED, database=name)


@asynccontextmanager
async def shared_database(
    url: str, *, clock: Clock | None = None, timeout_ms: int = TIMEOUT_MS
) -> AsyncIterator[SharedDatabase]:
    """The shared rows, as a process has them open."""
    supervisor = Supervisor()
    database = await SharedDatabase.open(
        url, clock=clock or SystemClock(), supervisor=supervisor, timeout_ms=timeout_ms
    )
    try:
        yield database
    finally:
        await database.close()
        await supervisor.close()


@asynccontextmanager
async def node_tables(database: SharedDatabase) -> AsyncIterator[SharedTables]:
    """The tables of a node of that process."""
    tables = await database.tables(Containment(SystemClock()))
    try:
        yield tables
    finally:
        await tables.close()
