"""A native service for tests: a store in memory, a clock that the test moves, no sockets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from kledger.batches.reader import iterate_records
from kledger.ledger import Position, StoreConfig
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.testing import FaultyEngine
from kledger.native.broker import ConsumerLink, ConsumerRequest, SeekTarget
from kledger.native.errors import KledgerError
from kledger.native.server.service import NativeService
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import Acknowledgement, Delivery, SubscriptionType
from kledger.topics.cleaner import Cleaner
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.offloading import Offloading
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import batch
from tests.topics.words import CleanerSettings, TopicStore, append, open_topics


@dataclass
class Link:
    """One end of a link: its deliveries, and how it ended."""

    deliveries: list[Delivery] = field(default_factory=list)
    ends: list[KledgerError | None] = field(default_factory=list)
    read_positions: list[Position] = field(default_factory=list)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries += deliveries

    def on_ended(self, error: KledgerError | None) -> None:
        self.ends.append(error)

    @property
    def end_kinds(self) -> list[type]:
        return [type(each) for each in self.ends]

    def values(self) -> list[str]:
        """The values of the records that were meant for this link."""
        found = []
        for each in self.deliveries:
            for index, record in enumerate(iterate_records(each.data)):
                if each.records >> index & 1:
                    assert record.value is not None
                    found.append(record.value.decode())
        return found


@dataclass
class Serving:
    """The objects that a test uses."""

    topics: TopicStore
    service: NativeService
    supervisor: Supervisor
    forgotten: list[UUID]

    async def log(
        self, topic: str = "orders", *, index: int = 0, partitions: int = 1
    ) -> PartitionLog:
        registry = self.topics.registry
        found = registry.get(topic) or await registry.create(topic, partitions=partitions)
        return await found.open_partition(index)

    async def append(self, *values: str, topic: str = "orders", index: int = 0) -> Position:
        """Append one batch as a Kafka producer would; return its position."""
        result = await append(await self.log(topic, index=index), batch(*values))
        assert result.error is None
        assert result.position is not None
        return result.position

    async def consume(
        self,
        link: Link,
        *,
        subscription: str = "s",
        topic: str = "orders",
        partition: int = 0,
        kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
        start: SeekTarget = "earliest",
        permits: int = 1_000,
        reports_read_position: bool = False,
        **more: object,
    ) -> ConsumerLink:
        request = ConsumerRequest(
            topic=topic,
            partition=partition,
            subscription=subscription,
            type=kind,
            start=start,
            **more,  # type: ignore[arg-type]
        )
        consumer = await self.service.open_consumer(
            request,
            deliver=link.deliver,
            on_ended=link.on_ended,
            on_read_position=link.read_positions.append if reports_read_position else None,
        )
        if permits:
            consumer.add_permits(permits)
        return consumer


@asynccontextmanager
async def serving(
    engine: MemoryEngine | FaultyEngine | None = None,
    *,
    auto_create_topics: bool = True,
    store_config: StoreConfig | None = None,
    defaults: TopicDefaults | None = None,
    threads: StoreThreads | None = None,
) -> AsyncIterator[Serving]:
    """Serve; nothing may have crashed at the end."""
    crashes: list[BaseException] = []
    supervisor = Supervisor(crashes.append)
    forgotten: list[UUID] = []

    async def forget(topic_id: UUID) -> None:
        forgotten.append(topic_id)

    async with open_topics(
        engine, store_config=store_config, defaults=defaults, threads=threads
    ) as opened:
        service = NativeService(
            store=opened.store,
            registry=opened.registry,
            clock=opened.clock,
            timers=Timers(opened.clock, supervisor),
            supervisor=supervisor,
            cleaner=Cleaner(
                opened.registry, opened.store, opened.clock, supervisor, CleanerSettings()
            ),
            offloading=Offloading(opened.registry, opened.store, opened.clock, supervisor),
            auto_create_topics=auto_create_topics,
            forget_topic=forget,
        )
        try:
            yield Serving(opened, service, supervisor, forgotten)
        finally:
            await service.close()
            await opened.registry.close()
            await supervisor.close()
    assert [] == crashes


def ack(delivery: Delivery, *indexes: int, size: int | None = None) -> Acknowledgement:
    """Acknowledge records of an entry: the given ones, or those delivered."""
    count = size if size is not None else sum(1 for _ in iterate_records(delivery.data))
    records = sum(1 << index for index in indexes) if indexes else delivery.records
    return Acknowledgement(delivery.position, records, count)


async def ticks(count: int = 30) -> None:
    """Run that many ticks of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)
