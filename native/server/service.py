"""NativeService: `native.broker.Broker` inside the server's process, for native clients.

Rule: every argument of a client is checked here or by the lower package that uses it, and errors of
the packages below are translated to `native.errors`. Partitions are opened on demand; links end
with their partition. A topic's subscription consists of the subscriptions of that name in its
partitions; a partition that was added later may not have it yet. If no partition has it, the answer
is SubscriptionNotFound.
A broker of a cluster answers for the partitions that it leads; the client asks all leaders of a
topic and combines what they answer.
Must not know: whether its client runs in the same process, the Kafka façade.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol
from uuid import UUID

from kledger.delivery.errors import PartitionIndexOutOfRange
from kledger.delivery.partition_directory import PartitionDirectory
from kledger.delivery.record_locations import committed_end, last_record, offset_of, record_at
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.ledger import LedgerStore, Position
from kledger.named_topics.group_functions import FunctionSettings
from kledger.named_topics.model import (
    ChannelAllocation,
    ChannelEnds,
    ChannelPoll,
    ChannelPollResult,
    CommitOutcome,
    CommitRequest,
    NamedTopicInfo,
    NamedTopicOptions,
    SeekOutcome,
    SeekRequest,
    SubscriberGroupInfo,
    SubscriberJoin,
)
from kledger.named_topics.service import NamedTopicService
from kledger.native.broker import (
    EARLIEST,
    LATEST,
    NUMBER_MAX,
    ConsumerLink,
    ConsumerRequest,
    LedgerStats,
    MetricsClient,
    OnEnded,
    OnReadPosition,
    PartitionStats,
    ProducerLink,
    PushedClientMetrics,
    RecordLocation,
    RecordPosition,
    SeekTarget,
    SubscriptionStats,
    TopicCompactionStatus,
    TopicInfo,
    TopicOffloadStatus,
    TopicStats,
)
from kledger.native.errors import (
    ConsumerBusy,
    InvalidArgument,
    NotAllowed,
    SubscriptionNotFound,
    TopicNotFound,
    TopicTerminated,
)
from kledger.native.server.consumer_link import ServerConsumerLink
from kledger.native.server.error_map import translating
from kledger.native.server.producer_link import ServerProducerLink
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import Deliver
from kledger.subscriptions.subscription import (
    PEEK_ENTRIES_MAX,
    SINGLE_ACTIVE_TYPES,
    Subscription,
)
from kledger.topics import PartitionLog, Topic, TopicRegistry
from kledger.topics.cleaner import Cleaner
from kledger.topics.config.policies import policies_of, policy_configs
from kledger.topics.errors import TopicAlreadyExists
from kledger.topics.offloading import Offloading
from kledger.topics.partition.compacted_log import CompactedUpTo
from kledger.topics.topic_names import is_namespace

ForgetTopic = Callable[[UUID], Awaitable[None]]

PARTITIONS_MAX = 100_000
NAME_SIZE_MAX = 255
COUNT_MAX = (1 << 31) - 1
DELAY_MS_MAX = 24 * 3_600_000
KEY_RANGES_MAX = 1_024


class KafkaClients(Protocol):
    """The Kafka clients of the same server."""

    def metrics_clients(self) -> list[MetricsClient]:
        """Return the clients that can push metrics; the last to push comes last."""
        ...

    def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return the last metrics that a client pushed; None: there is no client of that id."""
        ...


class NativeCluster(Protocol):
    """The other brokers of the same cluster."""

    @property
    def broker_ids(self) -> Sequence[int]:
        """All of them and this one, ascending."""
        ...

    def address_of(self, broker_id: int) -> str:
        """Return HOST:PORT for native clients of a broker; empty: it is not known yet."""
        ...

    async def refresh(self) -> None:
        """Apply what other brokers have changed before this call.

        Raises:
            LedgerError: it is not known.
        """
        ...


