"""RpcClient: a Broker that is in another process.

Rule: every call of the seam, with the same values and the same errors as the broker itself would
have; on top of them Unavailable, as a connection can be lost. A call is sent once: whether to
repeat it is for its caller to decide.
Must not know: producers, consumers and what they do about a link that has ended.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from kledger.ledger import Position
from kledger.native.broker import (
    ConsumerRequest,
    MetricsClient,
    OnEnded,
    PushedClientMetrics,
    RecordLocation,
    RecordPosition,
    SeekTarget,
    SubscriptionStats,
    TopicInfo,
    TopicStats,
)
from kledger.native.client.operations import OPERATION_TIMEOUT_MS
from kledger.native.proto import kledger_native_pb2 as pb
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
from kledger.native.rpc.values import (
    location_from,
    mask_from,
    metrics_client_from,
    position_from,
    record_position_to,
    subscription_stats_from,
    target_to,
    topic_stats_from,
)
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import Deliver

CONNECT_RETRY_MS = 1_000
"""How long the first connection is tried again when it is refused: mostly there is no server."""


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
    ) -> None:
        """Prepare, on the event loop that will be used; nothing is sent yet.

        Args:
            addresses: HOST:PORT, all of the same server; tried in turn.
            clock: for pauses and limits of time.
            entropy: spreads the pauses.
            keepalive_ms: how long a silent server is left alone, and may then take to answer.
            versions: the protocol versions to speak, lowest and highest.
            operation_timeout_ms: how long to connect, to open a link or a call may take.
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
        )
        self._links: set[RpcLink[Any, Any]] = set()
        self._pending_resets = PendingResets()

    async def connect(
        self,
        *,
        timeout_ms: int | None = None,
        retry_ms: int | None = CONNECT_RETRY_MS,
    ) -> None:
        """Make the connection and agree on a version.

        Args:
            timeout_ms: how long to wait; None: for the operation timeout, as later when the
                connection is lost.
            retry_ms: how long to try again when tries are refused; None: for all that time.

        Raises:
            Unavailable: nobody answers.
            NotAllowed: there is no version that both sides speak.
        """
        await self._connection.ready(timeout_ms, retry_ms=retry_ms)

    async def close(self) -> None:
        """Close every link, then the connection; may be repeated."""
        await asyncio.gather(*(link.close() for link in self._links))
        await self._connection.close()
        await self._supervisor.close()

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic; see `native.broker.Broker`."""
        found = await self._call("Lookup", pb.LookupRequest(topic=topic, create=create))
        return TopicInfo(found.name, found.partition_count)

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> RpcProducerLink:
        """Open a way to append; see `native.broker.Broker`."""
        link = RpcProducerLink(self._connection, on_ended, self._links)
        await link.open(open_producer_message(topic, partition, name))
        return link

    async def open_consumer(
        self, request: ConsumerRequest, *, deliver: Deliver, on_ended: OnEnded
    ) -> RpcConsumerLink:
        """Join a subscription; see `native.broker.Broker`."""
        await self._pending_resets.wait_before_opening(request)
        link = RpcConsumerLink(self._connection, on_ended, self._links, request, deliver)
        self._pending_resets.note_opening(link)
        await link.open(open_consumer_message(request))
        return link

    async def last_record(self, topic: str, partition: int) -> RecordLocation:
        """Return the newest record that can be read; see `native.broker.Broker`."""
        request = pb.GetLastRecordRequest(topic=topic, partition=partition)
        return location_from((await self._call("GetLastRecord", request)).record)

    async def record_at(self, topic: str, partition: int, offset: int) -> RecordLocation:
        """Return the record with that offset; see `native.broker.Broker`."""
        request = pb.GetRecordRequest(topic=topic, partition=partition, offset=offset)
        return location_from((await self._call("GetRecord", request)).record)

    async def offset_of(self, topic: str, partition: int, record_position: RecordPosition) -> int:
        """Return the offset of a record; see `native.broker.Broker`."""
        request = pb.GetOffsetRequest(
            topic=topic, partition=partition, record_position=record_position_to(record_position)
        )
        found: int = (await self._call("GetOffset", request)).offset
        return found

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Make a topic; see `native.broker.Admin`, also for what follows."""
        request = pb.CreateTopicRequest(name=name, partitions=partitions, config=config)
        await self._call("CreateTopic", request)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic with its subscriptions."""
        await self._call("DeleteTopic", pb.DeleteTopicRequest(name=name))

    async def topics(self) -> list[str]:
        """Return all names, sorted."""
        return list((await self._call("ListTopics", pb.ListTopicsRequest())).names)

    async def topic_stats(self, name: str) -> TopicStats:
        """Return a topic's numbers."""
        request = pb.GetTopicStatsRequest(name=name)
        return topic_stats_from(await self._call("GetTopicStats", request))

    async def create_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions, `count` in all."""
        await self._call("CreatePartitions", pb.CreatePartitionsRequest(name=name, count=count))

    async def terminate(self, name: str) -> list[RecordLocation]:
        """Let nothing be added any more; return the newest record of each partition."""
        answer = await self._call("TerminateTopic", pb.TerminateTopicRequest(name=name))
        return [location_from(each) for each in answer.last_records]

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        request = pb.ListSubscriptionsRequest(topic=topic)
        return list((await self._call("ListSubscriptions", request)).names)

    async def create_subscription(self, topic: str, name: str, start: SeekTarget) -> None:
        """Make a durable subscription without a consumer; nothing if there is one."""
        request = pb.CreateSubscriptionRequest(topic=topic, name=name, start=target_to(start))
        await self._call("CreateSubscription", request)

    async def delete_subscription(self, topic: str, name: str, *, force: bool) -> None:
        """Remove one."""
        request = pb.DeleteSubscriptionRequest(topic=topic, name=name, force=force)
        await self._call("DeleteSubscription", request)

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return its numbers."""
        request = pb.GetSubscriptionStatsRequest(topic=topic, name=name)
        return subscription_stats_from(await self._call("GetSubscriptionStats", request))

    async def reset_subscription(
        self, topic: str, name: str, target: SeekTarget, *, partition: int | None, inclusive: bool
    ) -> None:
        """Set where it stands, in one partition or all; its consumers connect again."""
        request = pb.ResetSubscriptionRequest(
            topic=topic,
            name=name,
            target=target_to(target),
            partition=partition,
            inclusive=inclusive,
        )
        with self._resetting(topic, name, partition):
            await self._call("ResetSubscription", request)

    async def skip_messages(self, topic: str, name: str, count: int) -> None:
        """Acknowledge the next so many messages of every partition."""
        request = pb.SkipMessagesRequest(topic=topic, name=name, count=count)
        with self._resetting(topic, name):
            await self._call("SkipMessages", request)

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge everything that is there."""
        with self._resetting(topic, name):
            await self._call("ClearBacklog", pb.ClearBacklogRequest(topic=topic, name=name))

    async def peek(
        self, topic: str, name: str, count: int
    ) -> list[tuple[int, Position, bytes, int]]:
        """Return what would come next: (partition, position, batch, records) of whole entries."""
        answer = await self._call("Peek", pb.PeekRequest(topic=topic, name=name, count=count))
        return [
            (each.partition, position_from(each.position), each.data, mask_from(each.records))
            for each in answer.entries
        ]

    async def metrics_clients(self) -> list[MetricsClient]:
        """Return the Kafka clients that can push metrics, who pushed last comes last."""
        answer = await self._call("ListMetricsClients", pb.ListMetricsClientsRequest())
        return [metrics_client_from(each) for each in answer.clients]

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return what one of them pushed last; None: there is none of that id."""
        request = pb.GetClientMetricsRequest(instance_id=instance_id)
        answer = await self._call("GetClientMetrics", request)
        if not answer.HasField("client"):
            return None
        return PushedClientMetrics(metrics_client_from(answer.client), answer.data)

    def _resetting(
        self, topic: str, subscription: str, partition: int | None = None
    ) -> AbstractContextManager[None]:
        """Surround a request that sets a position, which ends links of this client, too."""
        consumers = [each for each in self._links if isinstance(each, RpcConsumerLink)]
        return self._pending_resets.running(topic, subscription, partition, consumers)

    async def _call(self, name: str, request: Any) -> Any:
        return await self._connection.call(name, request)
