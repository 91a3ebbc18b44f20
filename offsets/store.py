"""Offset store: committed offsets as durable rows, and all of them in memory.

Rule: rows first, then `OffsetsState.apply`, then the caller's `done`; completions come in the order
of submission, and when one write fails, the later ones fail too, so memory never differs from what
a restart would read. A deletion removes the pending offsets of its partitions as well.
Must not know: members and their rights to commit, whether a topic exists.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple
from uuid import UUID

from kledger.ledger import LedgerError, LedgerStore, Row, RowsDone
from kledger.offsets.offsets_state import CommittedOffset, OffsetsState, TopicPartition
from kledger.offsets.records import (
    KEY_PREFIX,
    PENDING_PREFIX,
    decode_key,
    decode_pending_key,
    decode_value,
    encode_key,
    encode_pending_key,
    encode_value,
)

_COMMITTED: Final = -1
"""Stands for a producer id: the offset belongs to no transaction."""


class _PendingWrite(NamedTuple):
    """Rows of one group that are submitted and not durable yet.

    Attributes:
        offsets: what is stored, none by a deletion.
        deleted: the partitions of a deletion.
        producer_id: of the transaction of the offsets, _COMMITTED without one.
    """

    offsets: Mapping[TopicPartition, CommittedOffset]
    deleted: frozenset[TopicPartition] = frozenset()
    producer_id: int = _COMMITTED


class OffsetStore:
    """Writes offsets, answers reads from memory."""

    __slots__ = ("_in_flight", "_store", "state")

    def __init__(self, store: LedgerStore, state: OffsetsState) -> None:
        self._store = store
        self._in_flight: dict[str, deque[_PendingWrite]] = {}
        self.state = state

    @classmethod
    def open(cls, store: LedgerStore) -> "OffsetStore":
        """Read every stored offset through `apply`."""
        state = OffsetsState()
        for key, value in store.scan_rows(KEY_PREFIX):
            group, topic_partition = decode_key(key)
            state.apply(group, topic_partition, decode_value(value, key=key))
        for key, value in store.scan_rows(PENDING_PREFIX):
            producer_id, group, topic_partition = decode_pending_key(key)
            committed = decode_value(value, key=key)
            state.add_pending(producer_id, group, {topic_partition: committed})
        return cls(store, state)

    def is_committing(self, group: str) -> bool:
        """Whether offsets of the group are submitted and not visible yet."""
        return any(write.offsets for write in self._in_flight.get(group, ()))

    def topic_partitions(self, group: str) -> set[TopicPartition]:
        """Return every partition for which the group has a row, durable or submitted."""
        return set(self._last_offsets(group))

    def topic_partitions_of(self, topic_ids: Set[UUID]) -> dict[str, list[TopicPartition]]:
        """Return by group the partitions with offsets of the topics, submitted writes included."""
        found = {}
        for group in {*self.state.groups(), *self._in_flight}:
            last = self._last_offsets(group)
            topic_partitions = [
                topic_partition
                for topic_partition, offset in last.items()
                if offset.topic_id in topic_ids
            ]
            if topic_partitions:
                found[group] = topic_partitions
        return found

    def _last_offsets(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the last offset of each partition: submitted, committed, or pending."""
        committed = self.state.all_committed(group)
        if group not in self._in_flight and not self.state.is_unstable(group):
            return committed
        last: dict[TopicPartition, CommittedOffset] = {}
        for topic_partition in self.state.pending_topic_partitions(group):
            (*_, last[topic_partition]) = self.state.pending_at(group, topic_partition).values()
        last.update(committed)
        for write in self._in_flight.get(group, ()):
            last.update(write.offsets)
        return last

    def commit_nowait(
        self, group: str, offsets: Sequence[tuple[TopicPartition, CommittedOffset]], done: RowsDone
    ) -> None:
        """Store offsets of one group in one atomic write; `done` is called on the loop."""
        stored = dict(offsets)
        if self.state.is_unstable(group) or group in self._in_flight:
            stored = {
                topic_partition: self._with_time_in_order(
                    group, topic_partition, stored[topic_partition]
                )
                for topic_partition in stored
            }
        rows: list[Row] = [
            (encode_key(group, topic_partition), encode_value(committed))
            for topic_partition, committed in stored.items()
        ]

        def apply() -> None:
            for topic_partition, committed in stored.items():
                self.state.apply(group, topic_partition, committed)

        self._submit({group: _PendingWrite(stored)}, rows, apply, done)

    def delete_nowait(
        self,
        group: str,
        topic_partitions: Iterable[TopicPartition],
        done: RowsDone,
        *,
        more_rows: Sequence[Row] = (),
    ) -> None:
        """Delete offsets of one group, pending ones too, atomically with `more_rows`."""
        deleted = frozenset(topic_partitions)
        rows: list[Row] = []
        for topic_partition in deleted:
            rows.append((encode_key(group, topic_partition), None))
            producers = {each for each, _ in self._offsets_at(group, topic_partition)} - {
                _COMMITTED
            }
            rows += [
                (encode_pending_key(each, group, topic_partition), None)
                for each in sorted(producers)
            ]
        rows.extend(more_rows)

        def apply() -> None:
            for topic_partition in deleted:
                self.state.apply(group, topic_partition, None)
                self.state.drop_pending(group, topic_partition)

        self._submit({group: _PendingWrite({}, deleted)}, rows, apply, done)

    # Transactions

    def add_pending_nowait(
        self,
        producer_id: int,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        done: RowsDone,
    ) -> None:
        """Store offsets that an open transaction would commit; invisible until it does."""
        stored = {
            topic_partition: self._with_time_in_order(
                group, topic_partition, offsets[topic_partition], is_pending=True
            )
            for topic_partition in offsets
        }
        rows: list[Row] = [
            (encode_pending_key(producer_id, group, topic_partition), encode_value(committed))
            for topic_partition, committed in stored.items()
        ]

        def apply() -> None:
            self.state.add_pending(producer_id, group, stored)

        self._submit({group: _PendingWrite(stored, producer_id=producer_id)}, rows, apply, done)

    def end_nowait(
        self, producer_id: int, done: RowsDone, *, is_commit: bool, more_rows: Sequence[Row] = ()
    ) -> None:
        """End a producer's pending offsets, atomically with `more_rows`, the outcome."""
        rows: list[Row] = []
        writes: dict[str, _PendingWrite] = {}
        for group, offsets in self.state.pending(producer_id).items():
            rows += [
                (encode_pending_key(producer_id, group, topic_partition), None)
                for topic_partition in offsets
            ]
            applied = {
                topic_partition: each
                for topic_partition, each in offsets.items()
                if is_commit and self._will_apply(group, topic_partition, each)
            }
            rows += [
                (encode_key(group, topic_partition), encode_value(applied[topic_partition]))
                for topic_partition in applied
            ]
            writes[group] = _PendingWrite(applied)
        rows.extend(more_rows)

        def apply() -> None:
            for group, write in writes.items():
                for topic_partition, committed in write.offsets.items():
                    self.state.apply(group, topic_partition, committed)
            self.state.end_pending(producer_id)

        self._submit(writes, rows, apply, done)

    # Order: what was sent last holds, whenever transactions end.

    def _offsets_at(
        self, group: str, topic_partition: TopicPartition
    ) -> Iterator[tuple[int, CommittedOffset]]:
        """Iterate over a partition's offsets by producer id, submitted ones included."""
        committed = self.state.committed(group, topic_partition)
        if committed is not None:
            yield _COMMITTED, committed
        yield from self.state.pending_at(group, topic_partition).items()
        for write in self._in_flight.get(group, ()):
            if topic_partition in write.offsets:
                yield write.producer_id, write.offsets[topic_partition]

    def _with_time_in_order(
        self,
        group: str,
        topic_partition: TopicPartition,
        committed: CommittedOffset,
        *,
        is_pending: bool = False,
    ) -> CommittedOffset:
        """Return the offset with a time after those of pending offsets that were sent before it."""
        earliest_ms = committed.commit_ms
        for producer_id, each in self._offsets_at(group, topic_partition):
            if producer_id != _COMMITTED:
                earliest_ms = max(earliest_ms, each.commit_ms + 1)
            elif is_pending:
                earliest_ms = max(earliest_ms, each.commit_ms)
        if earliest_ms == committed.commit_ms:
            return committed
        return committed._replace(commit_ms=earliest_ms)

    def _will_apply(
        self, group: str, topic_partition: TopicPartition, pending: CommittedOffset
    ) -> bool:
        """Whether a pending offset still holds once all submitted writes are durable."""
        if self.state.is_superseded(group, topic_partition, pending):
            return False
        for write in self._in_flight.get(group, ()):
            if topic_partition in write.deleted:
                return False
            is_later = write.producer_id == _COMMITTED and topic_partition in write.offsets
            if is_later and write.offsets[topic_partition].commit_ms > pending.commit_ms:
                return False
        return True

    def _submit(
        self,
        writes: Mapping[str, _PendingWrite],
        rows: Sequence[Row],
        apply: Callable[[], None],
        done: RowsDone,
    ) -> None:
        """Submit rows to the store; once durable they are applied for every group."""

        def stored(error: LedgerError | None) -> None:
            for group in writes:
                in_flight = self._in_flight[group]
                in_flight.popleft()
                if not in_flight:
                    del self._in_flight[group]
            if error is None:
                apply()
            done(error)

        for group, write in writes.items():
            self._in_flight.setdefault(group, deque()).append(write)
        self._append(rows, stored)

    def _append(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Submit rows to the store; one that has stopped fails them at once."""
        try:
            self._store.append_rows_nowait(rows, done)
        except LedgerError as error:
            done(error)
