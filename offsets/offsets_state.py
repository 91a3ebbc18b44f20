"""Offsets state: which committed offset holds, in which order transactions change it, what expires.

Rule: pending offsets of a transaction are invisible until it ends. Of the offsets of a group for
one partition the one sent last holds, whenever the transactions end; `commit_ms` is their order.
Must not know: rows, clocks, members, whether a topic still exists.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

NO_EXPIRY: Final = -1
NO_LEADER_EPOCH: Final = -1


class TopicPartition(NamedTuple):
    """One partition, by name."""

    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """How far a group has read one partition.

    `expire_ms` is set only for commits of old versions that name a retention of their own.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    topic_id: uuid.UUID


PendingKey: TypeAlias = tuple[int, TopicPartition]
"""Of a pending offset in its group: the producer id of the transaction, and the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryRule:
    """Which offsets of one group are too old.

    Attributes:
        now_ms: wall time.
        retention_ms: how long an offset outlives the time it is counted from.
        counted_from_ms: the time at which the group became empty; None counts from each commit.
        kept_topics: topics that the group still consumes; their offsets stay.
    """

    now_ms: int
    retention_ms: int
    counted_from_ms: int | None = None
    kept_topics: frozenset[str] = frozenset()


def expired(
    committed: Mapping[TopicPartition, CommittedOffset], rule: ExpiryRule
) -> Iterator[TopicPartition]:
    """Iterate over the partitions of a group whose committed offsets have expired."""
    for topic_partition, offset in committed.items():
        if topic_partition.topic not in rule.kept_topics and _is_expired(offset, rule):
            yield topic_partition


def _is_expired(committed: CommittedOffset, rule: ExpiryRule) -> bool:
    if committed.expire_ms != NO_EXPIRY:
        return rule.now_ms >= committed.expire_ms
    start_ms = committed.commit_ms if rule.counted_from_ms is None else rule.counted_from_ms
    return rule.now_ms - start_ms >= rule.retention_ms


# Order: what was sent last holds, whenever transactions end.


def sent_after(
    offset: CommittedOffset,
    pending: Iterable[CommittedOffset],
    committed: CommittedOffset | None = None,
) -> CommittedOffset:
    """Return an offset with a time after those that were sent before it for its partition.

    Args:
        offset: as it was sent.
        pending: of open transactions.
        committed: of the partition, if `offset` is pending itself: without a later commit it will
            replace this one, also one of the same millisecond.
    """
    earliest_ms = offset.commit_ms
    for each in pending:
        earliest_ms = max(earliest_ms, each.commit_ms + 1)
    if committed is not None and committed.commit_ms > earliest_ms:
        earliest_ms = committed.commit_ms
    return offset if earliest_ms == offset.commit_ms else offset._replace(commit_ms=earliest_ms)


def is_superseded(pending: CommittedOffset, committed: CommittedOffset | None) -> bool:
    """Whether a later offset than a pending one of a transaction that ends has been committed."""
    return committed is not None and committed.commit_ms > pending.commit_ms


class PendingIndex:
    """The durable pending offsets, by partition and by producer."""

    __slots__ = ("_partitions", "_producers")

    def __init__(self) -> None:
        self._producers: dict[str, dict[TopicPartition, set[int]]] = {}
        self._partitions: dict[int, dict[str, set[TopicPartition]]] = {}

    def is_unstable(self, group: str) -> bool:
        """Whether an open transaction may still change any offset of the group."""
        return group in self._producers

    def has_pending(self, group: str, topic_partition: TopicPartition) -> bool:
        """Whether an open transaction may still change the offset of that partition."""
        return topic_partition in self._producers.get(group, ())

    def producers(self, group: str) -> Mapping[TopicPartition, Collection[int]]:
        """Return the producer ids of open transactions that may change offsets of the group."""
        return self._producers.get(group, {})

    def partitions(self, producer_id: int) -> Mapping[str, Collection[TopicPartition]]:
        """Return by group the partitions whose offsets the producer's transaction may change."""
        return self._partitions.get(producer_id, {})

    def replay(self, group: str, offsets: Mapping[PendingKey, CommittedOffset | None]) -> None:
        """Follow pending offsets of a group that are durable; None: was deleted."""
        producers = self._producers.setdefault(group, {})
        for (producer_id, topic_partition), offset in offsets.items():
            groups = self._partitions.setdefault(producer_id, {})
            partitions = groups.setdefault(group, set())
            producer_ids = producers.setdefault(topic_partition, set())
            if offset is None:
                partitions.discard(topic_partition)
                producer_ids.discard(producer_id)
            else:
                partitions.add(topic_partition)
                producer_ids.add(producer_id)
            if not producer_ids:
                del producers[topic_partition]
            if not partitions:
                del groups[group]
                if not groups:
                    del self._partitions[producer_id]
        if not producers:
            del self._producers[group]
