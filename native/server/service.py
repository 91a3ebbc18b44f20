"""NativeService: `native.broker.Broker` inside the server's process, for native clients.

Rule: everything that comes from a client is checked here or by the room that takes it, and all that
rooms below raise leaves in the words of `native.errors`. Partitions are opened when they are
wanted, links end with their partition.
Must not know: whether its client sits in the same process, and the Kafka façade.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from uuid import UUID

from kledger.ledger import LedgerStore
from kledger.native.broker import (
    ConsumerLink,
    ConsumerRequest,
    OnEnded,
    ProducerLink,
    RecordLocation,
    RecordPosition,
    TopicInfo,
)
from kledger.native.errors import NotAllowed, TopicNotFound, TopicTerminated
from kledger.native.server.admin import KafkaClients, ServiceAdmin
from kledger.native.server.consumer_link import ServerConsumerLink
from kledger.native.server.error_map import translating
from kledger.native.server.partition_directory import PartitionDirectory
from kledger.native.server.producer_link import ServerProducerLink
from kledger.native.server.record_locations import last_record, offset_of, record_at
from kledger.native.server.request_checks import check_request
from kledger.native.server.seek_target import check_target
from kledger.native.server.subscribed_partition import SubscribedPartition
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import Deliver
from kledger.subscriptions.subscription import Subscription
from kledger.topics import Topic, TopicRegistry
from kledger.topics.errors import TopicAlreadyExists

ForgetTopic = Callable[[UUID], Awaitable[None]]


class NativeService(ServiceAdmin):
    """One per server; every native client of the server has the same one."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        registry: TopicRegistry,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
        auto_create_topics: bool = True,
        forget_topic: ForgetTopic | None = None,
        kafka_clients: KafkaClients | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        `lookup` makes topics only with `auto_create_topics`; `forget_topic` is called when a topic
        was deleted, for what others keep of it; `kafka_clients` are those of the same server.
        """
        partitions = PartitionDirectory(registry, clock=clock, timers=timers, supervisor=supervisor)
        super().__init__(
            registry, partitions, forget_topic=forget_topic, kafka_clients=kafka_clients
        )
        self._store = store
        self._auto_create_topics = auto_create_topics
        self._consumer_numbers = count(1)

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic; see `native.broker.Broker`."""
        try:
            found = self._partitions.topic(topic)
        except TopicNotFound:
            if not (create and self._auto_create_topics):
                raise
            found = await self._create(topic)
        return TopicInfo(found.name, found.partition_count)

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> ProducerLink:
        """Open a way to append; see `native.broker.Broker`. Nobody asks for the name yet."""
        opened = await self._partitions.open(topic, partition)
        if opened.log.is_terminated:
            raise TopicTerminated(f"partition {opened.name} is terminated")
        return ServerProducerLink(opened, self._store, on_ended)

    async def open_consumer(
        self, request: ConsumerRequest, *, deliver: Deliver, on_ended: OnEnded
    ) -> ConsumerLink:
        """Join a subscription; see `native.broker.Broker`."""
        check_request(request)
        if not request.consumer_name:
            name = f"consumer-{next(self._consumer_numbers)}"
            request = replace(request, consumer_name=name)
        opened = await self._partitions.open(request.topic, request.partition)
        with opened.translating():
            subscription = await _open_subscription(opened, request)
            link = ServerConsumerLink(
                opened, subscription, request, deliver=deliver, on_ended=on_ended
            )
            await link.join()
        return link

    async def last_record(self, topic: str, partition: int) -> RecordLocation:
        """Return the newest record that can be read; see `native.broker.Broker`."""
        opened = await self._partitions.open(topic, partition)
        with opened.translating():
            return await last_record(opened)

    async def record_at(self, topic: str, partition: int, offset: int) -> RecordLocation:
        """Return the record with that offset; see `native.broker.Broker`."""
        opened = await self._partitions.open(topic, partition)
        with opened.translating():
            return await record_at(opened, offset)

    async def offset_of(self, topic: str, partition: int, record_position: RecordPosition) -> int:
        """Return the offset of a record; see `native.broker.Broker`."""
        check_target(record_position)
        opened = await self._partitions.open(topic, partition)
        with opened.translating():
            return await offset_of(opened, record_position)

    async def close(self) -> None:
        """End every link, close every subscription; may be repeated."""
        await self._partitions.close()

    async def _create(self, name: str) -> Topic:
        with translating():
            try:
                return await self._registry.create(name)
            except TopicAlreadyExists:  # somebody else was faster
                return self._partitions.topic(name)


async def _open_subscription(opened: SubscribedPartition, request: ConsumerRequest) -> Subscription:
    """Return the subscription of a request, made at its start when there is none."""
    name = request.subscription
    subscription = await opened.open_subscription(
        name,
        request.start,
        is_inclusive=request.is_start_inclusive,
        is_durable=request.is_durable,
    )
    if subscription.is_durable != request.is_durable:
        kinds = {True: "durable", False: "not durable"}
        raise NotAllowed(
            f"subscription {name!r} of {opened.name} is {kinds[subscription.is_durable]}, "
            f"the consumer wants one that is {kinds[request.is_durable]}"
        )
    return subscription
