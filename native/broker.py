"""The seam between a native client and a server: what the one may ask of the other.

Rule: plain values only, so that the same calls go through a process boundary. Everything raises the
classes of `native.errors`. A link that ends by itself says so once, through `on_ended`, and is
useless afterwards; whoever opened it opens another one. Partitions are addressed one by one: what
belongs together over the partitions of a topic is the client's business.
Must not know: sockets, and what the server is made of.
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
from kledger.subscriptions.model import Acknowledgement, Deliver, RecordMask, SubscriptionType

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_RECORD",
    "NUMBER_MAX",
    "Broker",
    "BrokerAdmin",
    "ConsumerLink",
    "ConsumerRequest",
    "MetricsClient",
    "OnEnded",
    "PartitionStats",
    "ProducerLink",
    "PushedClientMetrics",
    "RecordLocation",
    "RecordPosition",
    "SeekTarget",
    "SendReceipt",
    "SubscriptionStats",
    "TopicInfo",
    "TopicStats",
]

NUMBER_MAX = (1 << 63) - 1
"""No number goes beyond it; the smallest is -1."""


class TopicInfo(NamedTuple):
    """What a client needs to know of a topic; the name is the short one."""

    name: str
    partition_count: int


class SendReceipt(NamedTuple):
    """Where a batch went; `base_offset` is the Kafka offset of its first record."""

    position: Position
    base_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRequest:
    """What a client wants to consume, of one partition.

    Attributes:
        subscription: its name; for a reader one that nobody else has.
        start: where a subscription that is new begins. Of one that exists it means nothing.
        is_start_inclusive: whether a record that `start` names is the first, or the one behind it.
        is_durable: False: the place is forgotten with its consumers.
        consumer_name: unique in the subscription.
        unacked_max: of this consumer, in records; unacked_subscription_max: of all together.
        failover_delay_ms: how long the next active consumer waits.
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


OnEnded: TypeAlias = Callable[[KledgerError | None], None]
"""Called once, on the loop, when a link has ended without having been closed. None: the server let
go for a reset, and the same request may be made again at once; Unavailable and SubscriptionFenced:
may be tried again later; everything else is final. It is called before calls of the link that were
under way fail because of it."""


class ProducerLink(Protocol):
    """Sends batches to one partition."""

    async def send(self, batch: Buffer, *, is_resent: bool = False) -> SendReceipt:
        """Append one record batch; return when it is as durable as the server promises.

        Calls that overlap are appended in the order in which they began. The batch comes without
        offsets; the server may write into it. One with the numbers of an idempotent producer is
        stored once: the receipt of a batch that was stored before says where.

        Args:
            batch: the batch.
            is_resent: it was sent before, over another link, and nobody has heard the answer.

        Raises:
            NotInSequence: the batch does not follow the last one of its producer.
            Unavailable: also when nobody knows any more whether a batch sent again is stored.
        """
        ...

    async def close(self) -> None:
        """Let go; may be repeated."""
        ...


class ConsumerLink(Protocol):
    """One consumer of one partition's subscription."""

    def add_permits(self, count: int) -> None:
        """Allow that many more records to be delivered."""
        ...

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Acknowledge records one by one; return when that survives a kill of the server."""
        ...

    async def acknowledge_upto(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge all before an entry, and those records of it; return as `acknowledge`.

        Raises:
            InvalidArgument: the type of the subscription does not allow it.
        """
        ...

    def redeliver(self, masks: Sequence[RecordMask] | None) -> None:
        """Let records come again: these, or all that this consumer has not acknowledged.

        With None, and always when one consumer gets everything (exclusive, failover), that is all,
        in order; then nothing is delivered after this call that was handed out before it.
        """
        ...

    async def close(self) -> None:
        """Leave the subscription; what was not acknowledged goes to others. May be repeated."""
        ...


