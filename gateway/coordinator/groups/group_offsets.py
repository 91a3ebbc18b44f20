"""Group offsets: commits, reads, deletions and the expiry of offsets, under the group's rules.

Rule: the group decides which commits are allowed and which topics are in use; `offsets` stores
them. A commit is answered when it is durable; with its first offset a group exists. The record of a
group and its offsets are deleted in one write.
Must not know: topics beyond their names and ids, API versions.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from functools import partial
from uuid import UUID

from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer.consumer_protocol_plan import CONSUMER_PROTOCOL
from kledger.gateway.coordinator.coordinator_shards_state import (
    LOADING,
    OFFSETS_TOPIC,
    CoordinatedShards,
    Includes,
)
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.groups.group_expiry_plan import expiry_rule, topics_in_use
from kledger.gateway.coordinator.groups.group_table import GroupTable
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError, LedgerStore
from kledger.ledger.record_table import RecordChange, submit_together
from kledger.offsets import CommittedOffset, OffsetStore, StoredOffsets, TopicPartition
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.deferred import Deferred
from kledger.runtime.timers import TimerHandle, Timers

GROUPS_PER_SWEEP_STEP = 256
"""How many groups a walk over all of them takes in one tick of the event loop."""

WRITE_FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The error when rows cannot be stored: clients retry."""


