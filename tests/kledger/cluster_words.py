"""Words of the tests of brokers without disks: a cluster, and brokers that run in this process."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from kledger.cluster_broker import ClusterBroker
from kledger.ledger.cluster import PostgresDatabase
from kledger.nodes.node_server import NodeServer
from kledger.settings import Settings, load
from kledger.wiring import CannotStart


class Cluster:
    """A cluster that was made, and the settings of its brokers."""

    def __init__(self, url: str, store: str, *, nodes: int = 1) -> None:
        self.url, self.store = url, store
        self.database = PostgresDatabase(url)
        self.database.create(cluster_id="test-cluster", store=self.store, nodes=nodes)

    def settings(self, broker_id: int = 1, native: bool = True, /, **flags: object) -> Settings:
        """Return settings; a test that starts processes has no native listener, as gRPC forks."""
        if native:
            flags["server.native"] = "127.0.0.1:0"
        return load(
            flags={
                "cluster.url": self.url,
                "cluster.store": self.store,
                "cluster.sql_asynchronous": True,
                "kafka.node_id": broker_id,
                "server.kafka": "127.0.0.1:0",
                **flags,
            }
        )

    def fence_owner(self) -> None:
        """Close the owner's session, as a standby does that does not see it move."""
        while (seen := self.database.observe()) is not None:
            if self.database.fence(*seen):
                return


class Running:
    """A broker that runs as a task, and what it has announced."""

    def __init__(self, settings: Settings, make: type[ClusterBroker | NodeServer]) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        broker = make(settings, announce=self.lines.put_nowait)
        self.task = asyncio.ensure_future(broker.run(self.ending))

    async def line(self) -> str:
        """Return the next line that it announces; raise what has ended it instead."""
        getting = asyncio.ensure_future(self.lines.get())
        await asyncio.wait({getting, self.task}, timeout=60, return_when="FIRST_COMPLETED")
        if not getting.done():
            getting.cancel()
            assert self.task.done(), "it announced nothing"
            self.task.result()
        return await getting

    async def standby_address(self) -> str:
        found = re.fullmatch(r"kledger standby admin=(\S+)", line := await self.line())
        assert found is not None, line
        return found[1]

    async def native(self) -> str:
        """Wait until it is the owner; return its address for native clients."""
        return (await self.addresses())["native"]

    async def addresses(self) -> dict[str, str]:
        """Wait until it is the owner; return its addresses."""
        line = await self.line()
        while line.startswith("kledger standby "):
            line = await self.line()
        assert line.startswith("kledger ready "), line
        return dict(re.findall(r"(\w+)=(\S+)", line))

    async def end(self) -> int:
        if not self.ending.done():
            self.ending.set_result(0)
        return await self.task


@asynccontextmanager
async def running(
    settings: Settings, make: type[ClusterBroker | NodeServer] = ClusterBroker
) -> AsyncIterator[Running]:
    made = Running(settings, make)
    try:
        yield made
    finally:
        with suppress(CannotStart):
            await made.end()
