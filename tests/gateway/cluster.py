"""Brokers of one cluster in one process, which share tables and reach each other by their sockets.

Each has a store, a clock and a listener of its own. A broker that is stopped can be started again,
over what its store had.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kledger.gateway.cluster import Cluster
from kledger.gateway.cluster_brokers import BrokerRecord, ClusterBrokers
from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.coordinator_shards_state import shard_of
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.gateway.net.server import GatewayServer
from kledger.gateway.opening import open_services
from kledger.gateway.peers.peer_link import connect_to
from kledger.gateway.peers.peer_socket import bind_peer_socket
from kledger.gateway.peers.peers import Peers
from kledger.ledger import LedgerStore
from kledger.ledger.shared_tables import SharedTables
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import TopicRegistry
from kledger.topics.placement import Placement
from kledger.topics.registry import TopicCluster
from tests.gateway.running import START_MS, RunningGateway, until

GUARD_S = 60


def named(broker_id: int, count: int, begin: str = "x") -> str:
    """Return a group id or transactional id that a broker of so many coordinates."""
    names = (f"{begin}{number}" for number in range(10_000))
    return next(
        name for name in names if shard_of(name, COORDINATOR_SHARD_COUNT) % count == broker_id
    )


class ClusterOfTest:
    """Brokers 0 to `count` - 1; broker K leads partition K of topics with as many partitions."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count
        self.engines = [FaultyEngine(None) for _ in range(count)]
        self.brokers: dict[int, RunningGateway] = {}
        self._closing: dict[int, AsyncExitStack] = {}
        self._starts = 0

    async def start(self, broker_id: int, config: GatewayConfig | None = None) -> RunningGateway:
        """Start a broker."""
        (self.folder / str(broker_id)).mkdir(exist_ok=True)
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(self._broker(broker_id, config))
            self._closing[broker_id] = stack.pop_all()
        self.brokers[broker_id] = broker
        return broker

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        del self.brokers[broker_id]
        await self._closing.pop(broker_id).aclose()

    async def create_topic(self, name: str = "t") -> None:
        """Create a topic that every broker knows, with one partition on each."""
        first = next(iter(self.brokers.values()))
        await first.services.registry.create(
            name, partitions=self.count, assigned=range(self.count)
        )
        registries = [each.services.registry for each in self.brokers.values()]
        async with asyncio.timeout(GUARD_S):
            await until(lambda: all(each.get(name) is not None for each in registries))

    @asynccontextmanager
    async def _broker(
        self, broker_id: int, config: GatewayConfig | None
    ) -> AsyncIterator[RunningGateway]:
        config = config or GatewayConfig(group_initial_rebalance_delay_ms=0)
        config.cluster_id, config.node_id = "cluster-for-tests-0000", broker_id
        clock, engine = ManualClock(START_MS), self.engines[broker_id]
        crashes: list[BaseException] = []
        self._starts += 1
        async with AsyncExitStack() as closing:
            store = await closing.enter_async_context(
                LedgerStore.open(None, engine=engine, clock=clock)
            )
            supervisor = Supervisor(crashes.append, store.containment)
            tables = await SharedTables.open(
                self.folder, containment=store.containment, clock=clock, supervisor=supervisor
            )
            closing.push_async_callback(tables.close)
            closing.push_async_callback(supervisor.close)
            timers = Timers(clock, supervisor)
            brokers = ClusterBrokers(tables, broker_id, range(self.count))
            cluster = Cluster(
                TopicCluster(tables, Placement(broker_id, range(self.count))),
                brokers,
                Peers(
                    lambda other: connect_to(self.folder / str(other)),
                    clock=clock,
                    timers=timers,
                    supervisor=supervisor,
                ),
            )
            registry = await TopicRegistry.open(store, None, clock, cluster=cluster.topics)
            closing.push_async_callback(registry.close)
            services = open_services(
                store,
                registry,
                cluster=cluster,
                config=config,
                clock=clock,
                timers=timers,
                supervisor=supervisor,
                entropy=SeededEntropy(self._starts),
            )
            server = GatewayServer(services)
            host, port = await server.start("127.0.0.1", 0)
            await server.start_peers(bind_peer_socket(self.folder / str(broker_id)))
            await brokers.register(BrokerRecord(broker_id, {"PLAINTEXT": (host, port)}, ""))
            closing.push_async_callback(server.stop, grace_ms=0)
            closing.callback(services.close)
            yield RunningGateway(server, services, clock, engine, crashes, host, port)
        assert [] == crashes


@asynccontextmanager
async def running_cluster(folder: Path, count: int = 2) -> AsyncIterator[ClusterOfTest]:
    """Run all brokers, with the topic `t`."""
    cluster = ClusterOfTest(folder, count)
    try:
        for broker_id in range(count):
            await cluster.start(broker_id)
        await cluster.create_topic()
        yield cluster
    finally:
        for broker_id in list(cluster.brokers):
            await cluster.stop(broker_id)
