"""What native clients ask of topics and subscriptions as wholes; `native.broker.Admin`.

Rule: a topic's subscription is the subscriptions of that name of its partitions; what is asked of
it is asked of every partition. One that some partitions do not have, because they came later, is
there all the same; one that no partition has is SubscriptionNotFound.
Must not know: links.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from uuid import UUID

from kledger.ledger import Position
from kledger.native.broker import (
    MetricsClient,
    PartitionStats,
    PushedClientMetrics,
    RecordLocation,
    RecordPosition,
    SeekTarget,
    SubscriptionStats,
    TopicStats,
)
from kledger.native.errors import ConsumerBusy, InvalidArgument, SubscriptionNotFound
from kledger.native.server.error_map import translating
from kledger.native.server.partition_directory import PartitionDirectory
from kledger.native.server.record_locations import last_record
from kledger.native.server.request_checks import check_count, check_name
from kledger.native.server.seek_target import check_target
from kledger.native.server.subscribed_partition import SubscribedPartition
from kledger.subscriptions.subscription import Subscription
from kledger.topics import TopicRegistry

PARTITIONS_MAX = 100_000
PEEK_ENTRIES_MAX = 1_000


class KafkaClients(Protocol):
    """The server's Kafka clients, of which this room knows nothing."""

    def metrics_clients(self) -> list[MetricsClient]:
        """Return those that can push metrics."""
        ...

    def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return what one of them pushed last."""
        ...


class ServiceAdmin:
    """The part of the service that needs no link."""

    def __init__(
        self,
        registry: TopicRegistry,
        partitions: PartitionDirectory,
        *,
        forget_topic: Callable[[UUID], Awaitable[None]] | None = None,
        kafka_clients: KafkaClients | None = None,
    ) -> None:
        self._registry = registry
        self._partitions = partitions
        self._forget_topic = forget_topic
        self._kafka_clients = kafka_clients

    # Topics

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Make a topic. Raises TopicExists, InvalidArgument."""
        check_count("partitions", partitions, 1, PARTITIONS_MAX)
        with translating():
            await self._registry.create(name, partitions=partitions, configs=config)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic with its subscriptions. Raises TopicNotFound."""
        topic = self._partitions.topic(name)
        with translating():
            await self._registry.delete(topic.name, topic_id=topic.id)
            if self._forget_topic is not None:
                await self._forget_topic(topic.id)

    async def topics(self) -> list[str]:
        """Return all names, sorted."""
        return [topic.name for topic in self._registry.all()]

    async def topic_stats(self, name: str) -> TopicStats:
        """Return a topic's numbers."""
        opened = await self._partitions.open_all(name)
        return TopicStats(
            name=self._partitions.topic(name).name,
            partitions=tuple(
                PartitionStats(
                    each.log.log_start_offset, each.log.high_watermark, each.log.size_bytes
                )
                for each in opened
            ),
            subscriptions=_names(opened),
        )

    async def create_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        check_count("count", count, 1, PARTITIONS_MAX)
        topic = self._partitions.topic(name)
        with translating():
            await self._registry.create_partitions(topic.name, count)

    async def terminate(self, name: str) -> list[RecordLocation]:
        """Let nothing be added any more; return the newest record of each partition.

        It may be repeated, and is to be when it fails halfway.
        """
        ends = []
        for opened in await self._partitions.open_all(name):
            with opened.translating():
                await opened.log.terminate()
                ends.append(await last_record(opened))
        return ends

    # Subscriptions: making, looking, removing

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        return list(_names(await self._partitions.open_all(topic)))

    async def create_subscription(self, topic: str, name: str, start: SeekTarget) -> None:
        """Make a durable subscription without a consumer; nothing if there is one."""
        check_name("subscription", name)
        check_target(start)
        opened = await self._partitions.open_all(topic)
        _check_one_partition(opened, start)
        for each in opened:
            with each.translating():
                await each.open_subscription(name, start)

    async def delete_subscription(self, topic: str, name: str, *, force: bool) -> None:
        """Remove one. Raises ConsumerBusy while it has consumers, unless they are sent away."""
        found = await self._find(topic, name)
        for _, subscription in found:
            consumers = subscription.stats().consumers
            if consumers and not force:
                raise ConsumerBusy(
                    f"subscription {name!r} of {topic} has consumers: {', '.join(consumers)}"
                )
        for opened, _ in found:
            with opened.translating():
                await opened.subscriptions.delete(name, force=force)

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return its numbers."""
        found = await self._find(topic, name)
        backlog = 0
        for opened, subscription in found:
            with opened.translating():
                backlog += await opened.backlog(subscription)
        each = [subscription.stats() for _, subscription in found]
        return SubscriptionStats(
            type=next((str(one.type) for one in each if one.type is not None), None),
            backlog=backlog,
            unacknowledged=sum(one.unacknowledged for one in each),
            consumers=tuple(sorted({name for one in each for name in one.consumers})),
            redelivery_rate=sum(opened.redelivery_rate(one) for opened, one in found),
            revision_num=max(one.revision_num for one in each),
            is_under_revision=any(one.is_under_revision for one in each),
        )

    async def peek(
        self, topic: str, name: str, count: int
    ) -> list[tuple[int, Position, bytes, int]]:
        """Return what would come next: (partition, position, batch, records) of whole entries."""
        check_count("count", count, 1, PEEK_ENTRIES_MAX)
        peeked = []
        for opened, subscription in await self._find(topic, name):
            with opened.translating():
                peeked += [
                    (opened.log.index, each.position, bytes(each.data), each.records)
                    for each in await subscription.peek(count)
                ]
        return peeked

    # Subscriptions: setting where they stand

    async def reset_subscription(
        self, topic: str, name: str, target: SeekTarget, *, partition: int | None, inclusive: bool
    ) -> None:
        """Set where it stands, in one partition or all; its consumers connect again."""
        check_target(target)
        if partition is None:
            found = await self._find(topic, name)
            _check_one_partition([opened for opened, _ in found], target)
        else:
            found = _having([await self._partitions.open(topic, partition)], name)
        for opened, subscription in found:
            with opened.translating():
                await opened.reset(subscription, target, is_inclusive=inclusive)

    async def skip_messages(self, topic: str, name: str, count: int) -> None:
        """Acknowledge the next so many messages of every partition."""
        check_count("count", count)
        for opened, subscription in await self._find(topic, name):
            with opened.translating():
                await subscription.skip(count)

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge everything that can be seen."""
        for opened, subscription in await self._find(topic, name):
            with opened.translating():
                await opened.clear_backlog(subscription)

    # Kafka clients

    async def metrics_clients(self) -> list[MetricsClient]:
        """Return those that can push metrics, who pushed last comes last."""
        return [] if self._kafka_clients is None else self._kafka_clients.metrics_clients()

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return what one of them pushed last; None: there is none of that id."""
        clients = self._kafka_clients
        return None if clients is None else clients.client_metrics(instance_id)

    async def _find(self, topic: str, name: str) -> list[tuple[SubscribedPartition, Subscription]]:
        """Return the subscription of every partition that has it. Raises SubscriptionNotFound."""
        return _having(await self._partitions.open_all(topic), name)


def _having(
    opened: list[SubscribedPartition], name: str
) -> list[tuple[SubscribedPartition, Subscription]]:
    found = [
        (each, subscription)
        for each in opened
        if (subscription := each.subscriptions.get(name)) and not subscription.is_closed
    ]
    if not found:
        raise SubscriptionNotFound(
            f"topic {opened[0].topic.name} has no subscription {name[:300]!r}"
        )
    return found


def _names(opened: list[SubscribedPartition]) -> tuple[str, ...]:
    return tuple(sorted({name for each in opened for name in each.subscriptions.names()}))


def _check_one_partition(opened: list[SubscribedPartition], target: SeekTarget) -> None:
    """A message lies in one partition, and says nothing of others."""
    if isinstance(target, RecordPosition) and len(opened) > 1:
        raise InvalidArgument(
            f"target: a message of one partition, expected a time for all {len(opened)} of them"
        )