class PartitionStats(NamedTuple):
    """Numbers of one partition."""

    log_start_offset: int
    end_offset: int
    size_bytes: int


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
        type: None while no consumer has said which, since the server started.
        backlog: messages that are not acknowledged.
        unacknowledged: messages that are handed out and not acknowledged.
        consumers: their names.
        redelivery_rate: messages handed out again in a second, over the last minute.
        revision_num: how often its positions were set from outside; the largest of all partitions.
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
    """A Kafka client that can push metrics of itself.

    Attributes:
        instance_id: in Kafka's form, 22 characters.
        software: name and version of the library, as the client says.
        address: HOST:PORT.
        subscriptions: to metrics, of those that match it.
        pushed_at_ms: None: it has pushed nothing.
    """

    instance_id: str
    client_id: str | None
    software: str
    address: str
    subscriptions: tuple[str, ...]
    pushed_at_ms: int | None


class PushedClientMetrics(NamedTuple):
    """What a Kafka client pushed last."""

    client: MetricsClient
    data: bytes
    """MetricsData of OpenTelemetry; empty when it has pushed nothing."""


class BrokerAdmin(Protocol):
    """What a client asks of topics and subscriptions as wholes, and of clients of other kinds."""

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Make a topic. Raises TopicExists, InvalidArgument."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Remove a topic with its subscriptions. Raises TopicNotFound."""
        ...

    async def topics(self) -> list[str]:
        """Return all names, sorted."""
        ...

    async def topic_stats(self, name: str) -> TopicStats:
        """Return a topic's numbers."""
        ...

    async def create_partitions(self, name: str, count: int) -> None:
        """Give a topic more partitions, `count` in all.

        Raises:
            TopicNotFound: there is none.
            InvalidArgument: it has that many, or more.
        """
        ...

    async def terminate(self, name: str) -> list[RecordLocation]:
        """Let nothing be added any more; return the newest record of each partition."""
        ...

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        ...

    async def create_subscription(self, topic: str, name: str, start: SeekTarget) -> None:
        """Make a durable subscription without a consumer; nothing if there is one."""
        ...

    async def delete_subscription(self, topic: str, name: str, *, force: bool) -> None:
        """Remove one. Raises ConsumerBusy while it has consumers, unless they are sent away."""
        ...

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return its numbers."""
        ...

    async def reset_subscription(
        self, topic: str, name: str, target: SeekTarget, *, partition: int | None, inclusive: bool
    ) -> None:
        """Set where it stands, in one partition or all; its consumers connect again.

        When it returns, links of this client from before have ended and deliver nothing more; so
        with the two below.
        """
        ...

    async def skip_messages(self, topic: str, name: str, count: int) -> None:
        """Acknowledge the next so many messages of every partition."""
        ...

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge everything that is there."""
        ...

    async def peek(
        self, topic: str, name: str, count: int
    ) -> list[tuple[int, Position, bytes, int]]:
        """Return what would come next: (partition, position, batch, records) of whole entries."""
        ...

    async def metrics_clients(self) -> list[MetricsClient]:
        """Return the Kafka clients that can push metrics, who pushed last comes last."""
        ...

    async def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return what one of them pushed last; None: there is none of that id."""
        ...


class Broker(BrokerAdmin, Protocol):
    """A server, as a native client sees it."""

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic by either of its names.

        Args:
            topic: the short name or the long one.
            create: make it, if the server does such things by itself.

        Raises:
            TopicNotFound: there is none, and none was made.
        """
        ...

    async def open_producer(
        self, topic: str, partition: int, *, name: str, on_ended: OnEnded
    ) -> ProducerLink:
        """Open a way to append. Raises TopicNotFound, TopicTerminated."""
        ...

    async def open_consumer(
        self, request: ConsumerRequest, *, deliver: Deliver, on_ended: OnEnded
    ) -> ConsumerLink:
        """Join a subscription; nothing comes before there are permits.

        Raises:
            ConsumerBusy, ConsumerAssign: others are in the way.
            SubscriptionFenced: it is being reset.
            TopicNotFound, InvalidArgument: it cannot be.
        """
        ...

    async def last_record(self, topic: str, partition: int) -> RecordLocation:
        """Return the newest record that can be read, or NO_RECORD."""
        ...

    async def record_at(self, topic: str, partition: int, offset: int) -> RecordLocation:
        """Return the record with that Kafka offset. Raises InvalidArgument when there is none."""
        ...

    async def offset_of(self, topic: str, partition: int, record_position: RecordPosition) -> int:
        """Return the Kafka offset of a record. Raises InvalidArgument when there is no such one."""
        ...

    async def close(self) -> None:
        """Let go of everything; may be repeated."""
        ...
