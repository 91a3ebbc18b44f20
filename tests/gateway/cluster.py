"""Brokers of one cluster that end and start again, each over what its store had."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.coordinator_shards_state import shard_of
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.ledger.testing import FaultyEngine
from kledger.workers.worker_identity import WorkerIdentity
from tests.gateway.running import RunningGateway, running_gateway, until

GUARD_S = 60


def named(index: int, count: int, begin: str = "x") -> str:
    """Return a group id or transactional id that broker `index` of so many coordinates."""
    names = (f"{begin}{number}" for number in range(10_000))
    return next(each for each in names if shard_of(each, COORDINATOR_SHARD_COUNT) % count == index)


class ClusterOfTest:
    """Brokers 0 to `count` - 1; of each topic, broker K leads partition K.

    Attributes:
        brokers: those that run, by index.
    """

    def __init__(self, folder: Path, count: int, config: GatewayConfig | None = None) -> None:
        self.count = count
        self.brokers: dict[int, RunningGateway] = {}
        self._config = config or GatewayConfig(group_initial_rebalance_delay_ms=0)
        self._folder = folder
        self._engines = [FaultyEngine(None) for _ in range(count)]
        self._closing: dict[int, AsyncExitStack] = {}

    async def start(self, index: int, *, leader_epoch: int = 0) -> RunningGateway:
        """Start a broker."""
        worker = WorkerIdentity(
            index=index,
            count=self.count,
            made_with=self.count,
            folder=str(self._folder),
            bootstrap={},
        )
        engine = self._engines[index]
        async with AsyncExitStack() as stack:
            running = running_gateway(
                replace(self._config), engine=engine, worker=worker, leader_epoch=leader_epoch
            )
            broker = self.brokers[index] = await stack.enter_async_context(running)
            self._closing[index] = stack.pop_all()
        return broker

    async def stop(self, index: int, *, is_crash: bool = False) -> None:
        """Stop a broker; after a crash its store lacks what was not synced."""
        if is_crash:
            self._engines[index].drop_unsynced()
        del self.brokers[index]
        await self._closing.pop(index).aclose()

    async def create_topic(self, name: str = "t") -> None:
        """Create a topic that every broker knows, with one partition on each."""
        registries = [each.services.registry for each in self.brokers.values()]
        ids = [each.services.config.node_id for each in self.brokers.values()]
        await registries[0].create(name, partitions=len(ids), assigned=ids)
        async with asyncio.timeout(GUARD_S):
            await until(lambda: all(each.get(name) is not None for each in registries))


@asynccontextmanager
async def running_cluster(
    folder: Path, count: int = 2, config: GatewayConfig | None = None
) -> AsyncIterator[ClusterOfTest]:
    """Run brokers, with the topic `t`."""
    cluster = ClusterOfTest(folder, count, config)
    try:
        for index in range(count):
            await cluster.start(index)
        await cluster.create_topic()
        yield cluster
    finally:
        for index in list(cluster.brokers):
            await cluster.stop(index)
