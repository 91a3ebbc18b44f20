"""A gateway for tests: real sockets, a store in memory, a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import UUID

from kledger.batches.builder import NewRecord, build_batch
from kledger.cluster import ClusterMember, WorkerMember
from kledger.gateway.config import GatewayConfig
from kledger.gateway.net.server import ConnectionMaker, GatewayServer
from kledger.gateway.opening import open_services
from kledger.gateway.request_context import plain_listener
from kledger.gateway.services import Services
from kledger.gateway.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kledger.gateway.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import Topic, TopicDefaults, TopicRegistry
from kledger.workers.worker_identity import WorkerIdentity
from kledger.workers.worker_plan import worker_folder
from tests.gateway.wire_client import WireClient
from tests.topics.tier_words import MemoryFolders

START_MS = 1_700_000_000_000


@dataclass
class RunningGateway:
    """What a test can reach."""

    server: GatewayServer
    services: Services
    clock: ManualClock
    engine: FaultyEngine
    crashes: list[BaseException]
    host: str
    port: int

    def client(self) -> WireClient:
        """Return a client that connects when it is entered."""
        return WireClient(self.host, self.port)

    def knows(self, count: int) -> bool:
        """Whether its clients are shown so many brokers."""
        return len(self.services.brokers.all(plain_listener(self.services.config))) == count

    async def parked(self) -> None:
        """Wait until some connection waits for a request that runs alone."""
        await until(lambda: any(one.state.is_exclusive for one in self.server.connections))

    async def create_topic(
        self, name: str = "t", *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> Topic:
        """Create a topic and open its partitions."""
        topic = await self.services.registry.create(
            name, partitions=partitions, configs=configs or {}
        )
        for index in range(partitions):
            await topic.open_partition(index)
        return topic


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until the condition holds."""
    while not condition():  # noqa: ASYNC110 (ticks of the loop, no time)
        await asyncio.sleep(0)


@asynccontextmanager
async def running_gateway(
    config: GatewayConfig | None = None,
    *,
    engine: FaultyEngine | None = None,
    queue_count_max: int = 100_000,
    cache_bytes: int = 64 << 20,
    make_connection: ConnectionMaker | None = None,
    threads: StoreThreads | None = None,
    tier: MemoryFolders | None = None,
    worker: WorkerIdentity | None = None,
    member: ClusterMember | None = None,
    leader_epoch: int = 0,
) -> AsyncIterator[RunningGateway]:
    """Run a gateway, alone, as a worker or as a member; it must not have crashed at the end."""
    engine = engine or FaultyEngine(None)
    config = config or GatewayConfig(group_initial_rebalance_delay_ms=0)
    config.cluster_id = config.cluster_id or "cluster-for-tests-0000"
    clock = ManualClock(START_MS)
    crashes: list[BaseException] = []
    storage = StoreConfig(committer_queue_count_max=queue_count_max, cache_bytes=cache_bytes)
    async with LedgerStore.open(
        None, config=storage, engine=engine, clock=clock, threads=threads, offloaders=tier
    ) as store:
        supervisor = Supervisor(crashes.append, store.containment)
        timers = Timers(clock, supervisor)
        shared = None
        if worker is not None:
            config.node_id += worker.index
            member = WorkerMember(worker)
            _make_folder(worker)
        if member is not None:
            shared = await member.open(
                config, containment=store.containment, clock=clock, supervisor=supervisor
            )
        cluster = None if shared is None else shared.cluster
        registry = await TopicRegistry.open(
            store,
            TopicDefaults(),
            clock,
            tier=tier,
            cluster=None if cluster is None else cluster.topics,
            leader_epoch=leader_epoch,
        )
        services = open_services(
            store,
            registry,
            cluster=cluster,
            config=config,
            clock=clock,
            timers=timers,
            supervisor=supervisor,
            entropy=SeededEntropy(1),
        )
        server = GatewayServer(services, make_connection)
        host, port = await server.start("127.0.0.1", 0)
        if shared is not None:
            await server.start_peers(shared.transport)
            await shared.register(config, (), "", leader_epoch=registry.leader_epoch)
        try:
            yield RunningGateway(server, services, clock, engine, crashes, host, port)
        finally:
            services.close()
            await server.stop(grace_ms=0)
            await registry.close()
            if shared is not None:
                await shared.close()
            await supervisor.close()
    assert [] == crashes


def _make_folder(worker: WorkerIdentity) -> None:
    """Make the folder of the socket, as the store in memory makes none."""
    Path(worker_folder(worker.folder, worker.index)).mkdir(exist_ok=True)


@asynccontextmanager
async def running_brokers(
    folder: Path, count: int = 2, config: GatewayConfig | None = None
) -> AsyncIterator[list[RunningGateway]]:
    """Run the brokers of one cluster, each with a store in memory; wait until all know all."""
    async with AsyncExitStack() as exits:
        brokers = []
        for index in range(count):
            worker = WorkerIdentity(
                index=index, count=count, made_with=count, folder=str(folder), bootstrap={}
            )
            given = replace(config or GatewayConfig(group_initial_rebalance_delay_ms=0))
            brokers.append(await exits.enter_async_context(running_gateway(given, worker=worker)))
        for each in brokers:
            await until(partial(each.knows, count))
        yield brokers


def produce(
    batches: dict[int, bytes | None],
    *,
    topic: str = "t",
    topic_id: UUID = ZERO_UUID,
    acks: int = -1,
) -> ProduceRequest:
    """Build a request for one topic: partition to records."""
    data = [PartitionProduceData(index=one, records=records) for one, records in batches.items()]
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )


def fetch(
    offsets: dict[int, int],
    *,
    topic: str = "t",
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    leader_epoch: int = -1,
) -> FetchRequest:
    """Build a request for one topic: partition to offset."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=one,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for one, offset in offsets.items()
                ],
            )
        ],
    )


def fetch_by_id(topic_id: UUID, offsets: dict[int, int]) -> FetchRequest:
    """Build a request for one topic, as versions from 13 on have it; no topic without offsets."""
    request = fetch(offsets)
    request.topics[0].topic_id = topic_id
    if not offsets:
        request.topics = []
    return request


def batch(*values: bytes, timestamp: int = START_MS) -> bytes:
    """Build a batch of records without keys."""
    return bytes(build_batch([NewRecord(value, timestamp=timestamp) for value in values]))
