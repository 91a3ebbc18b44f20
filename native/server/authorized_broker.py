"""AuthorizedBroker: a broker as one remote client may use it.

Rule: every call checks its rights before it does anything, by the same authorizer and names as
the Kafka façade: a topic is a Topic, a subscription and a subscriber group a Group, namespaces and
the metrics of Kafka clients are the Cluster. Listings leave out what the client may not describe. A
refusal is NotAllowed, and does not say whether the thing exists. A link whose right is taken away
ends in the step in which the rule holds; a call that waited checks again before it answers.
Must not know: how the client logged in, gRPC.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from operator import attrgetter
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from kledger.named_topics.model import NamedTopicInfo, NamedTopicOptions, SubscriberGroupInfo
from kledger.named_topics.options_plan import ANONYMOUS_PREFIX
from kledger.native.broker import (
    Broker,
    ConsumerLink,
    ConsumerRequest,
    OnEnded,
    OnReadPosition,
    ProducerLink,
    TopicInfo,
    TopicStats,
)
from kledger.native.errors import NotAllowed, TopicNotFound
from kledger.native.server.client_rights import ClientRights, NeededRight
from kledger.security.acl_state import CLUSTER_NAME, Operation, ResourceType
from kledger.subscriptions.model import Deliver
from kledger.topics.topic_names import is_namespace

P = ParamSpec("P")
R = TypeVar("R")
Link = TypeVar("Link", ProducerLink, ConsumerLink)

READER_PREFIX: Final = "reader-"
"""What the client library calls the temporary subscription of a reader."""


class CallRight(NamedTuple):
    """One right that a call asks for.

    Attributes:
        argument: that names the resource, or an attribute of it (`request.group`); empty: the
            cluster.
    """

    operation: Operation
    resource_type: ResourceType
    argument: str = ""

    def resource_name(self, arguments: Mapping[str, Any]) -> str:
        """Return the name of the resource in the arguments of a call."""
        if not self.argument:
            return CLUSTER_NAME
        argument, _, attribute = self.argument.partition(".")
        value = arguments[argument]
        return str(attrgetter(attribute)(value) if attribute else value)


def _topic(operation: Operation, argument: str = "topic") -> CallRight:
    return CallRight(operation, ResourceType.TOPIC, argument)


def _group(operation: Operation, argument: str) -> CallRight:
    return CallRight(operation, ResourceType.GROUP, argument)


def _cluster(operation: Operation) -> CallRight:
    return CallRight(operation, ResourceType.CLUSTER)


def _guarded(
    method: Callable[Concatenate[Broker, P], Coroutine[Any, Any, R]],
    *rights: CallRight,
    waits: bool = False,
    event: str = "",
) -> Callable[Concatenate["AuthorizedBroker", P], Coroutine[Any, Any, R]]:
    """Return a method that asks for rights and calls the broker.

    Args:
        method: of the broker.
        rights: all of them are needed.
        waits: the call may wait, so the rights are asked for once more before it answers.
        event: what the call changes, for the audit log; empty: nothing that belongs there.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def guarded(self: "AuthorizedBroker", /, *given: P.args, **named: P.kwargs) -> R:
        arguments = signature.bind(self, *given, **named).arguments
        self._demand(rights, arguments)
        result: R = await getattr(self._broker, method.__name__)(*given, **named)
        if waits:
            self._demand(rights, arguments)
        if event:
            self._rights.changed(event, name=arguments["name"])
        return result

    return guarded


_READ_TOPIC, _DESCRIBE_TOPIC = _topic(Operation.READ), _topic(Operation.DESCRIBE)
_CONSUME: Final = (_READ_TOPIC, _group(Operation.READ, "name"))


