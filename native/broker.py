"""Broker: the interface between a native client and a server, embedded or remote.

Rule: plain values only, so that the same calls cross a process boundary. Every method raises the
classes of `native.errors`. A link that the server ends calls `on_ended` once and is unusable from
then on; the client opens another one. A link belongs to one partition; the client combines the
partitions of a topic.
Must not know: sockets, the implementation of the server.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from kledger.delivery.model import (
    EARLIEST,
    LATEST,
    NO_RECORD,
    RecordLocation,
    RecordPosition,
    SeekTarget,
)
from kledger.ledger import Buffer, Position
from kledger.native.errors import KledgerError
from kledger.native.named_topic_broker import NamedTopicBroker
from kledger.subscriptions.model import (
    Acknowledgement,
    Deliver,
    OnReadPosition,
    RecordMask,
    SubscriptionType,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_RECORD",
    "NUMBER_MAX",
    "Broker",
    "BrokerAdmin",
    "ConsumerLink",
    "ConsumerRequest",
    "LedgerStats",
    "MetricsClient",
    "OnEnded",
    "OnReadPosition",
    "PartitionStats",
    "ProducerLink",
    "PushedClientMetrics",
    "RecordLocation",
    "RecordPosition",
    "SeekTarget",
    "SendReceipt",
    "SubscriptionStats",
    "TopicCompactionStatus",
    "TopicInfo",
    "TopicOffloadStatus",
    "TopicStats",
]

NUMBER_MAX = (1 << 63) - 1
"""The largest number in any value; the smallest is -1."""


class TopicInfo(NamedTuple):
    """The short name of a topic and the number of its partitions.

    Attributes:
        leaders: of each partition, HOST:PORT of the broker that leads it, an empty text if that is
            not known yet; empty: the server is alone.
    """

    name: str
    partition_count: int
    leaders: tuple[str, ...] = ()


class SendReceipt(NamedTuple):
    """The position of a stored batch; `base_offset` is the Kafka offset of its first record."""

    position: Position
    base_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRequest:
    """How a client wants to consume one partition.

    Attributes:
        subscription: its name; a reader uses a unique one.
        start: where a new subscription begins; ignored if the subscription exists.
        is_start_inclusive: whether a record that `start` names is delivered, or the next one.
        is_durable: False: the cursor is deleted with the last consumer.
        consumer_name: unique in the subscription; empty: the server chooses one.
        unacked_max: unacknowledged records of this consumer at most; 0: no limit.
        unacked_subscription_max: the same for all consumers of the subscription together.
        failover_delay_ms: how long the next active consumer waits before it receives.
        reads_compacted: exclusive, failover: whether it gets the last record of each key, where
            the partition is compacted; the same for all consumers of the subscription.
        is_continued: whether it has got the records before the start over an earlier link.
    """

    topic: str
    partition: int
    subscription: str
    type: SubscriptionType
    start: SeekTarget = LATEST
    is_start_inclusive: bool = True
    is_durable: bool = True
    consumer_name: str = ""
    priority_level: int = 0
    key_ranges: tuple[tuple[int, int], ...] | None = None
    unacked_max: int = 50_000
    unacked_subscription_max: int = 200_000
    failover_delay_ms: int = 1_000
    reads_compacted: bool = False
    is_continued: bool = False


PERMITS_PER_CALL_MAX = 1 << 20
"""Permits that one call may add: twice the largest queue of a client."""

OnEnded: TypeAlias = Callable[[KledgerError | None], None]
"""Called once, on the event loop, when a link has ended without having been closed, and before its
pending calls fail. None: the server closed it for a reset, and the same request may be repeated at
once; Unavailable and SubscriptionFenced: it may be repeated later; every other error is final."""


class ProducerLink(Protocol):
    """Sends batches to one partition."""

    async def send(self, batch: Buffer, *, is_resent: bool = False) -> SendReceipt:
        """Append one record batch; return when it is as durable as the server promises.

        Overlapping calls are appended in the order in which they began. A batch of an idempotent
        producer is stored once: if it was stored before, the receipt names the stored one.

        Args:
            batch: without offsets; the server may write them into it.
            is_resent: it was sent before over another link, whose answer was lost.

        Raises:
            NotInSequence: the batch does not follow the last one of its producer.
            Unavailable: also when the server cannot tell whether a resent batch is stored.
        """
        ...

    async def close(self) -> None:
        """Close the link; may be repeated."""
        ...


class ConsumerLink(Protocol):
    """One consumer of one partition's subscription."""

    def add_permits(self, count: int) -> None:
        """Permit the server to deliver `count` more records, at most PERMITS_PER_CALL_MAX."""
        ...

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records individually; return when that is durable."""
        ...

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge all earlier entries and these records of this one; return when durable.

        Raises:
            InvalidArgument: the type of the subscription does not allow it.
        """
        ...

    def redeliver(self, masks: Sequence[RecordMask] | None) -> None:
        """Redeliver these records, or all unacknowledged ones of this consumer (None).

        An exclusive or failover consumer always gets all of them, in order. When all are
        redelivered, an earlier delivery that is still in flight is dropped.
        """
        ...

    async def close(self) -> None:
        """Leave the subscription; other consumers get the unacknowledged records. Repeatable."""
        ...


