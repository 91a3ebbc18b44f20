"""NamedTopic: one named topic, from which publishers and subscribers are made.

Rule: arguments are checked here; the options are those that the server keeps.
Must not know: whether the server runs in this process.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kledger.named_topics.model import NamedTopicInfo, NamedTopicOptions, SubscriberGroupInfo
from kledger.native.client.named_topics.flow_control import REQUESTS_MAX
from kledger.native.client.named_topics.functions import Function, group_function
from kledger.native.client.named_topics.order_by import OrderBy, order_by
from kledger.native.client.named_topics.publisher import (
    CONTINUE,
    STOP,
    Publisher,
    PublisherOptions,
)
from kledger.native.client.named_topics.subscriber import Subscriber
from kledger.native.client.named_topics.subscriber_options import SubscriberOptions
from kledger.native.client.producer import Producer
from kledger.native.client.services import ClientServices
from kledger.native.errors import IllegalArgument

CreateProducer = Callable[..., Awaitable[Producer]]


class NamedTopic:
    """Made by `Client.named_topic`; it holds nothing open."""

    def __init__(
        self,
        services: ClientServices,
        info: NamedTopicInfo,
        *,
        create_producer: CreateProducer,
        opened: dict[Any, None],
    ) -> None:
        """Prepare.

        Args:
            services: the client's.
            info: what the server says.
            create_producer: of the client.
            opened: where the client keeps what it closes.
        """
        self._services = services
        self._info = info
        self._create_producer = create_producer
        self._opened = opened

    def __repr__(self) -> str:
        return f"NamedTopic({self.name!r}, channel_count={self.channel_count})"

    @property
    def name(self) -> str:
        """The short name of the topic."""
        return self._info.name

    @property
    def channel_count(self) -> int:
        """How many channels it had when it was opened."""
        return self._info.channel_count

    @property
    def options(self) -> NamedTopicOptions:
        """What it is."""
        return self._info.options

    async def create_publisher(
        self,
        *,
        order_by: OrderBy | str = "thread",
        on_failure: str = STOP,
        fail_on_full: bool = False,
        serializer: Callable[[Any], bytes] | None = None,
    ) -> Publisher:
        """Return a publisher.

        Args:
            order_by: which values stay in order: an OrderBy, "thread", "none" or "round_robin".
            on_failure: "stop": the first publish that fails closes it; "continue": later ones are
                tried.
            fail_on_full: a publish to a full topic fails, instead of waiting for room.
            serializer: makes the stored bytes of a value; None: values are bytes.

        Raises:
            IllegalArgument: an argument is wrong.
            TopicNotFound: the topic was destroyed.
        """
        if on_failure not in {STOP, CONTINUE}:
            raise IllegalArgument(f"on_failure: expected {STOP} or {CONTINUE}, got {on_failure!r}")
        options = PublisherOptions(
            order_by=_order_by(order_by),
            stops_on_failure=on_failure == STOP,
            fails_on_full=bool(fail_on_full),
            serializer=serializer,
        )
        producer = await self._create_producer(self.name, max_pending=REQUESTS_MAX)
        publisher = Publisher(self._services, self, producer, options, self._forget)
        self._opened[publisher] = None
        return publisher

    async def create_subscriber(
        self,
        *,
        group: str | None = None,
        complete_on_empty: bool = False,
        filter: str | Function | None = None,  # noqa: A002 - Coherence's name
        converter: str | Function | None = None,
        listeners: Sequence[object] = (),
        deserializer: Function | None = None,
    ) -> Subscriber:
        """Return a subscriber; a missing group is made.

        A new group, and an anonymous subscriber, begin at the tail: with what is published from now
        on; on a retaining topic at the head.

        Args:
            group: shares its elements with all subscribers of the group; None: an anonymous one,
                which gets all.
            complete_on_empty: a receive on an empty topic ends with nothing, instead of waiting.
            filter: skips elements for whose value it returns something false. "module:attribute":
                the group's, which the server applies to the stored bytes; else a callable, which
                this subscriber applies to the value.
            converter: makes another value of each; None skips it. As `filter`; the group's returns
                bytes.
            listeners: objects with `on_assigned`, `on_revoked` and `on_lost`, each optional, plain
                or coroutine; they get a frozenset of channels.
            deserializer: makes a value of the stored bytes; None: values are bytes.

        Raises:
            IllegalArgument: an argument is wrong, or the group has another filter or converter.
            TopicNotFound: the topic was destroyed.
        """
        if group is not None:
            _check_text("group", group)
        options = SubscriberOptions(
            group=group or "",
            completes_on_empty=bool(complete_on_empty),
            filter=group_function("filter", filter),
            converter=group_function("converter", converter),
            listeners=tuple(listeners),
            deserializer=deserializer,
        )
        subscriber = Subscriber(self._services, self, options, self._forget)
        async with self._services.operations.run(f"subscribe to {self.name}"):
            await subscriber.open()
        self._opened[subscriber] = None
        return subscriber

    async def ensure_subscriber_group(
        self,
        name: str,
        *,
        filter: str | None = None,  # noqa: A002 - Coherence's name
        converter: str | None = None,
    ) -> None:
        """Make a subscriber group, unless it exists.

        Args:
            name: of the group.
            filter: its filter as "module:attribute".
            converter: its converter as "module:attribute".

        Raises:
            IllegalArgument: it exists with another filter or converter, or the name is wrong.
        """
        _check_text("group", name)
        names = {}
        for what, given in (("filter", filter), ("converter", converter)):
            function = group_function(what, given)
            if function.function is not None:
                raise IllegalArgument(f"{what} of a group: expected 'module:attribute'")
            names[f"{what}_name"] = function.name
        await self._services.broker.ensure_subscriber_group(self.name, name, **names)

    async def destroy_subscriber_group(self, name: str) -> None:
        """Destroy a group with its positions; its subscribers are disconnected for good.

        Raises:
            IllegalState: there is none.
        """
        _check_text("group", name)
        await self._services.broker.destroy_subscriber_group(self.name, name)

    async def subscriber_groups(self) -> list[str]:
        """Return the names of the groups, sorted, without those of anonymous subscribers."""
        return sorted(each.name for each in await self.describe_groups() if not each.is_anonymous)

    async def describe_groups(self) -> list[SubscriberGroupInfo]:
        """Return the groups, anonymous ones too, with the state of each channel."""
        return await self._services.broker.subscriber_groups(self.name)

    async def destroy(self) -> None:
        """Delete the topic with its elements and groups."""
        await self._services.broker.destroy_named_topic(self.name)

    def _forget(self, closed: Publisher | Subscriber) -> None:
        self._opened.pop(closed, None)


def _order_by(given: object) -> OrderBy:
    return order_by(given)


def _check_text(what: str, given: object) -> None:
    if not isinstance(given, str) or not given:
        raise IllegalArgument(f"{what}: expected a name, got {given!r}")
