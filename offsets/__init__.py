"""Committed offsets, kept outside the ledger: how far each consumer group has read each partition.

Rule: an offset is visible when it is durable, never before; the key is (group, topic, partition)
and the id of the topic is stored beside it, so that a recreated topic inherits nothing.
Must not know: members, generations, topics as objects, the wire.
"""

from kledger.offsets.offsets_state import (
    NO_EXPIRY,
    CommittedOffset,
    ExpiryRule,
    TopicPartition,
)
from kledger.offsets.store import OffsetStore, StoredOffsets

__all__ = [
    "NO_EXPIRY",
    "CommittedOffset",
    "ExpiryRule",
    "OffsetStore",
    "StoredOffsets",
    "TopicPartition",
]