class AuthorizedBroker:
    """`native.broker.Broker` for one client; rights are those of its principal and address."""

    def __init__(self, broker: Broker, rights: ClientRights) -> None:
        self._broker = broker
        self._rights = rights

    def _demand(self, rights: Sequence[CallRight], arguments: Mapping[str, Any]) -> None:
        for right in rights:
            name = right.resource_name(arguments)
            is_group = right.resource_type is ResourceType.GROUP
            if is_group and (not name or name.startswith(ANONYMOUS_PREFIX)):
                continue  # an anonymous subscriber's group needs only the right to read the topic
            self._rights.demand(right.operation, right.resource_type, name)

    # Topics

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic; to create it needs Create on it or on the cluster."""
        self._rights.demand(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        try:
            return await self._broker.lookup(topic, create=False)
        except TopicNotFound:
            if not create:
                raise
        self._demand_creation(topic)
        found = await self._broker.lookup(topic, create=True)
        self._rights.changed("created topic", name=found.name)
        return found

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic; needs Create on it or on the cluster."""
        self._demand_creation(name)
        await self._broker.create_topic(name, partitions, config)
        self._rights.changed("created topic", name=name)

    def _demand_creation(self, topic: str) -> None:
        if not self._rights.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            self._rights.demand(Operation.CREATE, ResourceType.TOPIC, topic)

    async def topics(self) -> list[str]:
        """Return the topics that the client may describe."""
        return self._described(ResourceType.TOPIC, await self._broker.topics())

    async def topic_stats(self, name: str) -> TopicStats:
        """Return the numbers of a topic, with the subscriptions that the client may describe."""
        self._rights.demand(Operation.DESCRIBE, ResourceType.TOPIC, name)
        found = await self._broker.topic_stats(name)
        visible = self._described(ResourceType.GROUP, found.subscriptions)
        return TopicStats(
            name=found.name, partitions=found.partitions, subscriptions=tuple(visible)
        )

    def _described(self, resource_type: ResourceType, names: Sequence[str]) -> list[str]:
        allows = self._rights.allows
        return [name for name in names if allows(Operation.DESCRIBE, resource_type, name)]

    delete_topic = _guarded(
        Broker.delete_topic, _topic(Operation.DELETE, "name"), event="deleted topic"
    )
    create_partitions = _guarded(
        Broker.create_partitions, _topic(Operation.ALTER, "name"), event="created partitions"
    )
    terminate = _guarded(
        Broker.terminate, _topic(Operation.ALTER, "name"), event="terminated topic"
    )
    last_record = _guarded(Broker.last_record, _DESCRIBE_TOPIC)
    committed_ends = _guarded(Broker.committed_ends, _DESCRIBE_TOPIC)
    record_at = _guarded(Broker.record_at, _DESCRIBE_TOPIC)
    offset_of = _guarded(Broker.offset_of, _DESCRIBE_TOPIC)
    start_compaction = _guarded(Broker.start_compaction, _topic(Operation.ALTER))
    compaction_status = _guarded(Broker.compaction_status, _DESCRIBE_TOPIC)
    start_offload = _guarded(Broker.start_offload, _topic(Operation.ALTER))
    offload_status = _guarded(Broker.offload_status, _DESCRIBE_TOPIC)

    # Namespaces and policies

    namespaces = _guarded(Broker.namespaces, _cluster(Operation.DESCRIBE))
    create_namespace = _guarded(
        Broker.create_namespace, _cluster(Operation.CREATE), event="created namespace"
    )
    delete_namespace = _guarded(
        Broker.delete_namespace, _cluster(Operation.ALTER), event="deleted namespace"
    )

    async def policies(self, name: str) -> dict[str, str]:
        """Return policies; needs DescribeConfigs on the topic, or on the cluster."""
        self._demand_policies(Operation.DESCRIBE_CONFIGS, name)
        return await self._broker.policies(name)

    async def set_policies(
        self, name: str, policies: Mapping[str, str], removed: Sequence[str]
    ) -> None:
        """Change policies; needs AlterConfigs on the topic, or for a namespace on the cluster."""
        self._demand_policies(Operation.ALTER_CONFIGS, name)
        await self._broker.set_policies(name, policies, removed)
        names = ",".join(sorted({*policies, *removed}))
        self._rights.changed("altered policies", name=name, policies=names)

    def _demand_policies(self, operation: Operation, name: str) -> None:
        if is_namespace(name):
            self._rights.demand(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        else:
            self._rights.demand(operation, ResourceType.TOPIC, name)

    # Subscriptions

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the subscriptions that the client may describe."""
        self._rights.demand(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        return self._described(ResourceType.GROUP, await self._broker.subscriptions(topic))

    create_subscription = _guarded(Broker.create_subscription, *_CONSUME)
    delete_subscription = _guarded(
        Broker.delete_subscription, _READ_TOPIC, _group(Operation.DELETE, "name")
    )
    subscription_stats = _guarded(
        Broker.subscription_stats, _DESCRIBE_TOPIC, _group(Operation.DESCRIBE, "name")
    )
    reset_subscription = _guarded(Broker.reset_subscription, *_CONSUME)
    skip_messages = _guarded(Broker.skip_messages, *_CONSUME)
    clear_backlog = _guarded(Broker.clear_backlog, *_CONSUME)
    peek = _guarded(Broker.peek, *_CONSUME)

    # Links

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> ProducerLink:
        """Open a link that appends to a partition; needs Write on the topic."""
        needed = (NeededRight(Operation.WRITE, ResourceType.TOPIC, topic),)
        self._rights.demand(*needed[0])
        link = await self._broker.open_producer(topic, partition, name=name, on_ended=on_ended)
        return await self._lasting(link, needed, on_ended)

    async def open_consumer(
        self,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None = None,
    ) -> ConsumerLink:
        """Join a subscription; needs Read on the topic, and on the group unless it is a reader."""
        needed: tuple[NeededRight, ...] = (
            NeededRight(Operation.READ, ResourceType.TOPIC, request.topic),
        )
        self._rights.demand(*needed[0])
        if not await self._is_reader(request):
            group = NeededRight(Operation.READ, ResourceType.GROUP, request.subscription)
            self._rights.demand(*group)
            needed += (group,)
        link = await self._broker.open_consumer(
            request, deliver=deliver, on_ended=on_ended, on_read_position=on_read_position
        )
        return await self._lasting(link, needed, on_ended)

    async def _lasting(
        self, link: Link, needed: tuple[NeededRight, ...], on_ended: OnEnded
    ) -> Link:
        """Let a link end with its rights; they may have gone while it was being opened."""
        try:
            self._rights.end_without(needed, on_ended)
        except NotAllowed:
            await link.close()
            raise
        return link

    async def _is_reader(self, request: ConsumerRequest) -> bool:
        """Whether a request is for a temporary subscription with the name that readers have.

        One that stays is a Group, whatever its name.
        """
        if request.is_durable or not request.subscription.startswith(READER_PREFIX):
            return False
        return request.subscription not in await self._broker.subscriptions(request.topic)

    # Named topics

    async def open_named_topic(
        self, name: str, *, channel_count: int, options: NamedTopicOptions, create: bool
    ) -> NamedTopicInfo:
        """Return a named topic; channels are added, and topics converted, with Alter on the topic.

        One that is missing needs Create on the topic or the cluster.
        """
        self._rights.demand(Operation.DESCRIBE, ResourceType.TOPIC, name)
        try:
            found = await self._broker.open_named_topic(
                name, channel_count=0, options=options, create=False
            )
        except TopicNotFound:
            if not create:
                raise
            await self._demand_conversion(name)
        else:
            if channel_count <= found.channel_count:
                return found
            self._rights.demand(Operation.ALTER, ResourceType.TOPIC, name)
        found = await self._broker.open_named_topic(
            name, channel_count=channel_count, options=options, create=create
        )
        self._rights.changed("altered named topic", name=name, channels=found.channel_count)
        return found

    async def _demand_conversion(self, topic: str) -> None:
        try:
            await self._broker.lookup(topic, create=False)
        except TopicNotFound:
            self._demand_creation(topic)
        else:
            self._rights.demand(Operation.ALTER, ResourceType.TOPIC, topic)

    async def named_topics(self) -> list[str]:
        """Return the named topics that the client may describe."""
        return self._described(ResourceType.TOPIC, await self._broker.named_topics())

    async def subscriber_groups(self, topic: str) -> list[SubscriberGroupInfo]:
        """Return the groups that the client may describe."""
        self._rights.demand(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        allows = self._rights.allows
        return [
            each
            for each in await self._broker.subscriber_groups(topic)
            if allows(Operation.DESCRIBE, ResourceType.GROUP, each.name)
        ]

    destroy_named_topic = _guarded(
        Broker.destroy_named_topic, _topic(Operation.DELETE, "name"), event="deleted topic"
    )
    ensure_subscriber_group = _guarded(
        Broker.ensure_subscriber_group, _READ_TOPIC, _group(Operation.READ, "group")
    )
    destroy_subscriber_group = _guarded(
        Broker.destroy_subscriber_group, _READ_TOPIC, _group(Operation.DELETE, "group")
    )
    wait_for_room = _guarded(Broker.wait_for_room, _topic(Operation.WRITE), waits=True)
    join_subscriber = _guarded(
        Broker.join_subscriber, _READ_TOPIC, _group(Operation.READ, "join.group")
    )
    leave_subscriber = _guarded(
        Broker.leave_subscriber, _READ_TOPIC, _group(Operation.READ, "group")
    )
    poll_channels = _guarded(
        Broker.poll_channels, _READ_TOPIC, _group(Operation.READ, "poll.group"), waits=True
    )
    commit_channels = _guarded(
        Broker.commit_channels, _READ_TOPIC, _group(Operation.READ, "request.group")
    )
    seek_channels = _guarded(
        Broker.seek_channels, _READ_TOPIC, _group(Operation.READ, "request.group")
    )
    channel_ends = _guarded(Broker.channel_ends, _READ_TOPIC, _group(Operation.READ, "group"))

    # Kafka clients

    metrics_clients = _guarded(Broker.metrics_clients, _cluster(Operation.DESCRIBE))
    client_metrics = _guarded(Broker.client_metrics, _cluster(Operation.DESCRIBE))

    async def close(self) -> None:
        """Forget the link that was opened; the broker belongs to all clients."""
        self._rights.close()
