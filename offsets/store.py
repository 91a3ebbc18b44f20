"""Offset store: committed and pending offsets of all groups, as records of two tables.

Rule: an offset holds when its row is durable, by the replay that a start uses. What is decided
while writes are under way is decided on the heads of the tables. A transaction's end moves its
pending offsets in one write; a deletion removes the pending offsets of its partitions as well. The
offsets of some groups may be loaded and unloaded while the others are in use.
Must not know: members and their rights to commit, whether a topic exists.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from kledger.ledger import LedgerStore
from kledger.ledger.record_table import GroupedRecordTable, RecordChange, submit_together
from kledger.offsets.offsets_state import (
    CommittedOffset,
    ExpiryRule,
    PendingIndex,
    PendingKey,
    TopicPartition,
    expired,
    is_superseded,
    sent_after,
)
from kledger.offsets.records import COMMITTED_ROWS, PENDING_ROWS
from kledger.runtime.deferred import Deferred

K = TypeVar("K")
StoredOffsets: TypeAlias = tuple[
    Sequence[tuple[str, Mapping[TopicPartition, CommittedOffset]]],
    Sequence[tuple[str, Mapping[PendingKey, CommittedOffset]]],
]
"""Committed and pending offsets by group, as `read` returns them."""
_NOTHING: Final[Mapping[TopicPartition, CommittedOffset]] = {}


class OffsetStore:
    """Writes offsets, answers reads from memory.

    A write returns None when its offsets hold, or the error with which nothing has changed.
    """

    __slots__ = ("_committed", "_durable", "_index", "_on_replay", "_pending")

    def __init__(
        self, store: LedgerStore, on_replay: Callable[[str], None] = lambda group: None
    ) -> None:
        """Open it empty; `load` fills it.

        Args:
            store: keeps the rows.
            on_replay: called with a group when offsets of it have begun to hold, or were deleted.
        """
        self._on_replay = on_replay
        self._index = PendingIndex()
        self._committed = GroupedRecordTable(store, COMMITTED_ROWS, self._committed_replayed)
        self._pending = GroupedRecordTable(store, PENDING_ROWS, self._pending_replayed)
        self._durable = self._committed.durable

    def load(self, stored: StoredOffsets | None = None) -> None:
        """Replay offsets that were read; None: every stored one.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        committed, pending = stored or (None, None)
        self._committed.load(committed)
        self._pending.load(pending)

    def read(self, is_included: Callable[[str], bool]) -> StoredOffsets:
        """Return the stored offsets of some groups, for `load`; blocks.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        return list(self._committed.read(is_included)), list(self._pending.read(is_included))

    def unload(self, is_included: Callable[[str], bool]) -> None:
        """Forget the offsets of some groups, of which none is being written; their rows stay."""
        for group, offsets in self._pending.durable.items():
            if is_included(group):
                self._index.replay(group, dict.fromkeys(offsets))
        self._committed.unload(is_included)
        self._pending.unload(is_included)

    # Reads of what holds.

    def committed(self, group: str, topic_partition: TopicPartition) -> CommittedOffset | None:
        """Return the last durable commit, or None."""
        offsets = self._durable.get(group)
        return None if offsets is None else offsets.get(topic_partition)

    def all_committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return every durable commit of a group; a view, valid until the next await."""
        return self._durable.get(group, _NOTHING)

    def groups(self) -> list[str]:
        """Return every group with a durable commit."""
        return list(self._durable)

    def lowest_committed(self, topic: str, topic_id: UUID, partition: int) -> int | None:
        """Return the lowest offset that any group has committed of a partition, None without."""
        topic_partition = TopicPartition(topic, partition)
        found = (offsets.get(topic_partition) for offsets in self._durable.values())
        return min(
            (e.offset for e in found if e is not None and e.topic_id == topic_id), default=None
        )

    def is_unstable(self, group: str) -> bool:
        """Whether an open transaction may still change any offset of the group."""
        return self._index.is_unstable(group)

    def has_pending(self, group: str, topic_partition: TopicPartition) -> bool:
        """Whether an open transaction may still change the offset of that partition."""
        return self._index.has_pending(group, topic_partition)

    # Reads of what will hold when every write under way is durable.

    def is_writing(self, group: str) -> bool:
        """Whether a write of the group is under way."""
        return self._committed.is_writing(group) or self._pending.is_writing(group)

    def topic_partitions(self, group: str) -> set[TopicPartition]:
        """Return every partition for which the group will have an offset, pending or committed."""
        pending = {topic_partition for _, topic_partition in self._pending.heads(group)}
        return pending | self._committed.heads(group).keys()

    def groups_of(self, producer_id: int) -> set[str]:
        """Return the groups in which a transaction has pending offsets, or will have them."""
        groups = set(self._index.partitions(producer_id))
        for group in self._pending.groups_under_way():
            if any(key[0] == producer_id for key, _ in self._pending.under_way(group)):
                groups.add(group)
        return groups

    def expired(self, group: str, rule: ExpiryRule, count_max: int) -> list[TopicPartition]:
        """Return partitions with expired offsets, so many at most. Pending offsets never expire."""
        old = expired(self._committed.heads(group), rule)
        return list(islice((each for each in old if not self.has_pending(group, each)), count_max))

    # Writes.

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Deferred[Exception | None]:
        """Store offsets of one group in one atomic write; the mapping must not change any more."""
        pending = self._pending_heads(group, offsets)
        if pending:
            offsets = {each: sent_after(offsets[each], pending.get(each, ())) for each in offsets}
        return submit_together((self._committed.change(group, offsets),))

    def add_pending(
        self, producer_id: int, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Deferred[Exception | None]:
        """Store offsets that an open transaction would commit; invisible until it does."""
        pending, committed = self._pending_heads(group, offsets), self._committed.head
        ordered = {
            (producer_id, each): sent_after(offset, pending.get(each, ()), committed(group, each))
            for each, offset in offsets.items()
        }
        return submit_together((self._pending.change(group, ordered),))

    def end(
        self, producer_id: int, groups: Collection[str], *, is_commit: bool
    ) -> list[RecordChange]:
        """Return the changes that end a transaction's offsets of groups, to be written together."""
        changes: list[RecordChange] = []
        pending_head, committed_head = self._pending.head, self._committed.head
        topic_partitions = self._index.partitions(producer_id)
        for group in groups:
            keys = {(producer_id, each) for each in topic_partitions.get(group, ())}
            keys.update(key for key, _ in self._pending.under_way(group) if key[0] == producer_id)
            ended = {
                key: offset for key in keys if (offset := pending_head(group, key)) is not None
            }
            holding = {
                key[1]: offset
                for key, offset in ended.items()
                if is_commit and not is_superseded(offset, committed_head(group, key[1]))
            }
            changes += self._changes(group, holding, dict.fromkeys(ended))
        return changes

    def deletion(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> list[RecordChange]:
        """Return the changes that delete offsets of a group, pending ones too.

        With `topic_partitions(group)` they delete all of them.
        """
        wanted = dict.fromkeys(topic_partitions)
        committed = [each for each in wanted if self._committed.head(group, each) is not None]
        pending = [key for key in self._pending.heads(group) if key[1] in wanted]
        return self._changes(group, dict.fromkeys(committed), dict.fromkeys(pending))

    def deletions_of_topics(self, topic_ids: Set[UUID]) -> Iterator[tuple[str, list[RecordChange]]]:
        """Iterate over groups with the changes that delete their offsets of topics."""
        for group in {*self._committed.groups(), *self._pending.groups()}:
            committed = _of_topics(self._committed.heads(group), topic_ids)
            pending = _of_topics(self._pending.heads(group), topic_ids)
            changes = self._changes(group, dict.fromkeys(committed), dict.fromkeys(pending))
            if changes:
                yield group, changes

    def _changes(
        self,
        group: str,
        committed: Mapping[TopicPartition, CommittedOffset | None],
        pending: Mapping[PendingKey, None],
    ) -> list[RecordChange]:
        changes: list[RecordChange] = []
        if committed:
            changes.append(self._committed.change(group, committed))
        if pending:
            changes.append(self._pending.change(group, pending))
        return changes

    def _pending_heads(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Sequence[CommittedOffset]]:
        """Return what open transactions would commit for those of the partitions that have any."""
        if not self._pending.has_group(group):
            return {}
        durable = self._index.producers(group)
        keys = {(other, each) for each in topic_partitions for other in durable.get(each, ())}
        keys.update(key for key, _ in self._pending.under_way(group) if key[1] in topic_partitions)
        heads: dict[TopicPartition, list[CommittedOffset]] = {}
        for key in keys:
            if (offset := self._pending.head(group, key)) is not None:
                heads.setdefault(key[1], []).append(offset)
        return heads

    def _committed_replayed(
        self, group: str, _: Mapping[TopicPartition, CommittedOffset | None]
    ) -> None:
        self._on_replay(group)

    def _pending_replayed(
        self, group: str, offsets: Mapping[PendingKey, CommittedOffset | None]
    ) -> None:
        self._index.replay(group, offsets)
        self._on_replay(group)


def _of_topics(offsets: Mapping[K, CommittedOffset], topic_ids: Set[UUID]) -> list[K]:
    return [key for key, offset in offsets.items() if offset.topic_id in topic_ids]
