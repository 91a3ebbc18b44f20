"""RpcClient: a Broker in another process.

Rule: every method takes the same values and raises the same errors as in the server, and
Unavailable when the connection is lost. A call is sent once; the caller decides about retries.
Must not know: producers, consumers, how they reconnect.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from kledger.native.broker import ConsumerRequest, OnEnded
from kledger.native.client.operations import OPERATION_TIMEOUT_MS
from kledger.native.errors import KledgerError
from kledger.native.rpc.client_credentials import ANONYMOUS_CREDENTIALS, ClientCredentials
from kledger.native.rpc.client_links import (
    RpcConsumerLink,
    RpcLink,
    RpcProducerLink,
    open_consumer_message,
    open_producer_message,
)
from kledger.native.rpc.connection import KEEPALIVE_MS, RpcConnection
from kledger.native.rpc.pending_resets import PendingResets
from kledger.native.rpc.protocol import VERSION_MAX, VERSION_MIN
from kledger.native.rpc.unary_calls import UnaryCall, UnaryCalls
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import Deliver, OnReadPosition

P = ParamSpec("P")
R = TypeVar("R")

CONNECT_RETRY_MS = 1_000
"""How long a refused first connection is retried: most likely there is no server."""


def _remote(
    call: UnaryCall[P, R],
) -> Callable[Concatenate["RpcClient", P], Coroutine[Any, Any, R]]:
    """Return a method that sends a request and returns the result of the response."""

    @functools.wraps(call.method)
    async def method(self: "RpcClient", /, *given: P.args, **named: P.kwargs) -> R:
        return await self._call(call, call.arguments(*given, **named))

    return method


class RpcClient:
    """`native.broker.Broker` over a connection; connect() it once, close() it once."""

    def __init__(
        self,
        *addresses: str,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        keepalive_ms: int = KEEPALIVE_MS,
        versions: tuple[int, int] = (VERSION_MIN, VERSION_MAX),
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        credentials: ClientCredentials = ANONYMOUS_CREDENTIALS,
    ) -> None:
        """Prepare, on the event loop that will be used; nothing is sent yet.

        Args:
            addresses: HOST:PORT, all of the same server; tried one after the other.
            clock: for delays and time limits.
            entropy: for the random part of delays.
            keepalive_ms: silence after which the server is pinged, and its time to answer.
            versions: the lowest and the highest protocol version of this client.
            operation_timeout_ms: the limit of connecting, opening a link, and a call.
            credentials: of this client.

        Raises:
            InvalidArgument: a file of the credentials cannot be read.
        """
        self._supervisor = Supervisor()
        self._connection = RpcConnection(
            *addresses,
            clock=clock or SystemClock(),
            entropy=entropy or SystemEntropy(),
            supervisor=self._supervisor,
            keepalive_ms=keepalive_ms,
            versions=versions,
            operation_timeout_ms=operation_timeout_ms,
            credentials=credentials,
        )
        self._links: set[RpcLink[Any, Any]] = set()
        self._pending_resets = PendingResets()

    async def connect(
        self,
        *,
        timeout_ms: int | None = None,
        retry_ms: int | None = CONNECT_RETRY_MS,
    ) -> None:
        """Connect and agree on a protocol version.

        Args:
            timeout_ms: the time limit; None: the operation timeout.
            retry_ms: how long a refused connection is retried; None: until the time limit.

        Raises:
            Unavailable: no server answers.
            NotAllowed: there is no version that both sides support.
        """
        await self._connection.ready(timeout_ms, retry_ms=retry_ms)

    @property
    def address(self) -> str:
        """The address in use, or being tried."""
        return self._connection.address

    @property
    def operation_timeout_ms(self) -> int:
        """The limit of connecting, opening a link, and a call."""
        return self._connection.operation_timeout_ms

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers of the server's cluster when it was connected; empty: it is alone."""
        return self._connection.brokers

    async def catch_up(self) -> None:
        """Let the server apply what other brokers have changed, if it is connected.

        A server that is connected later does so then. One that fails now is asked by the next call.
        """
        if self._connection.version:
            with suppress(KledgerError):
                await self._connection.ask_brokers()

    async def ask_brokers(self) -> tuple[str, ...]:
        """Return the brokers of the server's cluster now, HOST:PORT; empty text: not known."""
        return await self._connection.ask_brokers()

    async def close(self) -> None:
        """Close every link, then the connection; may be repeated."""
        await asyncio.gather(*(link.close() for link in self._links))
        await self._connection.close()
        await self._supervisor.close()

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> RpcProducerLink:
        """Open a link that appends to a partition; see `native.broker.Broker`."""
        link = RpcProducerLink(self._connection, on_ended, self._links)
        await link.open(open_producer_message(topic, partition, name))
        return link

    async def open_consumer(
        self,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None = None,
    ) -> RpcConsumerLink:
        """Join a subscription; see `native.broker.Broker`."""
        await self._pending_resets.wait_before_opening(request)
        link = RpcConsumerLink(
            self._connection,
            on_ended,
            self._links,
            request,
            deliver,
            on_read_position=on_read_position,
        )
        self._pending_resets.note_opening(link)
        await link.open(
            open_consumer_message(request, reports_read_position=on_read_position is not None)
        )
        return link

    lookup = _remote(UnaryCalls.lookup)
    last_record = _remote(UnaryCalls.last_record)
    committed_ends = _remote(UnaryCalls.committed_ends)
    record_at = _remote(UnaryCalls.record_at)
    offset_of = _remote(UnaryCalls.offset_of)

    create_topic = _remote(UnaryCalls.create_topic)
    delete_topic = _remote(UnaryCalls.delete_topic)
    topics = _remote(UnaryCalls.topics)
    topic_stats = _remote(UnaryCalls.topic_stats)
    create_partitions = _remote(UnaryCalls.create_partitions)
    terminate = _remote(UnaryCalls.terminate)
    start_compaction = _remote(UnaryCalls.start_compaction)
    compaction_status = _remote(UnaryCalls.compaction_status)

    start_offload = _remote(UnaryCalls.start_offload)
    offload_status = _remote(UnaryCalls.offload_status)

    namespaces = _remote(UnaryCalls.namespaces)
    create_namespace = _remote(UnaryCalls.create_namespace)
    delete_namespace = _remote(UnaryCalls.delete_namespace)
    policies = _remote(UnaryCalls.policies)
    set_policies = _remote(UnaryCalls.set_policies)

    subscriptions = _remote(UnaryCalls.subscriptions)
    create_subscription = _remote(UnaryCalls.create_subscription)
    delete_subscription = _remote(UnaryCalls.delete_subscription)
    subscription_stats = _remote(UnaryCalls.subscription_stats)
    reset_subscription = _remote(UnaryCalls.reset_subscription)
    skip_messages = _remote(UnaryCalls.skip_messages)
    clear_backlog = _remote(UnaryCalls.clear_backlog)
    peek = _remote(UnaryCalls.peek)

    open_named_topic = _remote(UnaryCalls.open_named_topic)
    destroy_named_topic = _remote(UnaryCalls.destroy_named_topic)
    named_topics = _remote(UnaryCalls.named_topics)
    ensure_subscriber_group = _remote(UnaryCalls.ensure_subscriber_group)
    destroy_subscriber_group = _remote(UnaryCalls.destroy_subscriber_group)
    subscriber_groups = _remote(UnaryCalls.subscriber_groups)
    wait_for_room = _remote(UnaryCalls.wait_for_room)
    join_subscriber = _remote(UnaryCalls.join_subscriber)
    leave_subscriber = _remote(UnaryCalls.leave_subscriber)
    poll_channels = _remote(UnaryCalls.poll_channels)
    commit_channels = _remote(UnaryCalls.commit_channels)
    seek_channels = _remote(UnaryCalls.seek_channels)
    channel_ends = _remote(UnaryCalls.channel_ends)

    metrics_clients = _remote(UnaryCalls.metrics_clients)
    client_metrics = _remote(UnaryCalls.client_metrics)

    async def _call(self, call: UnaryCall[..., R], arguments: Mapping[str, Any]) -> R:
        request = call.request(arguments)
        if not call.sets_position:
            return call.result(await self._connection.call(call.name, request))
        consumers = [each for each in self._links if isinstance(each, RpcConsumerLink)]
        with self._pending_resets.running(
            arguments["topic"], arguments["name"], arguments.get("partition"), consumers
        ):
            return call.result(await self._connection.call(call.name, request))
