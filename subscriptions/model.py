"""The words that subscriptions share with those who serve them.

Rule: plain values. What is owed of an entry is a bit mask over its records: bit 0 is the first one,
`ALL` stands for every record there is. A delivery carries the stored batch as it is.
Must not know: who decides with them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from kledger.batches.header import read_record_count
from kledger.ledger import Buffer, Position

ALL = -1
"""The mask of every record of an entry, however many there are."""

KEY_HASH_COUNT = 65_536
"""Keys are hashed to slots 1 to 65,535; 0 is "no slot". Source: Pulsar's sticky key ranges."""


class SubscriptionType(StrEnum):
    """Who of the consumers gets what."""

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
        position: the first entry that is owed; EARLIEST, LATEST, or any: one that does not exist
            goes on to the next.
        batch_index: the first of its records that is owed; all before it are acknowledged. When it
            is the size of the batch, so is the whole entry.
        batch_size: how many records the entry has; of no meaning with an index of 0.
    """

    position: Position
    batch_index: int = 0
    batch_size: int = 0


class Delivery(NamedTuple):
    """Records of one entry that are handed to a consumer together.

    Attributes:
        data: the whole stored batch.
        records: which of its records are meant; the others are not this consumer's.
        redelivery_count: how often these were handed out before.
    """

    position: Position
    data: Buffer
    records: int
    redelivery_count: int

    @property
    def record_count(self) -> int:
        """How many records are meant."""
        count = read_record_count(self.data)
        return count if self.records == ALL else (self.records & (1 << count) - 1).bit_count()


class Acknowledgement(NamedTuple):
    """Records that need not come again.

    Attributes:
        batch_size: how many records the entry has.
    """

    position: Position
    records: int
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How one consumer wants to be served.

    Attributes:
        name: unique in its subscription; orders failover.
        priority_level: 0 is served first.
        key_ranges: sticky key_shared: the slots (first, last) that are this one's; None: its share.
        unacked_max: records handed out and not acknowledged, at which it gets no more; 0: no limit.
    """

    name: str
    priority_level: int = 0
    key_ranges: tuple[tuple[int, int], ...] | None = None
    unacked_max: int = 50_000


Deliver: TypeAlias = Callable[[Sequence[Delivery]], None]
"""Takes what a consumer gets, in order; plain, on the loop, must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSubscriptionStats:
    """Numbers of one subscription of one partition.

    Attributes:
        type: None while no consumer has said which.
        backlog_entries: entries that are not acknowledged.
        unacknowledged: records that are handed out and not acknowledged.
        redelivered: records handed out again since the subscription was opened.
        delayed: records that wait for their time.
    """

    type: SubscriptionType | None
    backlog_entries: int
    unacknowledged: int
    consumers: tuple[str, ...]
    redelivered: int
    delayed: int
    revision_num: int
    is_under_revision: bool
