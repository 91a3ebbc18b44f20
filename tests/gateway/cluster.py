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
from tests.gateway.node_members import NodeMembersOfTest
from tests.gateway.running import RunningGateway, running_gateway, until

GUARD_S = 60


def named(index: int, count: int, begin: str = "x") -> str:
    """Return a group id or transactional id that broker `index` of so many coordinates."""
    names = (f"{begin}{number}" for number in range(10_000))
    return next(each for each in names if shard_of(each, COORDINATOR_SHARD_COUNT) % count == index)


class ClusterOfTest:
    """Brokers 0 to `count` - 1; of each topic, broker K leads partition K.

    Attributes:
        by_tcp: whether they are nodes, which reach each other by TCP, or workers.
        brokers: those that run, by index.
    """

    by_tcp = False

    def __init__(self, folder: Path, count: int, config: GatewayConfig | None = None) -> None:
        self.count = count
        self.brokers: dict[int, RunningGateway] = {}
        self._config = config or GatewayConfig(group_initial_rebalance_delay_ms=0)
        self._folder = folder
        self._engines = [FaultyEngine(None) for _ in range(count)]
        self._closing: dict[int, AsyncExitStack] = {}
        self._members = NodeMembersOfTest(folder, count) if self.by_tcp else None

    async def start(self, index: int, *, leader_epoch: int = 0) -> RunningGateway:
        """Start a broker."""
        config, worker, member = replace(self._config), None, None
        if self._members is not None:
            member = self._members.member(index + 1)
            config.node_id = index + 1
        else:
            worker = WorkerIdentity(
                index=index,
                count=self.count,
                made_with=self.count,
                folder=str(self._folder),
                bootstrap={},
            )
        async with AsyncExitStack() as stack:
            running = running_gateway(
                config,
                engine=self._engines[index],
                worker=worker,
                member=member,
                leader_epoch=leader_epoch,
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

    async def close(self) -> None:
        """Release what the brokers shared."""
        if self._members is not None:
            await self._members.close()

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
        await cluster.close()
