"""Client: the way to a server, in Pulsar's words.

Rule: a client that was left has let go of everything that it made. The same calls on every kind of
server; what they mean is said here and in the classes that they return.
Must not know: whether the server is in this process.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from kledger.native.broker import (
    LATEST,
    Broker,
    MetricsClient,
    PushedClientMetrics,
    SubscriptionStats,
    TopicStats,
)
from kledger.native.client.consumer import Consumer
from kledger.native.client.message_decoder import STEPS_PER_TICK_MAX, MessageDecoder
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
    check_settings,
    ranges_of,
    start_of,
    target_of,
    type_of,
)
from kledger.native.errors import AlreadyClosed, InvalidArgument, Unavailable
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.model import Delivery, SubscriptionType

NAME_BYTES = 5
"""Randomness in the names of consumers and readers that were given none."""


class Client:
    """An asynchronous context manager; the connection is made on entering, once."""

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
            partition_refresh_ms: how often new partitions are looked for.
            operation_timeout_ms: how long to subscribe, to seek and the like may take.
        """
        self._server = server
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._partition_refresh_ms = partition_refresh_ms
        check_number("operation_timeout_ms", operation_timeout_ms, at_least=1)
        self._operation_timeout_ms = operation_timeout_ms
        self._services: ClientServices | None = None
        self._opened: dict[Producer | Consumer, None] = {}
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
        """Return a producer for a topic, which is made if the server makes topics by itself.

        Args:
            topic: its short name, or `persistent://public/default/...`.
            producer_name: stands in every message.
            batching: messages that are sent at about the same time share a batch.
            max_pending: messages that are under way at once; further ones wait for room.

        Raises:
            TopicNotFound: there is none, and none was made.
            TopicTerminated: nothing can be added to it.
            InvalidArgument: something cannot be.
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
    ) -> Consumer:
        """Return a consumer of a topic; both are made if they are missing, the topic as above.

        Args:
            topic: its short name, or `persistent://public/default/...`.
            subscription: its name.
            consumer_type: "exclusive" (one consumer), "failover" (one at a time, in order of
                priority and name), "shared" (message by message to whoever has room),
                "key_shared" (the same, but a key goes to one consumer at a time, in order).
            initial_position: where a new subscription begins, "latest" or "earliest".
            durable: False: the place is forgotten with its last consumer.
            consumer_name: unique in the subscription; None: a random one.
            priority_level: 0 is served first.
            receiver_queue_size: messages of each partition that are here and not received yet.
            max_unacked: messages that may be handed out and not acknowledged; 0: no limit.
            max_unacked_subscription: of all consumers together.
            key_ranges: sticky key_shared: the hash slots (first, last) that are this one's.
            failover_delay_ms: how long the next active consumer waits.
            negative_ack_redelivery_delay_ms: when a message comes again after a negative ack.
            ack_timeout_ms: when a message comes again that was received and not acknowledged.
            dead_letter: what becomes of messages that come again and again.

        Raises:
            ConsumerBusy: another consumer excludes this one, or is of another type.
            ConsumerAssign: key ranges overlap those of another consumer.
            Timeout: it took longer than `operation_timeout_ms`; trying again may help.
            TopicNotFound, InvalidArgument: it cannot be.
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
            unacked_max=max_unacked,
            unacked_subscription_max=max_unacked_subscription,
            key_ranges=ranges_of(key_ranges),
            failover_delay_ms=failover_delay_ms,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            ack_timeout_ms=ack_timeout_ms, dead_letter=dead_letter,
        )  # fmt: skip
        async with services.operations.run(f"subscribe to {topic}") as operation:
            info = await services.broker.lookup(topic, create=True)
            consumer = Consumer(
                services, info, options,
                create_producer=self.create_producer, on_closed=self._on_closed,
            )  # fmt: skip
            return await self._open_consumer(consumer, operation)

    async def create_reader(
        self,
        topic: str,
        start: MessageId | int | str,
        *,
        inclusive: bool = False,
    ) -> Reader:
        """Return a reader, which no subscription of others knows of.

        Args:
            topic: its short name, or `persistent://public/default/...`.
            start: an id, a time in ms (the first message of then or later), "earliest" or "latest".
            inclusive: whether the message with that id is read, or the one behind it.

        Raises:
            TopicNotFound: there is no such topic.
            Timeout: it took longer than `operation_timeout_ms`; trying again may help.
            InvalidArgument: something cannot be; so an id where there are several partitions.
        """
        services = self._open_services()
        check_name("topic", topic)
        async with services.operations.run(f"read {topic}") as operation:
            return await self._open_reader(operation, topic, start, inclusive=inclusive)

    async def _open_reader(
        self,
        operation: ClientOperation,
        topic: str,
        start: MessageId | int | str,
        *,
        inclusive: bool,
    ) -> Reader:
        services = self._open_services()
        target = target_of(start)
        info = await services.broker.lookup(topic, create=False)
        partitions = range(info.partition_count)
        starts = dict.fromkeys(partitions, target)
        if isinstance(start, MessageId) and partitions != range(1):
            raise InvalidArgument(
                f"start: {start} is a place in one of {info.partition_count} partitions"
            )
        if target == LATEST:
            inclusive = False  # A reader begins behind what is there.
            starts = await latest_positions(services.broker, info.name, partitions)
        name = self._random_name("reader")
        options = SubscribeOptions(
            subscription=name,
            type=SubscriptionType.EXCLUSIVE,
            start=target,
            is_start_inclusive=inclusive,
            is_durable=False,
            is_reader=True,
            name=name,
            unacked_max=0,
            unacked_subscription_max=0,
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

    async def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic.

        Args:
            name: letters, digits, '.', '_' and '-'.
            partitions: at least one.
            config: settings by Kafka's names.

        Raises:
            TopicExists: there is one of that name.
            InvalidArgument: something cannot be.
        """
        check_name("topic", name)
        check_number("partitions", partitions, at_least=1)
        settings = check_settings("config", {} if config is None else config)
        await self._open_services().broker.create_topic(name, partitions, settings)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic with its subscriptions. Raises TopicNotFound."""
        check_name("topic", name)
        await self._open_services().broker.delete_topic(name)

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return await self._open_services().broker.topics()

    async def topic_stats(self, name: str) -> TopicStats:
        """Return a topic's numbers. Raises TopicNotFound."""
        check_name("topic", name)
        return await self._open_services().broker.topic_stats(name)

    async def create_partitions(self, topic: str, count: int) -> None:
        """Give a topic more partitions; producers and consumers find them by themselves.

        Args:
            topic: its short name, or `persistent://public/default/...`.
            count: how many it has then.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: it has that many partitions, or more.
        """
        check_name("topic", topic)
        check_number("count", count, at_least=1)
        await self._open_services().broker.create_partitions(topic, count)

    async def terminate(self, topic: str) -> list[MessageId]:
        """Let nothing be added any more; return the id of the last message of each partition.

        As with `Consumer.get_last_message_id`, the entry is -1 where there is no message.
        """
        check_name("topic", topic)
        records = await self._open_services().broker.terminate(topic)
        return [MessageId.at(record, partition) for partition, record in enumerate(records)]

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
            InvalidArgument: it has no such message, or no longer.
        """
        check_name("topic", topic)
        if not isinstance(message_id, MessageId):
            raise InvalidArgument(f"message_id: expected one, got {type(message_id).__name__}")
        message_id.check()
        broker = self._open_services().broker
        return await broker.offset_of(topic, message_id.partition, message_id.record_position)

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions of a topic, sorted."""
        check_name("topic", topic)
        return await self._open_services().broker.subscriptions(topic)

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return a subscription's numbers. Raises SubscriptionNotFound."""
        _check_names(topic, name)
        return await self._open_services().broker.subscription_stats(topic, name)

    async def create_subscription(
        self, topic: str, name: str, start: MessageId | int | str = "latest"
    ) -> None:
        """Make a durable subscription without a consumer; nothing if there is one."""
        _check_names(topic, name)
        await self._open_services().broker.create_subscription(topic, name, target_of(start))

    async def delete_subscription(self, topic: str, name: str, *, force: bool = False) -> None:
        """Remove a subscription.

        Raises:
            SubscriptionNotFound: there is none.
            ConsumerBusy: it has consumers; `force` sends them away.
        """
        _check_names(topic, name)
        await self._open_services().broker.delete_subscription(topic, name, force=force)

    async def reset_subscription(
        self, topic: str, name: str, target: MessageId | int | str, *, inclusive: bool = True
    ) -> None:
        """Set where a subscription stands; as `Consumer.seek`, but from outside.

        Raises:
            SubscriptionNotFound: there is none.
            SubscriptionFenced: another reset is under way.
        """
        _check_names(topic, name)
        partition = target.partition if isinstance(target, MessageId) else None
        await self._open_services().broker.reset_subscription(
            topic, name, target_of(target), partition=partition, inclusive=inclusive
        )

    async def skip_messages(self, topic: str, name: str, n: int) -> None:
        """Acknowledge the next so many messages of every partition."""
        _check_names(topic, name)
        check_number("n", n)
        await self._open_services().broker.skip_messages(topic, name, n)

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge everything that is there."""
        _check_names(topic, name)
        await self._open_services().broker.clear_backlog(topic, name)

    async def peek_messages(self, topic: str, name: str, count: int) -> list[Message]:
        """Return what would come next, of the first so many entries, and change nothing."""
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

        Those that are there, and those that pushed lately. Who pushed last comes last.
        """
        return await self._open_services().broker.metrics_clients()

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return what one of them pushed last; None: there is none of that id."""
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

    def _on_closed(self, on_closed: Producer | Consumer) -> None:
        self._opened.pop(on_closed, None)

    def _random_name(self, kind: str) -> str:
        return f"{kind}-{self._entropy.token(NAME_BYTES).hex()}"

    def _on_crash(self, error: BaseException) -> None:
        """Something of ours is broken: whoever uses the client must hear of it."""
        self._crash = self._crash or error
        failure = Unavailable(f"there is no going on after {error!r}")
        for each in self._opened:
            each.fail(failure)


def _check_names(topic: str, subscription: str) -> None:
    check_name("topic", topic)
    check_name("subscription", subscription)
