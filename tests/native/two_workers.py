"""Two workers for native clients in this process: stores in memory, shared tables in a folder."""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing

import kledger.settings
from kledger.cluster import WorkerMember
from kledger.wiring import BrokerServer
from kledger.workers.reserved_ports import ReservedPorts
from kledger.workers.worker_identity import WorkerIdentity

ANY = ("127.0.0.1", 0)
NO_SETTINGS: Mapping[str, object] = {}


@asynccontextmanager
async def two_workers(
    settings: Mapping[str, object] = NO_SETTINGS,
) -> AsyncIterator[list[BrokerServer]]:
    """Run them; the first partition of the first topic is worker 0's."""
    crashes: list[BaseException] = []
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        bootstrap = stack.enter_context(closing(ReservedPorts())).reserve("native", ANY)
        servers = []
        for index in range(2):
            flags = {
                **settings,
                "server.kafka": None,
                "server.native": "127.0.0.1:0",
                "server.memory": True,
                "node.id": index,
            }
            worker = WorkerIdentity(
                index=index, count=2, made_with=2, folder=folder, bootstrap={"native": bootstrap}
            )
            server = BrokerServer(
                kledger.settings.load(flags=flags),
                on_crash=crashes.append,
                member=WorkerMember(worker),
            )
            await server.start()
            stack.push_async_callback(server.stop)
            servers.append(server)
        yield servers
    assert [] == crashes
