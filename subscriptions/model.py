"""The values that subscriptions take and return.

Rule: plain values. Records of an entry are a bit mask: bit 0 is the first record, `ALL` stands for
all of them. A delivery carries the stored batch as it is.
Must not know: subscriptions, dispatchers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from kledger.batches.header import read_offset_count, read_record_count
from kledger.ledger import Buffer, Position

ALL = -1
"""The mask of every record of an entry, however many there are."""


class SubscriptionType(StrEnum):
    """How records are dispatched to consumers."""

    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"
    KEY_SHARED = "key_shared"


class RecordMask(NamedTuple):
    """Some records of one entry."""

    position: Position
    records: int = ALL


class StartPosition(NamedTuple):
    """Where a subscription begins.

    Attributes:
        position: the first unacknowledged entry: EARLIEST, LATEST, or any position; one without an
            entry stands for the next entry.
        batch_index: the first unacknowledged record of it; when it is the size of the batch, the
            whole entry is acknowledged.
        batch_size: how many records the entry has; ignored when `batch_index` is 0.
    """

    position: Position
    batch_index: int = 0
    batch_size: int = 0


class Delivery(NamedTuple):
    """Records of one entry that are delivered to a consumer together.

    Attributes:
        data: the whole stored batch; one that was compacted may lack records.
        records: the mask of the delivered records, by their offsets in the batch; the others are
            not for this consumer.
        redelivery_count: how often these were delivered before.
    """

    position: Position
    data: Buffer
    records: int
    redelivery_count: int

    @property
    def record_count(self) -> int:
        """How many records are delivered."""
        if self.records == ALL:
            return read_record_count(self.data)
        count = max(read_record_count(self.data), read_offset_count(self.data))
        return (self.records & (1 << count) - 1).bit_count()


class Acknowledgement(NamedTuple):
    """Records of one entry to acknowledge.

    Attributes:
        batch_size: how many records the entry has.
    """

    position: Position
    records: int
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of one consumer.

    Attributes:
        name: unique in its subscription; failover orders consumers by it.
        priority_level: 0 is the highest.
        key_ranges: key_shared: the key hashes (first, last) that it owns; None: its share.
        unacked_max: unacknowledged records at which it gets no more; 0: no limit.
    """

    name: str
    priority_level: int = 0
    key_ranges: tuple[tuple[int, int], ...] | None = None
    unacked_max: int = 50_000


Deliver: TypeAlias = Callable[[Sequence[Delivery]], None]
"""Called with what a consumer gets, in order; plain, on the event loop, must not raise."""


OnReadPosition: TypeAlias = Callable[[Position], None]
"""Called with a read position: all that an exclusive consumer gets of the entries before it was
delivered. It also moves over entries that the consumer does not get: hidden or removed ones. In
order with deliveries; not called for a position that the last delivery shows. Plain, on the event
loop, must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSubscriptionStats:
    """Numbers of one subscription of one partition.

    Attributes:
        type: None while no consumer is connected.
        backlog_entries: entries that are not acknowledged.
        unacknowledged: records that are delivered and not acknowledged.
        redelivered: records delivered again since the subscription was opened.
        delayed: delayed records that are not due yet.
    """

    type: SubscriptionType | None
    backlog_entries: int
    unacknowledged: int
    consumers: tuple[str, ...]
    redelivered: int
    delayed: int
    revision_num: int
    is_under_revision: bool
