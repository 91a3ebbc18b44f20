"""A small broker in memory that records its calls, for tests of the transport.

It is no second implementation of the service: one partition, one consumer, no durability.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from kledger.ledger import Buffer, Position
from kledger.named_topics.model import (
    ChannelAllocation,
    ChannelEnds,
    ChannelPollResult,
    CommitOutcome,
    NamedTopicInfo,
    NamedTopicOptions,
    OwnedChannel,
    SeekOutcome,
    SubscriberGroupInfo,
)
from kledger.native.broker import (
    NO_RECORD,
    Broker,
    ConsumerRequest,
    LedgerStats,
    MetricsClient,
    OnEnded,
    OnReadPosition,
    PartitionStats,
    PushedClientMetrics,
    RecordLocation,
    RecordPosition,
    SendReceipt,
    SubscriptionStats,
    TopicCompactionStatus,
    TopicInfo,
    TopicOffloadStatus,
    TopicStats,
)
from kledger.native.errors import InvalidArgument, KledgerError
from kledger.runtime.signal import Signal
from kledger.subscriptions.model import ALL, Acknowledgement, Deliver, Delivery, RecordMask

METRICS_CLIENT = MetricsClient(
    instance_id="8SNFZ4mrze-BI0VniavN7w",
    client_id="ü",
    software="lib 1.0",
    address="10.0.0.1:4000",
    subscriptions=("all", "some"),
    pushed_at_ms=0,
)
LAST_RECORD = RecordLocation(RecordPosition(Position(3, 4), 5), 6, 70)
COMPACTION_STATUS = TopicCompactionStatus(
    state="error",
    error="partition 1: no space",
    started_ms=5,
    ended_ms=None,
    horizons=(LAST_RECORD, None),
)
OFFLOAD_STATUS = TopicOffloadStatus(
    state="error",
    error="partition 1: the tier is down",
    ledgers_left=2,
    ends=(Position(3, 0), Position(7, 5)),
)
PARTITION_STATS = PartitionStats(
    1, 2, 3,
    (LedgerStats(5, 6, 7, 0, True, True), LedgerStats(8, 9, 10, None, False, False)),
    {"cache": 1, "primary": 0, "tier": 2},
)  # fmt: skip
SUBSCRIPTION_STATS = SubscriptionStats(
    type=None,
    backlog=1,
    unacknowledged=2,
    consumers=("a", "b"),
    redelivery_rate=0.25,
    revision_num=3,
    is_under_revision=True,
)

NAMED_TOPIC = NamedTopicInfo("orders", 3, NamedTopicOptions(page_bytes=7))
CHANNEL_ENDS = ChannelEnds(1, 5, 0, 9, -1, 0, 9)
SUBSCRIBER_GROUP = SubscriberGroupInfo("g", False, (5, 6), "m:f", "", (CHANNEL_ENDS,))
ALLOCATION = ChannelAllocation("g", 5, 2, 3, (OwnedChannel(1, 2, 0, 0),), "m:f", "")

P = ParamSpec("P")
R = TypeVar("R")


def batch(text: bytes, *, records: int = 1, size: int = 0) -> bytes:
    """Build a fake stored batch: a header with a count of records, and text."""
    return b"\0" * 57 + records.to_bytes(4, "big") + text.ljust(size, b".")


def delivery(
    entry_id: int, text: bytes = b"x", *, count: int = 1, records: int = ALL, size: int = 0
) -> Delivery:
    return Delivery(Position(3, entry_id), batch(text, records=count, size=size), records, 0)


class RecordingLink:
    """Either kind of link."""

    def __init__(self, broker: "RecordingBroker", name: str, on_ended: OnEnded) -> None:
        self._broker = broker
        self.name = name
        self.on_ended = on_ended
        self.is_closed = False
        self.permits = 0
        self.deliver: Deliver = lambda _: None
        self.on_read_position: OnReadPosition = lambda _: None
        self.hold: asyncio.Event | None = None
        self.refused: set[Acknowledgement] = set()

    def _note(self, *what: Any) -> None:
        self._broker.record(self.name, *what)

    async def _maybe_held(self) -> None:
        if self.hold is not None:
            await self.hold.wait()
        self._broker.maybe_fail()

    async def send(self, data: Buffer, *, is_resent: bool = False) -> SendReceipt:
        self._broker.batches.append(bytes(data))
        self._broker.resent.append(is_resent)
        entry_id = len(self._broker.batches) - 1
        assert isinstance(data, bytearray), "the server may write into it"
        self._broker.changed.notify()
        await self._maybe_held()
        return SendReceipt(Position(3, entry_id), 10 * entry_id)

    def add_permits(self, count: int) -> None:
        self.permits += count
        self._note("permits", count)

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        self._note("acknowledge", *acknowledgements)
        await self._maybe_held()
        if not self.refused.isdisjoint(acknowledgements):
            raise InvalidArgument("one of them is refused")

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        self._note("acknowledge_upto", acknowledgement)
        await self._maybe_held()

    def redeliver(self, masks: Sequence[RecordMask] | None) -> None:
        self._note("redeliver", *([None] if masks is None else masks))

    async def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._note("close")


def _recorded(
    method: Callable[Concatenate[Broker, P], Coroutine[Any, Any, R]], answer: R
) -> Callable[Concatenate["RecordingBroker", P], Coroutine[Any, Any, R]]:
    """Return a method that records its name and its arguments in order, and returns `answer`."""

    @functools.wraps(method)
    async def call(self: "RecordingBroker", /, *given: P.args, **named: P.kwargs) -> R:
        arguments = inspect.signature(method).bind(self, *given, **named).arguments
        _, *values = arguments.values()
        await self._answer(None, method.__name__, *values)
        return answer

    return call


class RecordingBroker:
    """Implements `native.broker.Broker`; `calls` and `links` record its use."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.batches: list[bytes] = []
        self.resent: list[bool] = []
        self.links: list[RecordingLink] = []
        self.changed = Signal()
        self.fail_next: Exception | None = None
        self.fail_all: Exception | None = None
        self.refuse: Callable[[], Exception | None] = lambda: None
        self.hold_open: asyncio.Event | None = None
        self.fail_open: Exception | None = None

    def record(self, *what: Any) -> None:
        self.calls.append(what)
        self.changed.notify()

    def maybe_fail(self) -> None:
        error, self.fail_next = self.fail_next, None
        error = error or self.fail_all or self.refuse()
        if error is not None:
            raise error

    async def happened(self, *what: Any) -> None:
        """Wait until this was called."""
        while what not in self.calls:
            await self.changed.wait()

    async def _answer(self, value: Any, *what: Any) -> Any:
        self.record(*what)
        if self.hold_open is not None:
            await self.hold_open.wait()
        self.maybe_fail()
        return value

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        info = TopicInfo("orders", 3)
        found: TopicInfo = await self._answer(info, "lookup", topic, create)
        return found

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> RecordingLink:
        await self._answer(None, "open_producer", topic, partition, name)
        return self._linked(name, on_ended)

    async def open_consumer(
        self,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None = None,
    ) -> RecordingLink:
        await self._answer(None, "open_consumer", request)
        if self.fail_open is not None:
            raise self.fail_open
        link = self._linked(request.consumer_name, on_ended)
        link.deliver = deliver
        if on_read_position is not None:
            link.on_read_position = on_read_position
        return link

    def _linked(self, name: str, on_ended: OnEnded) -> RecordingLink:
        link = RecordingLink(self, name, on_ended)
        self.links.append(link)
        return link

    last_record = _recorded(Broker.last_record, NO_RECORD)
    committed_ends = _recorded(Broker.committed_ends, [Position(3, 5), Position(-1, 0)])
    offset_of = _recorded(Broker.offset_of, 17)
    create_topic = _recorded(Broker.create_topic, None)
    delete_topic = _recorded(Broker.delete_topic, None)
    topics = _recorded(Broker.topics, ["a", "ü"])
    create_partitions = _recorded(Broker.create_partitions, None)
    terminate = _recorded(Broker.terminate, [LAST_RECORD, NO_RECORD])
    start_compaction = _recorded(Broker.start_compaction, None)
    compaction_status = _recorded(Broker.compaction_status, COMPACTION_STATUS)
    start_offload = _recorded(Broker.start_offload, None)
    offload_status = _recorded(Broker.offload_status, OFFLOAD_STATUS)
    namespaces = _recorded(Broker.namespaces, ["public/default", "t/n"])
    create_namespace = _recorded(Broker.create_namespace, None)
    delete_namespace = _recorded(Broker.delete_namespace, None)
    policies = _recorded(Broker.policies, {"compactionThreshold": "5"})
    set_policies = _recorded(Broker.set_policies, None)
    subscriptions = _recorded(Broker.subscriptions, ["s"])
    create_subscription = _recorded(Broker.create_subscription, None)
    delete_subscription = _recorded(Broker.delete_subscription, None)
    subscription_stats = _recorded(Broker.subscription_stats, SUBSCRIPTION_STATS)
    reset_subscription = _recorded(Broker.reset_subscription, None)
    skip_messages = _recorded(Broker.skip_messages, None)
    clear_backlog = _recorded(Broker.clear_backlog, None)
    peek = _recorded(
        Broker.peek, [(1, Position(3, 4), b"batch", 0b101), (2, Position(3, 5), b"", ALL)]
    )
    open_named_topic = _recorded(Broker.open_named_topic, NAMED_TOPIC)
    destroy_named_topic = _recorded(Broker.destroy_named_topic, None)
    named_topics = _recorded(Broker.named_topics, ["orders"])
    ensure_subscriber_group = _recorded(Broker.ensure_subscriber_group, None)
    destroy_subscriber_group = _recorded(Broker.destroy_subscriber_group, None)
    subscriber_groups = _recorded(Broker.subscriber_groups, [SUBSCRIBER_GROUP])
    wait_for_room = _recorded(Broker.wait_for_room, True)
    join_subscriber = _recorded(Broker.join_subscriber, ALLOCATION)
    leave_subscriber = _recorded(Broker.leave_subscriber, None)
    poll_channels = _recorded(Broker.poll_channels, ChannelPollResult(ALLOCATION, ()))
    commit_channels = _recorded(Broker.commit_channels, [CommitOutcome("committed", "", "")])
    seek_channels = _recorded(Broker.seek_channels, [SeekOutcome(0, 5, 6, 1)])
    channel_ends = _recorded(Broker.channel_ends, [CHANNEL_ENDS])
    metrics_clients = _recorded(
        Broker.metrics_clients,
        [METRICS_CLIENT, replace(METRICS_CLIENT, client_id=None, pushed_at_ms=None)],
    )

    async def record_at(self, topic: str, partition: int, offset: int) -> RecordLocation:
        record = RecordLocation(RecordPosition(Position(4, 2), 1), 3, offset)
        what = ("record_at", topic, partition, offset)
        found: RecordLocation = await self._answer(record, *what)
        return found

    async def topic_stats(self, name: str) -> TopicStats:
        stats = TopicStats(name=name, partitions=(PARTITION_STATS,), subscriptions=("s", "t"))
        found: TopicStats = await self._answer(stats, "topic_stats", name)
        return found

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        metrics = None if instance_id == "missing" else PushedClientMetrics(METRICS_CLIENT, b"otlp")
        found: PushedClientMetrics | None = await self._answer(
            metrics, "client_metrics", instance_id
        )
        return found

    async def close(self) -> None:
        self.record("close")


class Endings:
    """Keeps what `on_ended` was called with."""

    def __init__(self) -> None:
        self.seen: list[KledgerError | None] = []
        self._changed = Signal()

    def __call__(self, error: KledgerError | None) -> None:
        self.seen.append(error)
        self._changed.notify()

    async def first(self) -> KledgerError | None:
        while not self.seen:
            await self._changed.wait()
        return self.seen[0]


class Deliveries:
    """Keeps what was delivered."""

    def __init__(self) -> None:
        self.seen: list[Delivery] = []
        self._changed = Signal()

    def __call__(self, deliveries: Sequence[Delivery]) -> None:
        self.seen += deliveries
        self._changed.notify()

    async def first(self, count: int) -> list[Delivery]:
        while len(self.seen) < count:
            await self._changed.wait()
        return self.seen[:count]