class GroupOffsets:
    """Offsets of all groups of one coordinator."""

    def __init__(
        self,
        *,
        table: GroupTable,
        store: LedgerStore,
        config: GroupConfig,
        clock: Clock,
        timers: Timers,
        coordinated: CoordinatedShards = range,
    ) -> None:
        """Begin without offsets; `load` fills it.

        Args:
            table: of the groups.
            store: keeps the rows.
            config: of groups.
            clock: the time of everything.
            timers: likewise.
            coordinated: returns which of so many shards this broker coordinates.
        """
        self._coordinated = coordinated
        self._table = table
        self._offsets = OffsetStore(store, self._ensure_group)
        self._config = config
        self._clock = clock
        self._timers = timers
        self._expiry: TimerHandle | None = None
        self._verifying: dict[int, set[object]] = {}
        """By producer id, the requests whose transactions are being verified; a marker removes
        them."""

    # Shards.

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return what stands for the shard of a group in requests between brokers."""
        return TopicPartition(OFFSETS_TOPIC, self._table.shards.number_of(group_id))

    def load(self, stored: StoredOffsets | None = None) -> None:
        """Replay offsets that were read, None: every stored one; groups with only offsets begin.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        self._offsets.load(stored)

    def read(self, is_included: Includes) -> StoredOffsets:
        """Return the stored offsets of some shards, for `load`; blocks.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        return self._offsets.read(is_included)

    def unload(self, is_included: Includes) -> None:
        """Forget the offsets of detached shards, of which none is being written any more."""
        self._offsets.unload(is_included)

    # Commit and read.

    async def commit(
        self,
        group_id: str,
        sender: RequestingMember,
        offsets: Sequence[tuple[TopicPartition, CommittedOffset]],
    ) -> ErrorCode:
        """Store offsets of a group; return one error for all of them."""
        error = self._check_commit(group_id, sender)
        if error is not ErrorCode.NONE or not offsets:
            return error
        return _answer(await self._offsets.commit(group_id, dict(offsets)))

    def committed(self, group_id: str, topic_partition: TopicPartition) -> CommittedOffset | None:
        """Return the last durable commit, or None."""
        return self._offsets.committed(group_id, topic_partition)

    def all_committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return every durable commit of a group; a view, valid until the next await."""
        return self._offsets.all_committed(group_id)

    def lowest_committed(self, topic: str, topic_id: UUID, partition: int) -> int | None:
        """Return the lowest offset that any group has committed of a partition, None without.

        It is about the groups that this broker coordinates; before it has loaded all of them, one
        of the others may be the slowest, and the answer is 0.
        """
        if not self.is_complete:
            return 0
        return self._offsets.lowest_committed(topic, topic_id, partition)

    @property
    def is_complete(self) -> bool:
        """Whether every shard that this broker coordinates is attached."""
        shards = self._table.shards
        return shards.are_attached(self._coordinated(shards.count))

    async def lowest_by_topic(self, topic_ids: Set[UUID]) -> dict[UUID, dict[int, int]]:
        """Return the lowest committed offset of each partition of topics that has any."""
        lowest: dict[UUID, dict[int, int]] = {topic_id: {} for topic_id in topic_ids}
        groups = self._offsets.groups() if lowest else ()
        for number, group in enumerate(groups, 1):
            for (_, partition), committed in self._offsets.all_committed(group).items():
                found = lowest.get(committed.topic_id)
                if found is not None:
                    found[partition] = min(committed.offset, found.get(partition, committed.offset))
            if number % GROUPS_PER_SWEEP_STEP == 0:
                await self._clock.sleep(0)
        return lowest

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Return the error of an offset fetch, or NONE; classic groups allow all fetches."""
        hosted = self._table.get(group_id)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup):
            return ErrorCode.NONE
        return hosted.group.check_fetch(member_id, epoch)

    def is_unstable(self, group_id: str, topic_partition: TopicPartition) -> bool:
        """Whether an open transaction may still change that offset."""
        return self._offsets.has_pending(group_id, topic_partition)

    # Transactions.

    async def add_pending(
        self,
        group_id: str,
        sender: RequestingMember,
        producer_id: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        """Store the offsets of an open transaction; return one error for all of them."""
        error = self._check_commit(group_id, sender, is_transactional=True)
        if error is not ErrorCode.NONE or not offsets:
            return error
        return _answer(await self._offsets.add_pending(producer_id, group_id, offsets))

    async def verify_and_add_pending(
        self,
        group_id: str,
        sender: RequestingMember,
        producer_id: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        verify: Callable[[], Awaitable[ErrorCode]],
    ) -> ErrorCode:
        """Store the offsets of an open transaction that another broker coordinates.

        Args:
            group_id: of the offsets.
            sender: the member that commits them.
            producer_id: of the transaction.
            offsets: by partition.
            verify: asks the coordinator whether the transaction includes the group.

        Returns:
            One error for all of them. If a marker of the producer comes while the coordinator is
            asked, the transaction may have ended since it answered: the client asks again.
        """
        request = object()
        self._verifying.setdefault(producer_id, set()).add(request)
        try:
            error = await verify()
        finally:
            verifying = self._verifying.get(producer_id, set())
            is_unmarked = request in verifying
            verifying.discard(request)
            if not verifying:
                self._verifying.pop(producer_id, None)
        if error is ErrorCode.NONE and not is_unmarked:
            return LOADING
        return error or await self.add_pending(group_id, sender, producer_id, offsets)

    def end(
        self, producer_id: int, groups: Set[str], *, is_commit: bool
    ) -> tuple[list[RecordChange], frozenset[str]]:
        """Return the changes that end a transaction's offsets, and the groups they leave out.

        Those are of shards that are not attached.
        """
        elsewhere = frozenset(group_id for group_id in groups if self._table.error(group_id))
        changes = self._offsets.end(producer_id, groups - elsewhere, is_commit=is_commit)
        return changes, elsewhere

    async def write_markers(
        self, producer_id: int, groups: Set[str], is_commit: bool
    ) -> frozenset[str]:
        """End a transaction's offsets of groups, durably; may be repeated.

        Returns:
            The groups whose shards are not attached: their offsets are pending.

        Raises:
            LedgerError: nothing was written.
        """
        changes, elsewhere = self.end(producer_id, groups, is_commit=is_commit)
        if changes and (error := await submit_together(changes)):
            raise error
        return elsewhere

    async def write_shard_markers(
        self, producer_id: int, shards: Collection[int], is_commit: bool
    ) -> dict[int, ErrorCode]:
        """End a transaction's offsets of all groups of shards, durably; may be repeated.

        Returns:
            The shards that are not here, with the error of each.

        Raises:
            LedgerError: nothing was written.
        """
        states = self._table.shards
        refused = {number: error for number in shards if (error := states.error_of(number))}
        self._verifying.pop(producer_id, None)
        is_marked = states.including(set(shards) - refused.keys())
        groups = set(filter(is_marked, self._offsets.groups_of(producer_id)))
        await self.write_markers(producer_id, groups, is_commit)
        return refused

    def _check_commit(
        self, group_id: str, sender: RequestingMember, *, is_transactional: bool = False
    ) -> ErrorCode:
        hosted = self._table.get(group_id)
        if hosted is not None:
            return hosted.group.check_commit(
                sender, self._clock.monotonic_ms(), is_transactional=is_transactional
            )
        if error := self._table.error(group_id):
            return error
        if sender.generation >= 0:
            is_epoch = sender.uses_member_epoch
            return ErrorCode.GROUP_ID_NOT_FOUND if is_epoch else ErrorCode.ILLEGAL_GENERATION
        if len(group_id.encode()) > self._config.group_id_bytes_max:
            return ErrorCode.INVALID_GROUP_ID
        return ErrorCode.POLICY_VIOLATION if self._table.is_full else ErrorCode.NONE

    # Deletions.

    async def delete_groups(self, group_ids: Sequence[str]) -> list[ErrorCode]:
        """Delete groups without members, with their offsets; return one error per group."""
        ends = [self._begin_delete(group_id) for group_id in group_ids]
        return [end if isinstance(end, ErrorCode) else _answer(await end) for end in ends]

    async def delete(
        self, group_id: str, topic_partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Delete offsets of topics that no member reads.

        Commits still being written are deleted too.

        Returns:
            The error of the request, and one for each partition.
        """
        if error := self._table.error(group_id):
            return error, []
        hosted = self._table.get(group_id)
        if hosted is None and self._offsets.topic_partitions(group_id):
            # Its first commit is being written.
            return ErrorCode.NONE, [await self._delete_stored(group_id, topic_partitions)] * len(
                topic_partitions
            )
        if hosted is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        is_empty = hosted.group.is_empty
        if not is_empty and hosted.group.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.NON_EMPTY_GROUP, []
        in_use = frozenset() if is_empty else topics_in_use(hosted.group)
        errors = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if in_use is None or topic_partition.topic in in_use
            else ErrorCode.NONE
            for topic_partition in topic_partitions
        ]
        free = [
            topic_partition
            for topic_partition, error in zip(topic_partitions, errors, strict=True)
            if not error
        ]
        stored = await self._delete_stored(group_id, free)
        return ErrorCode.NONE, [error or stored for error in errors]

    async def forget_topic(self, topic_id: UUID) -> None:
        """Delete every group's offsets of a topic that was deleted."""
        await self.forget_topics({topic_id})

    async def forget_topics(self, topic_ids: Set[UUID]) -> None:
        """Delete every group's offsets of topics that were deleted.

        Those of detached shards stay until they expire: they name the id of their topic.
        """
        writes = [
            self._delete_offsets(group_id, changes)
            for group_id, changes in self._offsets.deletions_of_topics(topic_ids)
            if not self._table.error(group_id)
        ]
        for write in writes:
            await write

    async def _delete_stored(
        self, group_id: str, topic_partitions: Collection[TopicPartition]
    ) -> ErrorCode:
        changes = self._offsets.deletion(group_id, topic_partitions)
        return _answer(await self._delete_offsets(group_id, changes)) if changes else ErrorCode.NONE

    def _begin_delete(self, group_id: str) -> ErrorCode | Deferred[Exception | None]:
        if error := self._table.error(group_id):
            return error
        hosted = self._table.get(group_id)
        if hosted is not None and not hosted.group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        changes = self._offsets.deletion(group_id, self._offsets.topic_partitions(group_id))
        if hosted is not None:
            return self._delete_group(group_id, changes)
        # Without a host, the first commit of the group is being written, or there is no group.
        return self._delete_offsets(group_id, changes) if changes else ErrorCode.GROUP_ID_NOT_FOUND

    def _delete_group(
        self, group_id: str, changes: Sequence[RecordChange]
    ) -> Deferred[Exception | None]:
        """Delete an empty group with its offsets; both stay if that fails."""
        return submit_together([*changes, self._table.deletion(group_id)])

    def _delete_offsets(
        self, group_id: str, changes: Sequence[RecordChange]
    ) -> Deferred[Exception | None]:
        """Delete offsets; if that fails, those whose first commit was under way make a group."""
        write, answer = submit_together(changes), Deferred[Exception | None]()

        def ended() -> None:
            error = write.result()
            if isinstance(error, LedgerError):
                self._ensure_group(group_id)
            answer.resolve(error)

        if write.is_resolved:
            ended()
        else:
            write.when_resolved(ended)
        return answer

    # Groups that have only offsets.

    def _ensure_group(self, group_id: str) -> None:
        """Add a group that has offsets, unless they are being deleted; called when they hold.

        Nothing is added to a shard that was detached while they were being written.
        """
        if self._table.get(group_id) is not None or self._table.error(group_id):
            return
        if self._offsets.topic_partitions(group_id):
            unit = NamedUnit("group", group_id)
            self._table.containment.run(unit, self._table.ensure, group_id)

    # Expiry.

    def start_expiry(self) -> None:
        """Check for old offsets at the configured interval."""
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry = self._timers.call_after(interval_ms, self._begin_sweep)

    def stop_expiry(self) -> None:
        """Stop these checks."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def expire(self, group_id: str) -> None:
        """Delete the old offsets of one group, and the group if it has no others and no members."""
        hosted = self._table.get(group_id)
        # A commit being written may renew an old offset; the next sweep checks it again.
        if hosted is None or self._offsets.is_writing(group_id):
            return
        rule = expiry_rule(
            hosted.group,
            empty_since_ms=self._table.empty_since_ms(group_id),
            now_ms=self._clock.now_ms(),
            retention_ms=self._config.offsets_retention_ms,
        )
        if rule is None:
            return
        offsets = self._offsets
        expired = offsets.expired(group_id, rule, self._config.offsets_expiry_batch_max)
        changes = offsets.deletion(group_id, expired)
        is_kept = offsets.is_unstable(group_id) or len(expired) < len(self.all_committed(group_id))
        if hosted.group.is_unused and not is_kept:
            self._delete_group(group_id, changes)
        elif changes:
            submit_together(changes)

    def _begin_sweep(self) -> None:
        self._sweep([hosted.group_id for hosted in self._table])

    def _sweep(self, group_ids: list[str]) -> None:
        rest = group_ids[GROUPS_PER_SWEEP_STEP:]
        if rest:
            self._expiry = self._timers.call_after(1, partial(self._sweep, rest))
        else:
            self.start_expiry()
        for group_id in group_ids[:GROUPS_PER_SWEEP_STEP]:
            self._table.containment.run(NamedUnit("group", group_id), self.expire, group_id)


def _answer(error: Exception | None) -> ErrorCode:
    """Return what a client gets when a write has ended. Raises a fault that is none of storage."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, LedgerError):
        return WRITE_FAILED
    raise error
