"""RoutingBroker: the brokers of a cluster as one Broker, over one connection to each.

Rule: a call of one partition goes to its leader, a call of a topic to all leaders of the topic, and
their answers are combined, a call of a named topic to the leader of its channels, and every other
call to the broker that the client is connected to. A lookup returns the leaders; it is repeated
when a broker is not the leader or cannot be reached. An unreachable broker is like a lost
connection to a single server. A change of shared state ends when all connected brokers have applied
it.
Must not know: how answers are combined, how a call is sent.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from kledger.ledger import Position
from kledger.named_topics.model import NamedTopicInfo, NamedTopicOptions
from kledger.native.backoff import Backoff
from kledger.native.broker import (
    Broker,
    ConsumerLink,
    ConsumerRequest,
    MetricsClient,
    OnEnded,
    ProducerLink,
    PushedClientMetrics,
    SeekTarget,
    TopicInfo,
)
from kledger.native.errors import (
    AlreadyClosed,
    ConsumerBusy,
    NotLeaderForPartition,
    TopicNotFound,
    Unavailable,
)
from kledger.native.rpc import combined_answers
from kledger.native.rpc.combined_answers import PartitionsUnknown
from kledger.native.rpc.unary_calls import UnaryCall, UnaryCalls
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.subscriptions.model import Deliver, OnReadPosition
from kledger.topics.topic_names import resolve_name

P = ParamSpec("P")
R = TypeVar("R")


class BrokerClient(Broker, Protocol):
    """A connection to one broker; `RpcClient` is one."""

    @property
    def address(self) -> str:
        """HOST:PORT of the broker."""
        ...

    @property
    def operation_timeout_ms(self) -> int:
        """The limit of connecting, opening a link, and a call."""
        ...

    async def connect(self, *, timeout_ms: int | None, retry_ms: int | None) -> None:
        """Return when it is connected, at once if it is; see `RpcClient.connect`."""
        ...

    async def ask_brokers(self) -> Sequence[str]:
        """Return HOST:PORT of each broker of its cluster; an empty text is one not known yet."""
        ...

    async def catch_up(self) -> None:
        """Let the broker apply what others have changed; at the latest when it is connected."""
        ...


Ask: TypeAlias = Callable[[BrokerClient], Awaitable[R]]
"""Asks one broker."""
Combine: TypeAlias = Callable[[str, Sequence[str], Mapping[str, R]], R]
"""Returns one answer; takes the topic, the leader of each partition, and the answer of each."""

TOPICS_MAX = 10_000
"""Topics whose leaders a client remembers."""
BROKERS_MAX = 1_000
"""Addresses that a client is connected to at once."""
FOLLOW_MS_MAX = 5_000
"""How long a broker may need to learn of partitions that it leads."""
FOLLOW_RETRY_FIRST_MS = 5
FOLLOW_RETRY_MAX_MS = 250
MOVED_MS = 1_000
"""After so long without a connection to a leader its address is looked up again: a broker of a
cluster of nodes moves to other servers."""
CHANNEL_0 = 0
"""One broker leads all channels of a named topic."""
ANY_HOSTS = {"0.0.0.0", "[::]", "::", ""}


def _at_any(
    call: UnaryCall[P, R],
) -> Callable[Concatenate["RoutingBroker", P], Coroutine[Any, Any, R]]:
    """Return a method that asks the broker that the client is connected to."""

    @functools.wraps(call.method)
    async def method(self: "RoutingBroker", /, *given: P.args, **named: P.kwargs) -> R:
        return await _asking(call, *given, **named)(self.first)

    return method


def _at_leader(
    call: UnaryCall[P, R], *, partition: int | None = None
) -> Callable[Concatenate["RoutingBroker", P], Coroutine[Any, Any, R]]:
    """Return a method that asks the leader of a partition; None: of the one in its arguments."""

    @functools.wraps(call.method)
    async def method(self: "RoutingBroker", /, *given: P.args, **named: P.kwargs) -> R:
        arguments = call.arguments(*given, **named)
        asked = arguments["partition"] if partition is None else partition
        return await self.ask_leader(_topic_in(arguments), asked, _asking(call, *given, **named))

    return method


def _at_all_leaders(
    call: UnaryCall[P, R], combine: Combine[R]
) -> Callable[Concatenate["RoutingBroker", P], Coroutine[Any, Any, R]]:
    """Return a method that asks all leaders of a topic, and combines their answers."""

    @functools.wraps(call.method)
    async def method(self: "RoutingBroker", /, *given: P.args, **named: P.kwargs) -> R:
        topic = _topic_in(call.arguments(*given, **named))
        return await self.ask_leaders(topic, _asking(call, *given, **named), combine)

    return method


def _changing(
    method: Callable[Concatenate["RoutingBroker", P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["RoutingBroker", P], Coroutine[Any, Any, R]]:
    """Return a method that changes what brokers share, and ends when all have applied it."""

    @functools.wraps(method)
    async def changing(self: "RoutingBroker", /, *given: P.args, **named: P.kwargs) -> R:
        answer = await method(self, *given, **named)
        await self.let_all_catch_up()
        return answer

    return changing


def _asking(call: UnaryCall[P, R], *given: P.args, **named: P.kwargs) -> Ask[R]:
    name = call.method.__name__

    async def ask(client: BrokerClient) -> R:
        answer: R = await getattr(client, name)(*given, **named)
        return answer

    return ask


def _topic_in(arguments: Mapping[str, Any]) -> str:
    return str(arguments["topic"] if "topic" in arguments else arguments["name"])


class RoutingBroker:
    """`native.broker.Broker` of a cluster, and of a server that is alone; close() it once."""

    def __init__(
        self,
        first: BrokerClient,
        client_of: Callable[[str], BrokerClient],
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            first: of any broker; it is closed with this.
            client_of: makes the client of an address, HOST:PORT, that is not connected yet.
            clock: for delays.
            entropy: for the random part of delays.
        """
        self.first = first
        """The client of the broker that the user has named."""
        self._client_of = client_of
        self._clients: dict[str, BrokerClient] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._is_closed = False

    async def close(self) -> None:
        """Close every link, then all connections; may be repeated."""
        self._is_closed = True
        await asyncio.gather(*(each.close() for each in (self.first, *self._clients.values())))

    # Finding brokers

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic; see `native.broker.Broker`."""
        found = await self.first.lookup(topic, create=create)
        self._topics.pop(found.name, None)
        if len(self._topics) >= TOPICS_MAX:
            del self._topics[next(iter(self._topics))]
        self._topics[found.name] = found
        return found

    async def ask_leader(self, topic: str, partition: int, ask: Ask[R]) -> R:
        """Ask the leader of a partition; once more if another broker has become the leader.

        Raises:
            KledgerError: that of the leader, or Unavailable.
        """
        name = resolve_name(topic)
        known = self._topics.get(name)
        if known is not None and (partition < len(known.leaders) or not known.leaders):
            try:
                known = await self._reachable(known, partition)
                return await ask(self._leader(known, partition))
            except NotLeaderForPartition:
                pass
            except (Unavailable, TopicNotFound):
                self._topics.pop(name, None)
                raise
        found = await self._reachable(await self.lookup(topic, create=False), partition)
        return await ask(self._leader(found, partition))

    async def ask_leaders(self, topic: str, ask: Ask[R], combine: Combine[R]) -> R:
        """Ask all leaders of a topic, and combine their answers.

        Raises:
            KledgerError: the first of theirs, or Unavailable.
        """
        begun_ms = self._clock.monotonic_ms()
        backoff = Backoff(self._entropy, first_ms=FOLLOW_RETRY_FIRST_MS, max_ms=FOLLOW_RETRY_MAX_MS)
        while True:
            info = await self._reachable(await self.lookup(topic, create=False))
            if len(set(info.leaders)) <= 1:
                return await ask(self._leader(info, 0))
            clients = {
                address: self._leader(info, info.leaders.index(address))
                for address in dict.fromkeys(info.leaders)
            }
            try:
                return combine(info.name, info.leaders, await _ask_all(clients, ask))
            except PartitionsUnknown:
                if self._clock.monotonic_ms() - begun_ms >= FOLLOW_MS_MAX:
                    raise
            await self._clock.sleep(backoff.next_ms())

    async def let_all_catch_up(self) -> None:
        """Let all connected brokers apply what others have changed: the client sees its changes."""
        await asyncio.gather(*(each.catch_up() for each in (self.first, *self._clients.values())))

    async def _ask_brokers(self, ask: Ask[R]) -> list[R]:
        """Ask every broker of the cluster whose address is known. Raises the first error."""
        addresses = [each for each in await self.first.ask_brokers() if each]
        if not addresses:
            return [await ask(self.first)]
        clients = {address: self._client(address) for address in addresses}
        return list((await _ask_all(clients, ask)).values())

    async def _reachable(self, info: TopicInfo, partition: int | None = None) -> TopicInfo:
        """Return a lookup whose leaders are connected, of a partition or of all.

        Raises:
            Unavailable: one was not reached within the operation timeout.
        """
        begun_ms = self._clock.monotonic_ms()
        while True:
            partitions = range(len(info.leaders)) if partition is None else (partition,)
            clients = {self._leader(info, each) for each in partitions} - {self.first}
            try:
                for each in clients:
                    await each.connect(timeout_ms=MOVED_MS, retry_ms=None)
                return info
            except Unavailable:
                if self._clock.monotonic_ms() - begun_ms >= self.first.operation_timeout_ms:
                    raise
            info = await self.lookup(info.name, create=False)

    def _leader(self, info: TopicInfo, partition: int) -> BrokerClient:
        """Return the client of a leader; if there is none, of the broker that says so."""
        if not 0 <= partition < len(info.leaders):
            return self.first
        address = info.leaders[partition]
        if not address:
            raise Unavailable(
                f"partition {partition} of {info.name}: the broker that leads it has not started"
            )
        return self._client(address)

    def _client(self, address: str) -> BrokerClient:
        host, _, port = address.rpartition(":")
        if host in ANY_HOSTS:
            address = f"{self.first.address.rpartition(':')[0]}:{port}"
        found = self._clients.get(address)
        if found is not None:
            return found
        if self._is_closed:
            raise AlreadyClosed(f"the connection to {self.first.address} is closed")
        if len(self._clients) >= BROKERS_MAX:
            raise Unavailable(
                f"{address}: {BROKERS_MAX} brokers are connected, the most there can be"
            )
        made = self._clients[address] = self._client_of(address)
        return made

    # Links

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> ProducerLink:
        """Open a link that appends to a partition; see `native.broker.Broker`."""

        async def ask(client: BrokerClient) -> ProducerLink:
            return await client.open_producer(topic, partition, name=name, on_ended=on_ended)

        return await self.ask_leader(topic, partition, ask)

    async def open_consumer(
        self,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None = None,
    ) -> ConsumerLink:
        """Join a subscription; see `native.broker.Broker`."""

        async def ask(client: BrokerClient) -> ConsumerLink:
            return await client.open_consumer(
                request, deliver=deliver, on_ended=on_ended, on_read_position=on_read_position
            )

        return await self.ask_leader(request.topic, request.partition, ask)

    # Partitions

    last_record = _at_leader(UnaryCalls.last_record)
    record_at = _at_leader(UnaryCalls.record_at)
    offset_of = _at_leader(UnaryCalls.offset_of)

    # Topics

    create_topic = _at_any(UnaryCalls.create_topic)
    topics = _at_any(UnaryCalls.topics)
    # What is stored of a named topic is at the leader of its channels.
    delete_topic = _changing(_at_leader(UnaryCalls.delete_topic, partition=CHANNEL_0))
    create_partitions = _changing(_at_leader(UnaryCalls.create_partitions, partition=CHANNEL_0))

    committed_ends = _at_all_leaders(UnaryCalls.committed_ends, combined_answers.listed)
    terminate = _at_all_leaders(UnaryCalls.terminate, combined_answers.listed)
    topic_stats = _at_all_leaders(UnaryCalls.topic_stats, combined_answers.topic_stats)
    start_compaction = _at_all_leaders(UnaryCalls.start_compaction, combined_answers.nothing)
    compaction_status = _at_all_leaders(
        UnaryCalls.compaction_status, combined_answers.compaction_status
    )
    offload_status = _at_all_leaders(UnaryCalls.offload_status, combined_answers.offload_status)

    async def start_offload(
        self, topic: str, position: Position | None, partition: int | None
    ) -> None:
        """Begin to copy closed ledgers of a topic to the tier."""

        async def ask(client: BrokerClient) -> None:
            await client.start_offload(topic, position, partition)

        if partition is None:
            await self.ask_leaders(topic, ask, combined_answers.nothing)
        else:
            await self.ask_leader(topic, partition, ask)

    # Namespaces and policies

    namespaces = _at_any(UnaryCalls.namespaces)
    create_namespace = _at_any(UnaryCalls.create_namespace)
    delete_namespace = _at_any(UnaryCalls.delete_namespace)
    policies = _at_any(UnaryCalls.policies)
    set_policies = _changing(_at_any(UnaryCalls.set_policies))

    # Subscriptions

    subscriptions = _at_all_leaders(UnaryCalls.subscriptions, combined_answers.names)
    create_subscription = _at_all_leaders(UnaryCalls.create_subscription, combined_answers.nothing)
    subscription_stats = _at_all_leaders(
        UnaryCalls.subscription_stats, combined_answers.subscription_stats
    )
    skip_messages = _at_all_leaders(UnaryCalls.skip_messages, combined_answers.nothing)
    clear_backlog = _at_all_leaders(UnaryCalls.clear_backlog, combined_answers.nothing)
    peek = _at_all_leaders(UnaryCalls.peek, combined_answers.peeked)

    async def delete_subscription(self, topic: str, name: str, *, force: bool) -> None:
        """Delete a subscription; with `force`, its consumers are disconnected."""
        if not force:  # else a leader without consumers would delete its part
            consumers = (await self.subscription_stats(topic, name)).consumers
            if consumers:
                raise ConsumerBusy(
                    f"subscription {name!r} of {topic} has consumers: {', '.join(consumers)}"
                )

        async def ask(client: BrokerClient) -> None:
            await client.delete_subscription(topic, name, force=force)

        await self.ask_leaders(topic, ask, combined_answers.nothing)

    async def reset_subscription(
        self, topic: str, name: str, target: SeekTarget, *, partition: int | None, inclusive: bool
    ) -> None:
        """Set the position of a subscription; its consumers are disconnected."""

        async def ask(client: BrokerClient) -> None:
            await client.reset_subscription(
                topic, name, target, partition=partition, inclusive=inclusive
            )

        if partition is None:
            await self.ask_leaders(topic, ask, combined_answers.nothing)
        else:
            await self.ask_leader(topic, partition, ask)

    # Named topics

    @_changing
    async def open_named_topic(
        self, name: str, *, channel_count: int, options: NamedTopicOptions, create: bool
    ) -> NamedTopicInfo:
        """Return a named topic; any broker may create it, and then leads its channels."""

        async def ask(client: BrokerClient) -> NamedTopicInfo:
            return await client.open_named_topic(
                name, channel_count=channel_count, options=options, create=create
            )

        try:
            return await self.ask_leader(name, CHANNEL_0, ask)
        except TopicNotFound:
            if not create:
                raise
        try:
            return await ask(self.first)
        except NotLeaderForPartition:  # created meanwhile, by another broker
            return await self.ask_leader(name, CHANNEL_0, ask)

    async def named_topics(self) -> list[str]:
        """Return the names of all named topics, sorted."""
        answers = await self._ask_brokers(lambda client: client.named_topics())
        return sorted({name for names in answers for name in names})

    destroy_named_topic = _changing(_at_leader(UnaryCalls.destroy_named_topic, partition=CHANNEL_0))
    ensure_subscriber_group = _at_leader(UnaryCalls.ensure_subscriber_group, partition=CHANNEL_0)
    destroy_subscriber_group = _at_leader(UnaryCalls.destroy_subscriber_group, partition=CHANNEL_0)
    subscriber_groups = _at_leader(UnaryCalls.subscriber_groups, partition=CHANNEL_0)
    wait_for_room = _at_leader(UnaryCalls.wait_for_room, partition=CHANNEL_0)
    join_subscriber = _at_leader(UnaryCalls.join_subscriber, partition=CHANNEL_0)
    leave_subscriber = _at_leader(UnaryCalls.leave_subscriber, partition=CHANNEL_0)
    poll_channels = _at_leader(UnaryCalls.poll_channels, partition=CHANNEL_0)
    commit_channels = _at_leader(UnaryCalls.commit_channels, partition=CHANNEL_0)
    seek_channels = _at_leader(UnaryCalls.seek_channels, partition=CHANNEL_0)
    channel_ends = _at_leader(UnaryCalls.channel_ends, partition=CHANNEL_0)

    # Kafka clients

    async def metrics_clients(self) -> list[MetricsClient]:
        """Return the Kafka clients that can push metrics; the last to push comes last."""
        return combined_answers.metrics_clients(
            await self._ask_brokers(lambda client: client.metrics_clients())
        )

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return the last metrics that a client pushed; None: there is no client of that id."""
        return combined_answers.newest_push(
            await self._ask_brokers(lambda client: client.client_metrics(instance_id))
        )


async def _ask_all(clients: Mapping[str, BrokerClient], ask: Ask[R]) -> dict[str, R]:
    """Return the answers by the addresses of brokers. Raises as `answers_of`."""
    outcomes = await asyncio.gather(
        *(ask(each) for each in clients.values()), return_exceptions=True
    )
    return combined_answers.answers_of(dict(zip(clients, outcomes, strict=True)))
