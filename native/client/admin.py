"""What a client asks of topics and subscriptions as wholes.

Rule: the server does it or says why not; here are only the words of the client's side.
Must not know: producers and consumers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from kledger.native.broker import (
    MetricsClient,
    PushedClientMetrics,
    SubscriptionStats,
    TopicStats,
)
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import (
    check_name,
    check_number,
    check_settings,
    target_of,
)
from kledger.native.errors import InvalidArgument
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.subscriptions.model import Delivery


class ClientAdmin(ABC):
    """The part of the client that needs no link. Topics have a short and a long name, as always."""

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

    @abstractmethod
    def _open_services(self) -> ClientServices:
        """Return what an open client has. Raises AlreadyClosed."""


def _check_names(topic: str, subscription: str) -> None:
    check_name("topic", topic)
    check_name("subscription", subscription)
