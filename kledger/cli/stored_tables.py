"""The tables of users, rules and settings, without a server.

Rule: those of a data folder are in the store of a stopped server, or in the file that its workers
share, which is locked. Those of a cluster of nodes are in its database, and may be changed while
its servers run; the servers apply the change.
Must not know: commands.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

from kledger.ledger import LedgerStore, TableStore
from kledger.ledger.shared_tables import SharedTables
from kledger.runtime.blocking import InlinePool
from kledger.runtime.clock import SystemClock
from kledger.runtime.containment import Containment
from kledger.runtime.entropy import SystemEntropy
from kledger.runtime.tasks import Supervisor
from kledger.security.delegation_token_state import DelegationTokenConfig
from kledger.security.delegation_tokens import open_users
from kledger.security.users import Users
from kledger.workers.workers_folder import WorkersLock, has_workers


def stored_tables(
    data: str | None, cluster: str | None = None
) -> AbstractAsyncContextManager[TableStore]:
    """Open the tables of users, access rules and settings; enter the result with `async with`.

    Args:
        data: the folder of the server, with workers or without; None: see `cluster`.
        cluster: the URL of the database of a cluster of nodes.

    Raises:
        StoreInUse, StoreUnusable, LedgerError: the store is not stopped, or cannot be read.
        WorkersMistake: the workers are not stopped.
    """
    if data is None:
        assert cluster is not None, "neither a folder nor a cluster"
        return _cluster_tables(cluster)
    return _shared_tables(data) if has_workers(data) else LedgerStore.open(data)


@asynccontextmanager
async def stored_users(data: str | None, cluster: str | None = None) -> AsyncIterator[Users]:
    """Open the users, with the tokens that go with them; arguments and errors of `stored_tables`.

    Removing a user removes its tokens, too.
    """
    async with stored_tables(data, cluster) as tables:
        users, _ = open_users(
            tables,
            DelegationTokenConfig(),
            clock=SystemClock(),
            entropy=SystemEntropy(),
            pool=InlinePool(),
        )
        yield users


@asynccontextmanager
async def _shared_tables(data: str) -> AsyncIterator[TableStore]:
    clock, supervisor = SystemClock(), Supervisor()
    with closing(WorkersLock(Path(data))):
        tables = await SharedTables.open(
            Path(data), containment=Containment(clock), clock=clock, supervisor=supervisor
        )
        try:
            yield tables
        finally:
            await tables.close()
            await supervisor.close()


@asynccontextmanager
async def _cluster_tables(url: str) -> AsyncIterator[TableStore]:
    from kledger.ledger.cluster import SharedDatabase

    clock, supervisor = SystemClock(), Supervisor()
    database = await SharedDatabase.open(url, clock=clock, supervisor=supervisor)
    try:
        tables = await database.tables(Containment(clock))
        try:
            yield tables
        finally:
            await tables.close()
    finally:
        await database.close()
        await supervisor.close()