class LedgerStats(NamedTuple):
    """One ledger of a partition.

    Attributes:
        entries: how many record batches it has.
        size: their bytes.
        closed_ms: wall time of closing; None while it is open.
        offloaded: whether the tier has all of it.
        primary_deleted: whether only the tier has it.
    """

    ledger_id: int
    entries: int
    size: int
    closed_ms: int | None
    offloaded: bool
    primary_deleted: bool


class PartitionStats(NamedTuple):
    """Numbers of one partition.

    Attributes:
        ledgers: oldest first.
        reads: entries that were read since the start of the server, by where they came from:
            `cache`, `primary`, `tier`.
    """

    log_start_offset: int
    end_offset: int
    size_bytes: int
    ledgers: tuple[LedgerStats, ...] = ()
    reads: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffloadStatus:
    """How far the offloading of a topic has come.

    Attributes:
        state: not_run, running, success or error; of the last run since the start.
        error: why it failed; empty unless it did.
        ledgers_left: closed ledgers with entries that are not offloaded.
        ends: of each partition the first position that is not offloaded.
    """

    state: str
    error: str
    ledgers_left: int
    ends: tuple[Position, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCompactionStatus:
    """How far the compaction of a topic has come.

    Attributes:
        state: not_run, running, success or error.
        error: why it failed; empty unless it did.
        started_ms, ended_ms: wall time; None if it is not known, or has not come.
        horizons: of each partition the last record that is compacted, None if none is.
    """

    state: str
    error: str
    started_ms: int | None
    ended_ms: int | None
    horizons: tuple[RecordLocation | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """Numbers of one topic."""

    name: str
    partitions: tuple[PartitionStats, ...]
    subscriptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """Numbers of one subscription over all partitions.

    Attributes:
        type: None until a consumer has subscribed since the server started.
        backlog: messages that are not acknowledged.
        unacknowledged: messages that are delivered and not acknowledged.
        consumers: their names.
        redelivery_rate: redelivered messages per second, over the last minute.
        revision_num: how often its position was set from outside; the largest of all partitions.
        is_under_revision: whether its position is being set now.
    """

    type: str | None
    backlog: int
    unacknowledged: int
    consumers: tuple[str, ...]
    redelivery_rate: float
    revision_num: int
    is_under_revision: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsClient:
    """A Kafka client that can push metrics of itself (KIP-714).

    Attributes:
        instance_id: in Kafka's form, 22 characters.
        software: name and version of the library, as the client reports them.
        address: HOST:PORT.
        subscriptions: the names of the metrics subscriptions that match it.
        pushed_at_ms: None: it has pushed nothing.
    """

    instance_id: str
    client_id: str | None
    software: str
    address: str
    subscriptions: tuple[str, ...]
    pushed_at_ms: int | None


class PushedClientMetrics(NamedTuple):
    """The last metrics that a Kafka client pushed."""

    client: MetricsClient
    data: bytes
    """MetricsData of OpenTelemetry; empty when it has pushed nothing."""


class BrokerAdmin(Protocol):
    """The administration of topics and subscriptions, each over all its partitions."""

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic. Raises TopicExists, InvalidArgument."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its subscriptions. Raises TopicNotFound."""
        ...

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        ...

    async def topic_stats(self, name: str) -> TopicStats:
        """Return the numbers of a topic. Raises TopicNotFound."""
        ...

    async def create_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic, until it has `count`.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: it has that many partitions, or more.
        """
        ...

    async def terminate(self, name: str) -> list[RecordLocation]:
        """Refuse further batches; return the newest record of each partition."""
        ...

    async def start_compaction(self, topic: str) -> None:
        """Begin to compact a topic; `compaction_status` says how it ends.

        Raises:
            TopicNotFound: there is no such topic.
            CompactionRunning: it is being compacted.
        """
        ...

    async def compaction_status(self, topic: str) -> TopicCompactionStatus:
        """Return how far the compaction of a topic has come. Raises TopicNotFound."""
        ...

    async def start_offload(
        self, topic: str, position: Position | None, partition: int | None
    ) -> None:
        """Begin to copy closed ledgers of a topic to the tier; `offload_status` says how it ends.

        Args:
            topic: by either of its names.
            position: the ledgers before that of this position; None: all.
            partition: that of the position; None: all.

        Raises:
            TopicNotFound: there is no such topic, or no such partition.
            OffloadInProgress: it is being offloaded.
            NotAllowed: the server has no tier.
        """
        ...

    async def offload_status(self, topic: str) -> TopicOffloadStatus:
        """Return how far the offloading of a topic has come. Raises TopicNotFound."""
        ...

    async def namespaces(self) -> list[str]:
        """Return the names of all namespaces, sorted."""
        ...

    async def create_namespace(self, name: str) -> None:
        """Create a namespace. Raises NamespaceExists, InvalidArgument, NotAllowed."""
        ...

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace. Raises NamespaceNotFound; NotAllowed: it has topics."""
        ...

    async def policies(self, name: str) -> dict[str, str]:
        """Return what is set for a namespace, or for a topic itself, by Pulsar's names.

        Raises:
            NamespaceNotFound, TopicNotFound: there is none of that name.
        """
        ...

    async def set_policies(
        self, name: str, policies: Mapping[str, str], removed: Sequence[str]
    ) -> None:
        """Change policies of a namespace or a topic, all or none; they are in force at once.

        Args:
            name: of the topic, or with one slash of the namespace.
            policies: what to set, by Pulsar's names.
            removed: names of what not to set any more.

        Raises:
            NamespaceNotFound, TopicNotFound: there is none of that name.
            InvalidArgument: a policy is unknown, or its value is not allowed.
        """
        ...

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        ...

    async def create_subscription(self, topic: str, name: str, start: SeekTarget) -> None:
        """Create a durable subscription without a consumer, unless it exists."""
        ...

    async def delete_subscription(self, topic: str, name: str, *, force: bool) -> None:
        """Delete a subscription; with `force`, its consumers are disconnected.

        Raises:
            SubscriptionNotFound: there is none.
            ConsumerBusy: it has consumers.
        """
        ...

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return the numbers of a subscription. Raises SubscriptionNotFound."""
        ...

    async def reset_subscription(
        self, topic: str, name: str, target: SeekTarget, *, partition: int | None, inclusive: bool
    ) -> None:
        """Set the position of a subscription; its consumers are disconnected.

        When this or one of the next two methods returns, the earlier links of this client have
        ended and deliver nothing more.

        Args:
            topic: by either of its names.
            name: of the subscription.
            target: the new position.
            partition: None: all partitions.
            inclusive: whether the record that `target` names is delivered, or the next one.
        """
        ...

    async def skip_messages(self, topic: str, name: str, count: int) -> None:
        """Acknowledge the next `count` messages of every partition."""
        ...

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge every visible message."""
        ...

    async def peek(
        self, topic: str, name: str, count: int
    ) -> list[tuple[int, Position, bytes, int]]:
        """Return the next `count` entries of every partition without delivering them.

        Returns:
            (partition, position, batch, mask of the unacknowledged records) of whole entries.
        """
        ...

    async def metrics_clients(self) -> list[MetricsClient]:
        """Return the Kafka clients that can push metrics; the last to push comes last."""
        ...

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return the last metrics that a client pushed; None: there is no client of that id."""
        ...


class Broker(BrokerAdmin, NamedTopicBroker, Protocol):
    """A server, as a native client sees it."""

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic by either of its names.

        Args:
            topic: the short name or the long one.
            create: create it if it is missing and the server creates topics automatically.

        Raises:
            TopicNotFound: there is none, and none was created.
        """
        ...

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> ProducerLink:
        """Open a link that appends to a partition. Raises TopicNotFound, TopicTerminated."""
        ...

    async def open_consumer(
        self,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None = None,
    ) -> ConsumerLink:
        """Join a subscription; nothing is delivered before the first permits.

        Args:
            request: how to consume.
            deliver: called with what is delivered.
            on_ended: called when the server or a lost connection has ended the link.
            on_read_position: only for an exclusive consumer: called when its read position has
                moved further than deliveries show, and once when it has joined.

        Raises:
            ConsumerBusy, ConsumerAssign: another consumer excludes this one.
            SubscriptionFenced: the subscription is being reset.
            TopicNotFound, InvalidArgument: the request is wrong.
        """
        ...

    async def last_record(self, topic: str, partition: int) -> RecordLocation:
        """Return the newest record that can be read, or NO_RECORD."""
        ...

    async def committed_ends(self, topic: str) -> list[Position]:
        """Return for each partition the position behind the last entry that can be read.

        A consumer whose read position has reached it has got everything that was committed before
        the call, except what follows the first open transaction.
        """
        ...

    async def record_at(self, topic: str, partition: int, offset: int) -> RecordLocation:
        """Return the record with that Kafka offset. Raises InvalidArgument when there is none."""
        ...

    async def offset_of(self, topic: str, partition: int, record_position: RecordPosition) -> int:
        """Return the Kafka offset of a record. Raises InvalidArgument when there is none."""
        ...

    async def close(self) -> None:
        """Close all links; may be repeated."""
        ...
