"""Offset commits: checks of one committed partition, and the value that is stored.

Rule: null metadata is stored as an empty text; an offset carries the id of its topic, so that a
topic created again under the same name does not inherit it.
Must not know: groups, transactions, how commits are stored.
"""

from typing import TYPE_CHECKING, Protocol

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import NO_EXPIRY, CommittedOffset

if TYPE_CHECKING:
    from kledger.topics import Topic


class PartitionCommit(Protocol):
    """One partition of a request that commits offsets."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


def commit_error(topic: "Topic", partition: PartitionCommit, metadata_max: int) -> ErrorCode:
    """Return the error of one committed partition, or NONE; also for transactions.

    Args:
        topic: that the request names.
        partition: of the request.
        metadata_max: the longest metadata that is allowed, in UTF-16 code units.
    """
    if not 0 <= partition.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata = partition.committed_metadata
    if metadata is not None and _utf16_units(metadata) > metadata_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _utf16_units(text: str) -> int:
    """Return the length in UTF-16 code units, as Kafka's limit counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def committed_offset(
    topic: "Topic", partition: PartitionCommit, *, now_ms: int, expire_ms: int = NO_EXPIRY
) -> CommittedOffset:
    """Return the value of a commit that is stored."""
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_ms=now_ms,
        expire_ms=expire_ms,
        topic_id=topic.id,
    )
