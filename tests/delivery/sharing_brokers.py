"""Brokers that share topics for tests: each with a store of its own in memory."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kledger.delivery.partition_directory import PartitionDirectory
from kledger.ledger import LedgerStore
from kledger.ledger.shared_tables import SharedTables
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import TopicRegistry
from kledger.topics.placement import Placement
from kledger.topics.registry import TopicCluster
from tests.batches.words import NOW_MS

BROKERS = (0, 1, 2)


@dataclass
class SharingBroker:
    """One broker; it looks for what others have changed when it is asked for what it lacks."""

    clock: ManualClock
    supervisor: Supervisor
    store: LedgerStore
    registry: TopicRegistry
    tables: SharedTables
    partitions: PartitionDirectory


@asynccontextmanager
async def broker(folder: Path, number: int, engine: FaultyEngine) -> AsyncIterator[SharingBroker]:
    async with AsyncExitStack() as stack:
        clock, supervisor = ManualClock(NOW_MS), Supervisor()
        stack.push_async_callback(supervisor.close)
        store = await stack.enter_async_context(LedgerStore.open(None, engine=engine, clock=clock))
        tables = await SharedTables.open(
            folder, containment=store.containment, clock=clock, supervisor=supervisor
        )
        stack.push_async_callback(tables.close)
        registry = await TopicRegistry.open(
            store, clock=clock, cluster=TopicCluster(tables, Placement(number, BROKERS))
        )
        stack.push_async_callback(registry.close)
        partitions = PartitionDirectory(
            registry,
            clock=clock,
            timers=Timers(clock, supervisor),
            supervisor=supervisor,
            refresh=tables.refresh,
        )
        stack.push_async_callback(partitions.close)
        yield SharingBroker(clock, supervisor, store, registry, tables, partitions)


@asynccontextmanager
async def brokers(
    folder: Path, engines: Sequence[FaultyEngine]
) -> AsyncIterator[list[SharingBroker]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(broker(folder, number, engine))
            for number, engine in enumerate(engines)
        ]