class NativeService:
    """The broker of all native clients of one server; see `native.broker` for its methods."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        registry: TopicRegistry,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
        cleaner: Cleaner,
        offloading: Offloading,
        auto_create_topics: bool = True,
        forget_topic: ForgetTopic | None = None,
        kafka_clients: KafkaClients | None = None,
        function_modules: Sequence[str] = (),
        function_settings: FunctionSettings = FunctionSettings(),  # noqa: B008 - a value
        cluster: NativeCluster | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            store: holds the partitions of the registry.
            registry: the topics.
            clock: for rates and timestamps.
            timers: of the subscriptions.
            supervisor: of background tasks.
            cleaner: compacts topics.
            offloading: offloads topics.
            auto_create_topics: whether `lookup` may create topics.
            forget_topic: called when a topic was deleted, to delete what else refers to it.
            kafka_clients: of the same server.
            function_modules: those of which subscriber groups may name functions.
            function_settings: the limits of those functions.
            cluster: the broker's; None: the server is alone.
        """
        self._store = store
        self._registry = registry
        self._cluster = cluster
        self._partitions = PartitionDirectory(
            registry,
            clock=clock,
            timers=timers,
            supervisor=supervisor,
            refresh=None if cluster is None else cluster.refresh,
        )
        self._cleaner = cleaner
        self._offloading = offloading
        self._forget_topic = forget_topic
        self._kafka_clients = kafka_clients
        self._auto_create_topics = auto_create_topics
        self._consumer_numbers = count(1)
        self._named_topics = NamedTopicService(
            store=store,
            registry=registry,
            partitions=self._partitions,
            clock=clock,
            timers=timers,
            supervisor=supervisor,
            function_modules=function_modules,
            function_settings=function_settings,
        )

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic, and create it if that is allowed."""
        try:
            found = await self._topic(topic)
        except TopicNotFound:
            if not (create and self._auto_create_topics):
                raise
            found = await self._create(topic)
        leaders = found.record.leaders
        addresses = await self._addresses_of(set(leaders))
        return TopicInfo(
            found.name, found.partition_count, tuple([addresses[each] for each in leaders])
        )

    async def broker_addresses(self) -> list[str]:
        """Return HOST:PORT of each broker of the cluster, by id; without a cluster nothing.

        Before that, all that other brokers have changed is applied: clients rely on it.

        Raises:
            Unavailable: it is not known what they have changed.
        """
        if self._cluster is None:
            return []
        with translating():
            await self._cluster.refresh()
        return [self._cluster.address_of(each) for each in self._cluster.broker_ids]

    async def _addresses_of(self, broker_ids: Collection[int]) -> dict[int, str]:
        """Return what native clients connect to; an empty text for a broker that has not begun."""
        cluster = self._cluster
        if cluster is None:
            return {}
        addresses = {each: cluster.address_of(each) for each in broker_ids}
        if "" in addresses.values():
            with translating():
                await cluster.refresh()
            addresses = {each: cluster.address_of(each) for each in broker_ids}
        return addresses

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> ProducerLink:
        """Open a link that appends to a partition; the name is not used yet."""
        opened = await self._open(topic, partition)
        if opened.log.is_terminated:
            raise TopicTerminated(f"partition {opened.name} is terminated")
        capacity = self._named_topics.capacities.of(opened.topic)
        return ServerProducerLink(opened, self._store, on_ended, capacity)

    async def open_consumer(
        self,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None = None,
    ) -> ConsumerLink:
        """Join a subscription; it is created if it is missing."""
        check_request(request)
        if not request.consumer_name:
            name = f"consumer-{next(self._consumer_numbers)}"
            request = replace(request, consumer_name=name)
        opened = await self._open(request.topic, request.partition)
        with translating(opened):
            subscription = await _open_subscription(opened, request)
            link = ServerConsumerLink(
                opened,
                subscription,
                request,
                deliver=deliver,
                on_ended=on_ended,
                on_read_position=on_read_position,
            )
            await link.join()
        return link

    async def last_record(self, topic: str, partition: int) -> RecordLocation:
        """Return the newest record that can be read, or NO_RECORD."""
        opened = await self._open(topic, partition)
        with translating(opened):
            return await last_record(opened.log, opened.visibility_filter)

    async def committed_ends(self, topic: str) -> list[Position]:
        """Return for each led partition the position behind the last entry that can be read."""
        ends = []
        for opened in await self._open_all(topic):
            with translating(opened):
                ends.append(await committed_end(opened.log))
        return ends

    async def record_at(self, topic: str, partition: int, offset: int) -> RecordLocation:
        """Return the record with that Kafka offset. Raises InvalidArgument when there is none."""
        opened = await self._open(topic, partition)
        with translating(opened):
            return await record_at(opened.log, offset)

    async def offset_of(self, topic: str, partition: int, record_position: RecordPosition) -> int:
        """Return the Kafka offset of a record. Raises InvalidArgument when there is none."""
        check_target(record_position)
        opened = await self._open(topic, partition)
        with translating(opened):
            return await offset_of(opened.log, record_position)

    # Topics

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic. Raises TopicExists, InvalidArgument."""
        check_count("partitions", partitions, 1, PARTITIONS_MAX)
        with translating():
            await self._registry.create(name, partitions=partitions, configs=config)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its subscriptions. Raises TopicNotFound."""
        topic = await self._topic(name)
        with translating():
            await self._registry.delete(topic.name, topic_id=topic.id)
            await self._named_topics.forget(topic.id)
            if self._forget_topic is not None:
                await self._forget_topic(topic.id)

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return [topic.name for topic in self._registry.all()]

    async def topic_stats(self, name: str) -> TopicStats:
        """Return the numbers of a topic."""
        opened = await self._open_all(name)
        return TopicStats(
            name=opened[0].topic.name,
            partitions=tuple(_partition_stats(each.log) for each in opened),
            subscriptions=_names(opened),
        )

    async def create_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic, until it has `count`."""
        check_count("count", count, 1, PARTITIONS_MAX)
        with translating():
            # The leader of a named topic, as it has the groups that get the new channels.
            topic = await self._partitions.topic_of(name, 0)
            await self._registry.create_partitions(topic.name, count)

    async def terminate(self, name: str) -> list[RecordLocation]:
        """Refuse further batches; return the newest record of each partition.

        If it fails halfway, the client repeats it.
        """
        ends = []
        for opened in await self._open_all(name):
            with translating(opened):
                await opened.log.terminate()
                ends.append(await last_record(opened.log, opened.visibility_filter))
        return ends

    async def start_compaction(self, topic: str) -> None:
        """Begin to compact a topic."""
        with translating():
            self._cleaner.start(await self._partitions.led_topic(topic))

    async def compaction_status(self, topic: str) -> TopicCompactionStatus:
        """Return how far the compaction of a topic has come."""
        with translating():
            status = await self._cleaner.status(await self._partitions.led_topic(topic))
        return TopicCompactionStatus(
            state=status.state,
            error=status.error,
            started_ms=status.started_ms,
            ended_ms=status.ended_ms,
            horizons=tuple(None if each is None else _location(each) for each in status.horizons),
        )

    async def start_offload(
        self, topic: str, position: Position | None, partition: int | None
    ) -> None:
        """Begin to copy closed ledgers of a topic to the tier."""
        with translating():
            try:
                found = await (
                    self._partitions.led_topic(topic)
                    if partition is None
                    else self._partitions.topic_of(topic, partition)
                )
            except PartitionIndexOutOfRange as error:
                raise TopicNotFound(str(error)) from None
            self._offloading.start(found, position, partition=partition)

    async def offload_status(self, topic: str) -> TopicOffloadStatus:
        """Return how far the offloading of a topic has come."""
        with translating():
            status = await self._offloading.status(await self._partitions.led_topic(topic))
        return TopicOffloadStatus(
            state=status.state.value,
            error=status.error,
            ledgers_left=status.ledgers_left,
            ends=status.ends,
        )

    # Namespaces and policies

    async def namespaces(self) -> list[str]:
        """Return the names of all namespaces, sorted."""
        return self._registry.namespaces.all()

    async def create_namespace(self, name: str) -> None:
        """Create a namespace. Raises NamespaceExists, InvalidArgument, NotAllowed."""
        with translating():
            await self._registry.create_namespace(name)

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace. Raises NamespaceNotFound; NotAllowed: it has topics."""
        with translating():
            await self._registry.delete_namespace(name)

    async def policies(self, name: str) -> dict[str, str]:
        """Return what is set for a namespace, or for a topic itself, by Pulsar's names."""
        with translating():
            if not is_namespace(name):
                return policies_of((await self._partitions.topic(name)).configs)
            self._registry.namespaces.check_known(name)
            return policies_of(self._registry.namespaces.configs_of(name))

    async def set_policies(
        self, name: str, policies: Mapping[str, str], removed: Sequence[str]
    ) -> None:
        """Change policies of a namespace or a topic, all or none; they are in force at once."""
        with translating():
            changes = policy_configs({**dict.fromkeys(removed), **policies})
            if is_namespace(name):
                await self._registry.alter_namespace_configs(name, changes)
            else:
                topic = await self._partitions.topic(name)
                await self._registry.alter_configs(topic.name, changes)

    # Subscriptions

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        return list(_names(await self._open_all(topic)))

    async def create_subscription(self, topic: str, name: str, start: SeekTarget) -> None:
        """Create a durable subscription without a consumer, unless it exists."""
        check_name("subscription", name)
        check_target(start)
        opened = await self._open_all(topic)
        _check_one_partition(opened, start)
        for each in opened:
            with translating(each):
                await each.open_subscription(name, start)

    async def delete_subscription(self, topic: str, name: str, *, force: bool) -> None:
        """Delete a subscription; with `force`, its consumers are disconnected."""
        found = await self._find(topic, name)
        for _, subscription in found:
            consumers = subscription.stats().consumers
            if consumers and not force:
                raise ConsumerBusy(
                    f"subscription {name!r} of {topic} has consumers: {', '.join(consumers)}"
                )
        for opened, _ in found:
            with translating(opened):
                await opened.delete_subscription(name, force=force)

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return the numbers of a subscription."""
        found = await self._find(topic, name)
        backlog = 0
        for opened, subscription in found:
            with translating(opened):
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
        """Return the next entries: (partition, position, batch, mask of the records)."""
        check_count("count", count, 1, PEEK_ENTRIES_MAX)
        peeked = []
        for opened, subscription in await self._find(topic, name):
            with translating(opened):
                peeked += [
                    (opened.log.index, each.position, bytes(each.data), each.records)
                    for each in await subscription.peek(count)
                ]
        return peeked

    # Positions of subscriptions

    async def reset_subscription(
        self, topic: str, name: str, target: SeekTarget, *, partition: int | None, inclusive: bool
    ) -> None:
        """Set the position in one partition or all; its consumers are disconnected."""
        check_target(target)
        if partition is None:
            found = await self._find(topic, name)
            _check_one_partition([opened for opened, _ in found], target)
        else:
            found = _having([await self._open(topic, partition)], name)
        for opened, subscription in found:
            with translating(opened):
                await opened.reset(subscription, target, is_inclusive=inclusive)

    async def skip_messages(self, topic: str, name: str, count: int) -> None:
        """Acknowledge the next `count` messages of every partition."""
        check_count("count", count)
        for opened, subscription in await self._find(topic, name):
            with translating(opened):
                await subscription.skip(count)

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge every visible message."""
        for opened, subscription in await self._find(topic, name):
            with translating(opened):
                await opened.clear_backlog(subscription)

    # Named topics

    async def open_named_topic(
        self, name: str, *, channel_count: int, options: NamedTopicOptions, create: bool
    ) -> NamedTopicInfo:
        """Return a named topic; make it of a topic that is none yet."""
        with translating():
            return await self._named_topics.open(
                name, channel_count=channel_count, options=options, create=create
            )

    async def destroy_named_topic(self, name: str) -> None:
        """Delete a named topic with its elements and groups."""
        with translating():
            self._named_topics.check_named(name)
        await self.delete_topic(name)

    async def named_topics(self) -> list[str]:
        """Return the names of all named topics, sorted."""
        return self._named_topics.names()

    async def ensure_subscriber_group(
        self, topic: str, group: str, *, filter_name: str, converter_name: str
    ) -> None:
        """Make a subscriber group, unless it exists."""
        with translating():
            await self._named_topics.ensure_group(
                topic, group, filter_name=filter_name, converter_name=converter_name
            )

    async def destroy_subscriber_group(self, topic: str, group: str) -> None:
        """Destroy a group; its subscribers are disconnected."""
        with translating():
            await self._named_topics.destroy_group(topic, group)

    async def subscriber_groups(self, topic: str) -> list[SubscriberGroupInfo]:
        """Return the groups with the state of every channel."""
        with translating():
            return await self._named_topics.groups(topic)

    async def wait_for_room(self, topic: str, size: int, wait_ms: int) -> bool:
        """Wait until a batch fits into a topic; return False if it did not in that time."""
        with translating():
            return await self._named_topics.wait_for_room(topic, size, wait_ms)

    async def join_subscriber(self, topic: str, join: SubscriberJoin) -> ChannelAllocation:
        """Add a subscriber to a group, and return its channels."""
        with translating():
            return await self._named_topics.join(topic, join)

    async def leave_subscriber(self, topic: str, group: str, subscriber: int) -> None:
        """Remove a subscriber; the group of an anonymous one is destroyed."""
        with translating():
            await self._named_topics.leave(topic, group, subscriber)

    async def poll_channels(self, topic: str, poll: ChannelPoll) -> ChannelPollResult:
        """Return elements or another allocation; wait for one of them."""
        with translating():
            return await self._named_topics.poll(topic, poll)

    async def commit_channels(self, topic: str, request: CommitRequest) -> list[CommitOutcome]:
        """Commit positions; return when that is durable."""
        with translating():
            return await self._named_topics.commit(topic, request)

    async def seek_channels(self, topic: str, request: SeekRequest) -> list[SeekOutcome]:
        """Reposition channels, all or none; return when that is durable."""
        with translating():
            return await self._named_topics.seek(topic, request)

    async def channel_ends(
        self, topic: str, group: str, subscriber: int, channel: int
    ) -> list[ChannelEnds]:
        """Return the ends of a channel, or of all (-1); only of those that the subscriber owns."""
        with translating():
            return await self._named_topics.ends(topic, group, subscriber, channel)

    # Kafka clients

    async def metrics_clients(self) -> list[MetricsClient]:
        """Return the Kafka clients that can push metrics; the last to push comes last."""
        return [] if self._kafka_clients is None else self._kafka_clients.metrics_clients()

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return the last metrics that a client pushed; None: there is no client of that id."""
        clients = self._kafka_clients
        return None if clients is None else clients.client_metrics(instance_id)

    async def close(self) -> None:
        """End every link and close every subscription; may be repeated."""
        await self._named_topics.close()
        await self._partitions.close()

    async def _topic(self, name: str) -> Topic:
        """Return a topic by either of its names. Raises TopicNotFound, Unavailable."""
        with translating():
            return await self._partitions.topic(name)

    async def _open(self, topic: str, partition: int) -> SubscribedPartition:
        """Return a partition. Raises InvalidArgument, TopicNotFound, Unavailable."""
        with translating():
            return await self._partitions.open(topic, partition)

    async def _open_all(self, topic: str) -> list[SubscribedPartition]:
        """Return the led partitions of a topic, in order. Raises TopicNotFound, Unavailable."""
        with translating():
            return await self._partitions.open_all(topic)

    async def _find(self, topic: str, name: str) -> list[tuple[SubscribedPartition, Subscription]]:
        """Return the subscription of every partition that has it. Raises SubscriptionNotFound."""
        return _having(await self._open_all(topic), name)

    async def _create(self, name: str) -> Topic:
        with translating():
            try:
                return await self._registry.create(name)
            except TopicAlreadyExists:  # created concurrently
                return await self._topic(name)


async def _open_subscription(opened: SubscribedPartition, request: ConsumerRequest) -> Subscription:
    """Return the subscription of a request; create it at its start if it is missing."""
    name = request.subscription
    subscription = await opened.open_subscription(
        name,
        request.start,
        is_inclusive=request.is_start_inclusive,
        is_durable=request.is_durable,
        reads_compacted=request.reads_compacted,
    )
    if subscription.is_durable != request.is_durable:
        kinds = {True: "durable", False: "not durable"}
        raise NotAllowed(
            f"subscription {name!r} of {opened.name} is {kinds[subscription.is_durable]}, "
            f"the consumer wants one that is {kinds[request.is_durable]}"
        )
    return subscription


def _partition_stats(log: PartitionLog) -> PartitionStats:
    ledgers = tuple(
        LedgerStats(
            ledger_id=each.ledger_id,
            entries=each.entries,
            size=each.size,
            closed_ms=each.closed_ms,
            offloaded=each.offloaded,
            primary_deleted=each.primary_deleted,
        )
        for each in log.managed_ledger.ledgers
    )
    reads = log.managed_ledger.read_counts.by_source()
    return PartitionStats(log.log_start_offset, log.high_watermark, log.size_bytes, ledgers, reads)


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
    """Refuse a message as the target of several partitions."""
    count = opened[0].topic.partition_count
    if isinstance(target, RecordPosition) and count > 1:
        raise InvalidArgument(
            f"target: a message of one partition, expected a time for all {count} of them"
        )


def check_name(what: str, name: str) -> None:
    """Check the name of a subscription or a consumer.

    Raises:
        InvalidArgument: it is empty, too long, or not printable.
    """
    if not 0 < len(name) <= NAME_SIZE_MAX or not name.isprintable():
        raise InvalidArgument(
            f"{what}: expected 1 to {NAME_SIZE_MAX} printable characters, got {name[:300]!r}"
        )


def check_count(what: str, count: int, low: int = 1, high: int = COUNT_MAX) -> None:
    """Check a number. Raises InvalidArgument."""
    if not low <= count <= high:
        raise InvalidArgument(f"{what}: expected {low} to {high}, got {count}")


def check_target(target: SeekTarget) -> None:
    """Check where a client wants to go. Raises InvalidArgument."""
    match target:
        case str():
            is_good = target in (EARLIEST, LATEST)
        case RecordPosition(Position(ledger_id, entry_id), batch_index):
            is_good = (
                _is_within(ledger_id, -1, NUMBER_MAX)
                and _is_within(entry_id, -1, NUMBER_MAX)
                and _is_within(batch_index, -1, COUNT_MAX)
            )
        case int():
            is_good = _is_within(target, 0, NUMBER_MAX)
        case _:
            is_good = False
    if not is_good:
        raise InvalidArgument(
            f"target: expected a message, a time in ms, {EARLIEST!r} or {LATEST!r}, got {target!r}"
        )


def check_request(request: ConsumerRequest) -> None:
    """Check a consumer request. Raises InvalidArgument."""
    check_name("subscription", request.subscription)
    if request.consumer_name:
        check_name("consumer name", request.consumer_name)
    check_target(request.start)
    check_count("priority level", request.priority_level, 0)
    check_count("unacked_max", request.unacked_max, 0)
    check_count("unacked_subscription_max", request.unacked_subscription_max, 0)
    check_count("failover_delay_ms", request.failover_delay_ms, 0, DELAY_MS_MAX)
    check_count("key ranges", len(request.key_ranges or ()), 0, KEY_RANGES_MAX)
    if request.reads_compacted and request.type not in SINGLE_ACTIVE_TYPES:
        raise InvalidArgument(
            f"read_compacted: expected an exclusive or failover consumer, got {request.type}"
        )


def _is_within(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _location(horizon: CompactedUpTo) -> RecordLocation:
    position, batch_index, offset = horizon
    return RecordLocation(RecordPosition(position, batch_index), batch_index + 1, offset)
