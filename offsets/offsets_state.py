"""Offsets state: what every group has committed, and what open transactions would add.

Rule: only `apply` changes committed offsets, live (after a row became durable) and at start.
Pending offsets of a transaction are invisible until it ends. Of the offsets of a group for one
partition the one sent last holds, whenever the transactions end; `commit_ms` is their order.
Must not know: rows, clocks, members, whether a topic still exists.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

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


OffsetsByPartition = dict[TopicPartition, CommittedOffset]
_NOTHING: Final[Mapping[TopicPartition, CommittedOffset]] = {}


class OffsetsState:
    """Committed and pending offsets of all groups."""

    __slots__ = ("_committed", "_pending", "_unstable")

    def __init__(self) -> None:
        self._committed: dict[str, OffsetsByPartition] = {}
        self._pending: dict[int, dict[str, OffsetsByPartition]] = {}
        self._unstable: dict[
            str, dict[TopicPartition, set[int]]
        ] = {}  # producer ids of open transactions that may change each

    def apply(
        self, group: str, topic_partition: TopicPartition, committed: CommittedOffset | None
    ) -> None:
        """Apply a durable row, or the deletion of one when `committed` is None."""
        if committed is not None:
            self._committed.setdefault(group, {})[topic_partition] = committed
            return
        partition_offsets = self._committed.get(group)
        if partition_offsets is not None:
            partition_offsets.pop(topic_partition, None)
            if not partition_offsets:
                del self._committed[group]

    def committed(self, group: str, topic_partition: TopicPartition) -> CommittedOffset | None:
        """Return the last durable commit, or None."""
        partition_offsets = self._committed.get(group)
        return None if partition_offsets is None else partition_offsets.get(topic_partition)

    def all_committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return every commit of a group; a view, not to be kept across other calls."""
        return self._committed.get(group, _NOTHING)

    def lowest_committed(self, topic: str, topic_id: uuid.UUID, partition: int) -> int | None:
        """Return the lowest offset that any group has committed of a partition, None without."""
        topic_partition = TopicPartition(topic, partition)
        found = (
            partition_offsets.get(topic_partition) for partition_offsets in self._committed.values()
        )
        return min(
            (e.offset for e in found if e is not None and e.topic_id == topic_id), default=None
        )

    def groups(self) -> Iterator[str]:
        """Iterate over the names of groups with any commit, durable or pending."""
        yield from self._committed
        yield from (group for group in self._unstable if group not in self._committed)

    def has_group(self, group: str) -> bool:
        """Whether the group has any commit, durable or pending."""
        return group in self._committed or group in self._unstable

    def expired(self, group: str, rule: ExpiryRule) -> list[TopicPartition]:
        """Return the partitions with expired offsets. Pending offsets never expire."""
        return [
            topic_partition
            for topic_partition, committed in self.all_committed(group).items()
            if topic_partition.topic not in rule.kept_topics
            and _is_expired(committed, rule)
            and not self.has_pending(group, topic_partition)
        ]

    # Transactions: offsets that a producer sent, waiting for its commit or abort.

    def add_pending(
        self, producer_id: int, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Keep offsets of an open transaction; a later one of the same partition replaces it."""
        if offsets:
            self._pending.setdefault(producer_id, {}).setdefault(group, {}).update(offsets)
            unstable = self._unstable.setdefault(group, {})
            for topic_partition in offsets:
                unstable.setdefault(topic_partition, set()).add(producer_id)

    def is_unstable(self, group: str) -> bool:
        """Whether an open transaction may still change any offset of the group."""
        return group in self._unstable

    def has_pending(self, group: str, topic_partition: TopicPartition) -> bool:
        """Whether an open transaction may still change the offset of that partition."""
        return topic_partition in self._unstable.get(group, _NOTHING)

    def pending(self, producer_id: int) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]:
        """Return what the producer's transaction would commit, by group."""
        return self._pending.get(producer_id, {})

    def pending_at(self, group: str, topic_partition: TopicPartition) -> dict[int, CommittedOffset]:
        """Return what open transactions would commit for one partition, by producer id."""
        producers = self._unstable.get(group, {}).get(topic_partition, ())
        return {each: self._pending[each][group][topic_partition] for each in producers}

    def pending_topic_partitions(self, group: str) -> list[TopicPartition]:
        """Return the partitions whose offsets open transactions may still change."""
        return list(self._unstable.get(group, ()))

    def is_superseded(
        self, group: str, topic_partition: TopicPartition, pending: CommittedOffset
    ) -> bool:
        """Whether a later offset than that pending one has been committed."""
        committed = self.committed(group, topic_partition)
        return committed is not None and committed.commit_ms > pending.commit_ms

    def drop_pending(self, group: str, topic_partition: TopicPartition) -> None:
        """Forget the pending offsets of a partition whose committed offset was deleted."""
        for producer_id in self._unstable.get(group, {}).get(topic_partition, set()).copy():
            self._drop(producer_id, group, topic_partition)

    def end_pending(self, producer_id: int) -> None:
        """Forget the pending offsets of a transaction that ended.

        On a commit the caller makes them durable first and gives each to `apply`.
        """
        for group, offsets in list(self.pending(producer_id).items()):
            for topic_partition in list(offsets):
                self._drop(producer_id, group, topic_partition)

    def _drop(self, producer_id: int, group: str, topic_partition: TopicPartition) -> None:
        groups, unstable = self._pending[producer_id], self._unstable[group]
        del groups[group][topic_partition]
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._pending[producer_id]
        unstable[topic_partition].discard(producer_id)
        if not unstable[topic_partition]:
            del unstable[topic_partition]
        if not unstable:
            del self._unstable[group]


def _is_expired(committed: CommittedOffset, rule: ExpiryRule) -> bool:
    if committed.expire_ms != NO_EXPIRY:
        return rule.now_ms >= committed.expire_ms
    start_ms = committed.commit_ms if rule.counted_from_ms is None else rule.counted_from_ms
    return rule.now_ms - start_ms >= rule.retention_ms
