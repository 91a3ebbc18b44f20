"""Client: creates producers, consumers, readers and table views, and administers topics.

Rule: leaving the client closes everything that it created. The arguments are checked here, before
anything is sent; the server does the rest.
Must not know: whether the server runs in this process.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from kledger.named_topics.model import (
    PAGE_BYTES,
    SUBSCRIBER_TIMEOUT_MS,
    NamedTopicInfo,
    NamedTopicOptions,
)
from kledger.native.broker import (
    EARLIEST,
    LATEST,
    Broker,
    MetricsClient,
    PushedClientMetrics,
    SubscriptionStats,
    TopicStats,
)
from kledger.native.client.compaction import CompactionStatus, compact, status_of
from kledger.native.client.consumer import Consumer
from kledger.native.client.entry_reader import EntryReader
from kledger.native.client.message_decoder import STEPS_PER_TICK_MAX, MessageDecoder
from kledger.native.client.named_topics.functions import Function
from kledger.native.client.named_topics.named_topic import NamedTopic
from kledger.native.client.named_topics.publisher import Publisher
from kledger.native.client.named_topics.subscriber import Subscriber
from kledger.native.client.named_topics.topic_options import named_topic_options
from kledger.native.client.offload import OffloadStatus, offload
from kledger.native.client.offload import status_of as offload_status_of
from kledger.native.client.operations import OPERATION_TIMEOUT_MS, ClientOperation, ClientOperations
from kledger.native.client.partition_set import close_all
from kledger.native.client.producer import Producer
from kledger.native.client.reader import Reader, latest_positions
from kledger.native.client.services import PARTITION_REFRESH_MS, ClientServices
from kledger.native.client.subscribe_options import (
    DeadLetterPolicy,
    SubscribeOptions,
    check_name,
    check_number,
    check_policies,
    check_settings,
    ranges_of,
    start_of,
    target_of,
    type_of,
)
from kledger.native.client.table_view import PREFETCHED_RECORDS, TableView
from kledger.native.compaction_strategy import CompactionStrategy
from kledger.native.errors import AlreadyClosed, InvalidArgument, Unavailable
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import Delivery

NAME_BYTES = 5
"""Random bytes in the generated names of consumers and readers."""


class Client:
    """An asynchronous context manager that connects when it is entered, once."""

    def __init__(
        self,
        server: AbstractAsyncContextManager[Broker],
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        partition_refresh_ms: int = PARTITION_REFRESH_MS,
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
    ) -> None:
        """Prepare; `kledger.connect` and `kledger.embedded` call this.

        Args:
            server: entered and left with this client.
            clock: for timestamps and everything that waits.
            entropy: for names.
            partition_refresh_ms: the interval of looking for new partitions.
            operation_timeout_ms: the limit of one operation, such as a subscribe or a seek.
        """
        self._server = server
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._partition_refresh_ms = partition_refresh_ms
        check_number("operation_timeout_ms", operation_timeout_ms, at_least=1)
        self._operation_timeout_ms = operation_timeout_ms
        self._services: ClientServices | None = None
        self._opened: dict[Producer | Consumer | TableView | Publisher | Subscriber, None] = {}
        self._crash: BaseException | None = None

    async def __aenter__(self) -> Self:
        broker = await self._server.__aenter__()
        supervisor = Supervisor(self._on_crash)
        timers = Timers(self._clock, supervisor)
        long_calls = ComputePool(BlockingPool(1), cost_per_tick_max=STEPS_PER_TICK_MAX)
        self._services = ClientServices(
            broker=broker,
            clock=self._clock,
            timers=timers,
            supervisor=supervisor,
            entropy=self._entropy,
            operations=ClientOperations(timers, self._operation_timeout_ms),
            decoder=MessageDecoder(long_calls, supervisor),
            partition_refresh_ms=self._partition_refresh_ms,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        services, self._services = self._services, None
        assert services is not None, "left without having been entered"
        try:
            await services.operations.close()
            await close_all(list(self._opened))
        finally:
            try:
                await services.supervisor.close()
                services.decoder.close()
            finally:
                await self._server.__aexit__(kind, error, traceback)
        if self._crash is not None and error is None:
            raise self._crash

    async def create_producer(
        self,
        topic: str,
        *,
        producer_name: str | None = None,
        batching: bool = True,
        max_pending: int = 1_000,
    ) -> Producer:
        """Return a producer of a topic; a missing topic is created if the server allows it.

        Args:
            topic: `orders`, `tenant/namespace/orders`, or the same after `persistent://`.
            producer_name: becomes a header of every message.
            batching: messages that are sent at about the same time share a batch.
            max_pending: messages in flight at once; further sends wait.

        Raises:
            TopicNotFound: there is no such topic, and the server does not create it.
            TopicTerminated: the topic accepts no more messages.
            InvalidArgument: an argument is wrong.
        """
        services = self._open_services()
        check_name("topic", topic)
        if producer_name is not None:
            check_name("producer_name", producer_name)
        check_number("max_pending", max_pending, at_least=1)
        producer = Producer(
            services,
            await services.broker.lookup(topic, create=True),
            producer_name=producer_name,
            batching=bool(batching),
            max_pending=max_pending,
            on_closed=self._on_closed,
        )
        async with services.operations.run(f"produce to {topic}"):
            await producer.open()
        self._opened[producer] = None
        return producer

    async def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        consumer_type: str = "exclusive",
        initial_position: str = LATEST,
        durable: bool = True,
        consumer_name: str | None = None,
        priority_level: int = 0,
        receiver_queue_size: int = 1_000,
        max_unacked: int = 50_000,
        max_unacked_subscription: int = 200_000,
        key_ranges: Sequence[tuple[int, int]] | None = None,
        failover_delay_ms: int = 1_000,
        negative_ack_redelivery_delay_ms: int = 60_000,
        ack_timeout_ms: int | None = None,
        dead_letter: DeadLetterPolicy | None = None,
        read_compacted: bool = False,
    ) -> Consumer:
        """Return a consumer; a missing subscription is created, a missing topic if allowed.

        Args:
            topic: `orders`, `tenant/namespace/orders`, or the same after `persistent://`.
            subscription: its name.
            consumer_type: "exclusive" (one consumer), "failover" (one at a time, in order of
                priority and name), "shared" (each message to any consumer with permits),
                "key_shared" (the same, but a key goes to one consumer at a time, in order).
            initial_position: where a new subscription begins, "latest" or "earliest".
            durable: False: the cursor is deleted with the last consumer.
            consumer_name: unique in the subscription; None: a random one.
            priority_level: 0 is served first.
            receiver_queue_size: prefetched messages of each partition at most.
            max_unacked: unacknowledged messages at most; 0: no limit.
            max_unacked_subscription: the same for all consumers of the subscription together.
            key_ranges: sticky key_shared: the key hash slots (first, last) of this consumer.
            failover_delay_ms: how long the next active consumer waits before it receives.
            negative_ack_redelivery_delay_ms: between a negative ack and the redelivery.
            ack_timeout_ms: until a received, unacknowledged message is redelivered; None: never.
            dead_letter: the policy for messages that are redelivered too often.
            read_compacted: of what is compacted receive the last message of each key alone.

        Raises:
            ConsumerBusy: another consumer excludes this one, or is of another type.
            ConsumerAssign: key ranges overlap those of another consumer.
            Timeout: it took longer than `operation_timeout_ms`; a retry may help.
            TopicNotFound, InvalidArgument: the topic is missing, or an argument is wrong.
        """
        services = self._open_services()
        check_name("topic", topic)
        options = SubscribeOptions(
            subscription=subscription,
            type=type_of(consumer_type),
            start=start_of(initial_position),
            is_durable=bool(durable),
            name=self._random_name("consumer") if consumer_name is None else consumer_name,
            priority_level=priority_level,
            receiver_queue_size=receiver_queue_size,
            unacked_max=max_unacked, unacked_subscription_max=max_unacked_subscription,
            key_ranges=ranges_of(key_ranges), failover_delay_ms=failover_delay_ms,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            ack_timeout_ms=ack_timeout_ms, dead_letter=dead_letter,
            reads_compacted=bool(read_compacted),
        )  # fmt: skip
        async with services.operations.run(f"subscribe to {topic}") as operation:
            consumer = Consumer(
                services, await services.broker.lookup(topic, create=True), options,
                create_producer=self.create_producer, on_closed=self._on_closed,
            )  # fmt: skip
            return await self._open_consumer(consumer, operation)

    async def create_reader(
        self,
        topic: str,
        start: MessageId | int | str,
        *,
        inclusive: bool = False,
        read_compacted: bool = False,
    ) -> Reader:
        """Return a reader: it needs no subscription and acknowledges nothing.

        Args:
            topic: `orders`, `tenant/namespace/orders`, or the same after `persistent://`.
            start: an id, a time in ms (its first message, or the next), "earliest" or "latest".
            inclusive: whether the message with that id is read, or the next one.
            read_compacted: as for `subscribe`.

        Raises:
            TopicNotFound: there is no such topic.
            Timeout: it took longer than `operation_timeout_ms`; a retry may help.
            InvalidArgument: an argument is wrong, or an id is given for several partitions.
        """
        services = self._open_services()
        check_name("topic", topic)
        async with services.operations.run(f"read {topic}") as operation:
            return await self._open_reader(
                operation, topic, start, inclusive=inclusive, reads_compacted=bool(read_compacted)
            )

    async def _open_reader(
        self,
        operation: ClientOperation,
        topic: str,
        start: MessageId | int | str,
        *,
        inclusive: bool,
        reads_compacted: bool,
    ) -> Reader:
        services = self._open_services()
        target = target_of(start)
        info = await services.broker.lookup(topic, create=False)
        partitions = range(info.partition_count)
        starts = dict.fromkeys(partitions, target)
        if isinstance(start, MessageId) and partitions != range(1):
            raise InvalidArgument(
                f"start: {start} is a position in one of {info.partition_count} partitions"
            )
        if target == LATEST:
            inclusive = False  # A reader begins behind the newest message.
            starts = await latest_positions(services.broker, info.name, partitions)
        name = self._random_name("reader")
        options = SubscribeOptions.for_reader(
            name, target, is_inclusive=inclusive, reads_compacted=reads_compacted
        )
        consumer = await self._open_consumer(
            Consumer(
                services,
                info,
                options,
                create_producer=self.create_producer,
                on_closed=self._on_closed,
                starts=starts,
            ),
            operation,
        )
        return Reader(services, consumer)

    async def create_table_view(
        self,
        topic: str,
        *,
        strategy: CompactionStrategy | None = None,
        partition_refresh_ms: int = PARTITION_REFRESH_MS,
        read_compacted: bool = True,
        keep_messages: bool = False,
        on_load: Callable[[int], None] | None = None,
    ) -> TableView:
        """Return a topic as a table, the last value of each key, which follows the topic.

        Everything that was committed before the call is in it. There is no time limit for reading
        that.

        Args:
            topic: `orders`, `tenant/namespace/orders`, or the same after `persistent://`.
            strategy: decides which of two messages of a key stays; None: the newer one.
            partition_refresh_ms: the interval of looking for new partitions.
            read_compacted: read only the last message of each key, where the topic is compacted.
            keep_messages: keep the last message of each key too, for `TableView.get_message`.
            on_load: called with the number of records read so far, until the view is returned.

        Raises:
            TopicNotFound: there is no such topic.
            Timeout: connecting took longer than `operation_timeout_ms`; a retry may help.
            InvalidArgument: an argument is wrong.
        """
        services = self._open_services()
        check_name("topic", topic)
        check_number("partition_refresh_ms", partition_refresh_ms, at_least=1)
        info = await services.broker.lookup(topic, create=False)
        options = SubscribeOptions.for_reader(
            self._random_name("table-view"),
            EARLIEST,
            is_inclusive=True,
            reads_compacted=bool(read_compacted),
            receiver_queue_size=PREFETCHED_RECORDS,
        )
        view = TableView(
            services,
            EntryReader(services, info, options, partition_refresh_ms=partition_refresh_ms),
            strategy=strategy,
            keep_messages=bool(keep_messages),
            on_closed=self._on_closed,
        )
        self._opened[view] = None
        try:
            await view.load(on_load)
        except BaseException:
            await view.close()
            raise
        return view

    # Named topics

    async def named_topic(
        self,
        name: str,
        *,
        channel_count: int | None = None,
        retain_values: bool = False,
        element_expiry_ms: int | None = None,
        subscriber_timeout_ms: int = SUBSCRIBER_TIMEOUT_MS,
        page_bytes: int = PAGE_BYTES,
        max_unconsumed_bytes: int | None = None,
        allow_unowned_commits: bool = False,
    ) -> NamedTopic:
        """Return a named topic; a missing one is created.

        Options hold from the first call for a topic on. A later one repeats them, or leaves them at
        their defaults; more channels are added.

        Args:
            name: `orders`, `tenant/namespace/orders`, or the same after `persistent://`.
            channel_count: how many partitions; None: as many as it has, 17 for a new one.
            retain_values: committed elements stay, and new groups begin at the head.
            element_expiry_ms: age at which an element is removed, committed or not.
            subscriber_timeout_ms: silence after which a subscriber of a group loses its channels,
                at least 1,000; 0 or less: never.
            page_bytes: how much a subscriber fetches in one call, but for one larger batch.
            max_unconsumed_bytes: bytes that some group has not committed at most.
            allow_unowned_commits: subscribers may commit in channels that they do not own.

        Raises:
            IllegalArgument: an option is wrong, or is not what the topic has.
        """
        services = self._open_services()
        check_name("topic", name)
        count, options = named_topic_options(
            channel_count=channel_count,
            retain_values=retain_values,
            element_expiry_ms=element_expiry_ms,
            subscriber_timeout_ms=subscriber_timeout_ms,
            page_bytes=page_bytes,
            max_unconsumed_bytes=max_unconsumed_bytes,
            allow_unowned_commits=allow_unowned_commits,
        )
        info = await services.broker.open_named_topic(
            name, channel_count=count, options=options, create=True
        )
        return self._named_topic(info)

    async def create_subscriber(
        self,
        topic: str,
        *,
        group: str | None = None,
        complete_on_empty: bool = False,
        filter: str | Function | None = None,  # noqa: A002 - Coherence's name
        converter: str | Function | None = None,
        listeners: Sequence[object] = (),
        deserializer: Function | None = None,
    ) -> Subscriber:
        """Return a subscriber of a topic: of `named_topic`, by `NamedTopic.create_subscriber`.

        Raises:
            IllegalArgument: an argument is wrong, or the group has another filter or converter.
        """
        found = await self.named_topic(topic)
        return await found.create_subscriber(
            group=group,
            complete_on_empty=complete_on_empty,
            filter=filter,
            converter=converter,
            listeners=listeners,
            deserializer=deserializer,
        )

    async def find_named_topic(self, name: str) -> NamedTopic:
        """Return a named topic that exists. Raises TopicNotFound."""
        check_name("topic", name)
        info = await self._open_services().broker.open_named_topic(
            name, channel_count=0, options=NamedTopicOptions(), create=False
        )
        return self._named_topic(info)

    async def named_topics(self) -> list[str]:
        """Return the names of all named topics, sorted."""
        return await self._open_services().broker.named_topics()

    def _named_topic(self, info: NamedTopicInfo) -> NamedTopic:
        return NamedTopic(
            self._open_services(), info, create_producer=self.create_producer, opened=self._opened
        )

    # Topics

    async def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic.

        Args:
            name: letters, digits, '.', '_' and '-', behind `tenant/namespace/` unless it is in
                `public/default`.
            partitions: at least one.
            config: settings by Kafka's names.

        Raises:
            TopicExists: a topic of that name exists already.
            InvalidArgument: an argument is wrong.
        """
        check_name("topic", name)
        check_number("partitions", partitions, at_least=1)
        settings = check_settings("config", {} if config is None else config)
        await self._open_services().broker.create_topic(name, partitions, settings)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its subscriptions. Raises TopicNotFound."""
        check_name("topic", name)
        await self._open_services().broker.delete_topic(name)

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return await self._open_services().broker.topics()

    async def topic_stats(self, name: str) -> TopicStats:
        """Return the numbers of a topic. Raises TopicNotFound."""
        check_name("topic", name)
        return await self._open_services().broker.topic_stats(name)

    async def create_partitions(self, topic: str, count: int) -> None:
        """Add partitions to a topic; its producers and consumers discover them.

        Args:
            topic: `orders`, `tenant/namespace/orders`, or the same after `persistent://`.
            count: the new number of partitions.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: it has that many partitions, or more.
        """
        check_name("topic", topic)
        check_number("count", count, at_least=1)
        await self._open_services().broker.create_partitions(topic, count)

    async def terminate(self, topic: str) -> list[MessageId]:
        """Refuse further messages; return the id of the last message of each partition.

        As in `Consumer.get_last_message_id`, the entry is -1 for an empty partition.
        """
        check_name("topic", topic)
        records = await self._open_services().broker.terminate(topic)
        return [MessageId.at(record, partition) for partition, record in enumerate(records)]

    async def compact(self, topic: str) -> None:
        """Keep the newest message of each key, in every partition; return when that is done.

        Readers with `read_compacted`, and Kafka's consumers if `cleanup.policy` has `compact`, then
        get what was kept; others get every message for as long as it is stored. A caller that is
        cancelled does not stop it.

        Raises:
            TopicNotFound: there is no such topic.
            CompactionRunning: it is being compacted.
            Unavailable: it failed; `compaction_status` says why.
        """
        check_name("topic", topic)
        await compact(self._open_services().broker, self._clock, topic)

    async def compaction_status(self, topic: str) -> CompactionStatus:
        """Return how far the last compaction of a topic has come. Raises TopicNotFound."""
        check_name("topic", topic)
        return status_of(await self._open_services().broker.compaction_status(topic))

    async def offload(
        self, topic: str, *, until: MessageId | None = None
    ) -> list[MessageId | None]:
        """Copy closed ledgers of a topic to the tier; return when that is done.

        A caller that is cancelled does not stop it.

        Args:
            topic: `orders`, `tenant/namespace/orders`, or the same after `persistent://`.
            until: the ledgers of its partition before the one that has this message; the other
                partitions are left alone. None: all closed ledgers.

        Returns:
            For each partition the first position that is not offloaded.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: the partition has no such message.
            OffloadInProgress: the topic is being offloaded.
            NotAllowed: the server has no tier.
            Unavailable: it failed; `offload_status` says why.
        """
        check_name("topic", topic)
        if until is not None:
            if not isinstance(until, MessageId):
                raise InvalidArgument(f"until: expected a MessageId, got {type(until).__name__}")
            until.check()
        return await offload(self._open_services().broker, self._clock, topic, until)

    async def offload_status(self, topic: str) -> OffloadStatus:
        """Return how far the last offload of a topic has come. Raises TopicNotFound."""
        check_name("topic", topic)
        return offload_status_of(await self._open_services().broker.offload_status(topic))

    async def position_of(self, topic: str, partition: int, offset: int) -> MessageId:
        """Return the id of the message that has a Kafka offset.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: no message of the partition has that offset.
        """
        check_name("topic", topic)
        check_number("partition", partition)
        check_number("offset", offset)
        found = await self._open_services().broker.record_at(topic, partition, offset)
        return MessageId.at(found, partition)

    async def offset_of(self, message_id: MessageId, topic: str) -> int:
        """Return the Kafka offset of the message that has an id.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: the topic has no such message, or it was deleted.
        """
        check_name("topic", topic)
        if not isinstance(message_id, MessageId):
            raise InvalidArgument(f"message_id: expected one, got {type(message_id).__name__}")
        message_id.check()
        broker = self._open_services().broker
        return await broker.offset_of(topic, message_id.partition, message_id.record_position)

    # Namespaces and policies

    async def namespaces(self) -> list[str]:
        """Return the names of all namespaces, sorted."""
        return await self._open_services().broker.namespaces()

    async def create_namespace(self, name: str) -> None:
        """Create a namespace, in which topics are called `tenant/namespace/topic`.

        Args:
            name: `tenant/namespace`, each of letters, digits, '.', '_' and '-'.

        Raises:
            NamespaceExists: a namespace of that name exists already.
            InvalidArgument: the name is none.
        """
        check_name("namespace", name)
        await self._open_services().broker.create_namespace(name)

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace with its policies.

        Raises:
            NamespaceNotFound: there is none.
            NotAllowed: it has topics, or is `public/default`.
        """
        check_name("namespace", name)
        await self._open_services().broker.delete_namespace(name)

    async def policies(self, name: str) -> dict[str, str]:
        """Return the policies that are set for a namespace, or for a topic itself.

        Args:
            name: `tenant/namespace`, or a topic in any of its spellings.

        Raises:
            NamespaceNotFound, TopicNotFound: there is none of that name.
        """
        check_name("name", name)
        return await self._open_services().broker.policies(name)

    async def set_policies(self, name: str, policies: Mapping[str, str | int | None]) -> None:
        """Set policies of a namespace or a topic, all or none; they are in force at once.

        A policy of a topic precedes that of its namespace, and that the server's.

        Args:
            name: `tenant/namespace`, or a topic in any of its spellings.
            policies: values by Pulsar's names, such as `managedLedgerDataReadPriority`; None
                removes a policy from this level.

        Raises:
            NamespaceNotFound, TopicNotFound: there is none of that name.
            InvalidArgument: a policy is unknown, or its value is not allowed.
        """
        check_name("name", name)
        changes = check_policies(policies)
        await self._open_services().broker.set_policies(
            name,
            {key: value for key, value in changes.items() if value is not None},
            [key for key, value in changes.items() if value is None],
        )

    # Subscriptions

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions of a topic, sorted."""
        check_name("topic", topic)
        return await self._open_services().broker.subscriptions(topic)

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return the numbers of a subscription. Raises SubscriptionNotFound."""
        _check_names(topic, name)
        return await self._open_services().broker.subscription_stats(topic, name)

    async def create_subscription(
        self, topic: str, name: str, start: MessageId | int | str = "latest"
    ) -> None:
        """Create a durable subscription without a consumer, unless it exists."""
        _check_names(topic, name)
        await self._open_services().broker.create_subscription(topic, name, target_of(start))

    async def delete_subscription(self, topic: str, name: str, *, force: bool = False) -> None:
        """Delete a subscription; with `force`, its consumers are disconnected.

        Raises:
            SubscriptionNotFound: there is none.
            ConsumerBusy: it has consumers.
        """
        _check_names(topic, name)
        await self._open_services().broker.delete_subscription(topic, name, force=force)

    async def reset_subscription(
        self, topic: str, name: str, target: MessageId | int | str, *, inclusive: bool = True
    ) -> None:
        """Set the position of a subscription, as `Consumer.seek` does.

        Raises:
            SubscriptionNotFound: there is none.
            SubscriptionFenced: another reset is running.
        """
        _check_names(topic, name)
        partition = target.partition if isinstance(target, MessageId) else None
        await self._open_services().broker.reset_subscription(
            topic, name, target_of(target), partition=partition, inclusive=inclusive
        )

    async def skip_messages(self, topic: str, name: str, n: int) -> None:
        """Acknowledge the next `n` messages of every partition."""
        _check_names(topic, name)
        check_number("n", n)
        await self._open_services().broker.skip_messages(topic, name, n)

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge every visible message."""
        _check_names(topic, name)
        await self._open_services().broker.clear_backlog(topic, name)

    async def peek_messages(self, topic: str, name: str, count: int) -> list[Message]:
        """Return the unacknowledged messages of the next `count` entries; deliver nothing."""
        _check_names(topic, name)
        check_number("count", count)
        found: list[Message] = []
        for partition, position, data, records in await self._open_services().broker.peek(
            topic, name, count
        ):
            delivery = Delivery(position, data, records, 0)
            found += await self._open_services().decoder.decode(
                delivery, topic=topic, partition=partition, link=None
            )
        return found

    async def metrics_clients(self) -> list[MetricsClient]:
        """Return the Kafka clients that can push metrics of themselves (KIP-714).

        These are the connected clients and those that pushed recently; the last to push comes last.
        """
        return await self._open_services().broker.metrics_clients()

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return the last metrics that a client pushed; None: there is no client of that id."""
        check_name("instance_id", instance_id)
        return await self._open_services().broker.client_metrics(instance_id)

    def _open_services(self) -> ClientServices:
        if self._services is None:
            raise AlreadyClosed("the client is not open: use it as `async with client:`")
        return self._services

    async def _open_consumer(self, consumer: Consumer, operation: ClientOperation) -> Consumer:
        operation.last_error = consumer.last_error
        await consumer.open()
        self._opened[consumer] = None
        return consumer

    def _on_closed(self, closed: Producer | Consumer | TableView) -> None:
        self._opened.pop(closed, None)

    def _random_name(self, kind: str) -> str:
        return f"{kind}-{self._entropy.token(NAME_BYTES).hex()}"

    def _on_crash(self, error: BaseException) -> None:
        """Fail everything that is open: a background task has crashed."""
        self._crash = self._crash or error
        failure = Unavailable(f"the client has failed: {error!r}")
        for each in self._opened:
            each.fail(failure)


def _check_names(topic: str, subscription: str) -> None:
    check_name("topic", topic)
    check_name("subscription", subscription)
