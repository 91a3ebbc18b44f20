"""Group offsets: commits, reads, deletions and the expiry of offsets, under the group's rules.

Rule: the group decides which commits are allowed and which topics are in use; `offsets` stores
them. A commit is answered when its rows are durable. Group row and offsets are deleted in one
write.
Must not know: topics beyond their names and ids, API versions.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from uuid import UUID

from kledger.gateway.coordinator.classic import classic_group_record
from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroupState
from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer.consumer_protocol_plan import CONSUMER_PROTOCOL
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.groups.group_expiry_plan import expiry_rule, topics_in_use
from kledger.gateway.coordinator.groups.group_table import GroupTable, HostedGroup
from kledger.gateway.coordinator.runtime import CoordinatorRuntime
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError, Row, RowsDone, StorageFailed, ignore_outcome
from kledger.offsets import CommittedOffset, OffsetsState, OffsetStore, TopicPartition
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.timers import TimerHandle, Timers

GROUPS_PER_SWEEP_STEP = 256
"""How many groups expiry checks in one tick of the event loop."""

WRITE_FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The error when rows cannot be stored: clients retry."""


class GroupOffsets:
    """Offsets of all groups of one coordinator."""

    def __init__(
        self,
        *,
        table: GroupTable,
        runtime: CoordinatorRuntime,
        store: OffsetStore,
        config: GroupConfig,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._table = table
        self._runtime = runtime
        self._store = store
        self._config = config
        self._clock = clock
        self._timers = timers
        self._expiry: TimerHandle | None = None

    @property
    def state(self) -> OffsetsState:
        """All committed and pending offsets, for coordinators of transactions."""
        return self._store.state

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
        write = _OffsetsWrite()
        self._store.commit_nowait(group_id, offsets, write.done)
        return await self._stored(group_id, write)

    def committed(self, group_id: str, topic_partition: TopicPartition) -> CommittedOffset | None:
        """Return the last durable commit, or None."""
        return self._store.state.committed(group_id, topic_partition)

    def all_committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return every durable commit of a group; a view, valid until the next await."""
        return self._store.state.all_committed(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Return the error of an offset fetch, or NONE; classic groups allow all fetches."""
        hosted = self._table.get(group_id)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup):
            return ErrorCode.NONE
        return hosted.group.check_fetch(member_id, epoch)

    def is_unstable(self, group_id: str, topic_partition: TopicPartition) -> bool:
        """Whether an open transaction may still change that offset."""
        return self._store.state.has_pending(group_id, topic_partition)

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
        write = _OffsetsWrite()
        self._store.add_pending_nowait(producer_id, group_id, offsets, write.done)
        return await self._stored(group_id, write)

    def end_nowait(
        self,
        producer_id: int,
        done: RowsDone,
        *,
        is_commit: bool,
        outcome: Row,
    ) -> None:
        """End a transaction's offsets in one write with the row of its outcome."""
        groups = list(self._store.state.pending(producer_id))

        def ended(error: LedgerError | None) -> None:
            try:
                for group_id in groups:
                    if self._store.state.has_group(group_id):
                        self._table.ensure(group_id)
            finally:
                done(error)  # also after a fault here: the transaction waits for it

        self._store.end_nowait(producer_id, ended, is_commit=is_commit, more_rows=[outcome])

    async def _stored(self, group_id: str, write: "_OffsetsWrite") -> ErrorCode:
        """Wait for a write; a group exists as soon as it has an offset, pending or committed."""
        error = await write.wait()
        if self._store.state.has_group(group_id):
            self._table.ensure(group_id)
        return error

    def _check_commit(
        self, group_id: str, sender: RequestingMember, *, is_transactional: bool = False
    ) -> ErrorCode:
        hosted = self._table.get(group_id)
        if hosted is not None:
            return hosted.group.check_commit(
                sender, self._clock.monotonic_ms(), is_transactional=is_transactional
            )
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
        return [end if isinstance(end, ErrorCode) else await end.wait() for end in ends]

    async def delete(
        self, group_id: str, topic_partitions: Sequence[TopicPartition]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Delete offsets of topics that no member reads.

        Commits still being written are deleted too.

        Returns:
            The error of the request, and one for each partition.
        """
        hosted = self._table.get(group_id)
        if hosted is None and self._has_first_commit_pending(group_id):
            return ErrorCode.NONE, [await self._delete_stored(group_id, topic_partitions)] * len(
                topic_partitions
            )
        if hosted is None or hosted.group.state == ClassicGroupState.DEAD:
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
        """Delete every group's offsets of topics that were deleted."""
        writes = []
        for group_id, topic_partitions in self._store.topic_partitions_of(topic_ids).items():
            write = _OffsetsWrite()
            self._store.delete_nowait(group_id, topic_partitions, write.done)
            writes.append(write)
        for write in writes:
            await write.wait()

    async def _delete_stored(
        self, group_id: str, topic_partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        stored = self._store.topic_partitions(group_id)
        existing = [
            topic_partition for topic_partition in topic_partitions if topic_partition in stored
        ]
        if not existing:
            return ErrorCode.NONE
        write = _OffsetsWrite()
        self._store.delete_nowait(group_id, existing, write.done)
        return await write.wait()

    def _begin_delete(self, group_id: str) -> "ErrorCode | _OffsetsWrite":
        hosted, topic_partitions = self._table.get(group_id), self._store.topic_partitions(group_id)
        write = _OffsetsWrite()
        if hosted is None and self._has_first_commit_pending(group_id):
            self._store.delete_nowait(group_id, topic_partitions, write.done)
            return write
        if hosted is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not hosted.group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        self._delete_group(hosted, topic_partitions, write.done)
        return write

    def _has_first_commit_pending(self, group_id: str) -> bool:
        """Whether a commit is being written that will create the group."""
        return self._store.is_committing(group_id)

    def _delete_group(
        self,
        hosted: HostedGroup,
        topic_partitions: Iterable[TopicPartition],
        done: RowsDone,
    ) -> None:
        """Remove the group now and delete its rows; restore it if that fails.

        A join meanwhile creates a new group, whose rows are written after these.
        """
        group_id = hosted.group.group_id
        self._table.remove(group_id)
        is_dead = self._runtime.decide(
            hosted, lambda now_ms: (True, hosted.group.kill(now_ms)), False
        )
        self._runtime.retire(hosted)

        def deleted(error: LedgerError | None) -> None:
            if error is not None:
                unit, restore = NamedUnit("group", group_id), self._table.restore
                self._runtime.containment.run(unit, restore, hosted, self._runtime)
            done(error)

        if not is_dead:
            deleted(StorageFailed(f"group {group_id} was not deleted after a fault"))
            return
        row = (classic_group_record.encode_group_key(group_id), None)
        self._store.delete_nowait(group_id, topic_partitions, deleted, more_rows=[row])

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
        if hosted is None or self._store.is_committing(group_id):
            return
        rule = expiry_rule(
            hosted.group,
            empty_since_ms=hosted.group_machine.empty_since_ms,
            now_ms=self._clock.now_ms(),
            retention_ms=self._config.offsets_retention_ms,
        )
        if rule is None:
            return
        state = self._store.state
        batch_max = self._config.offsets_expiry_batch_max
        expired = state.expired(group_id, rule)[:batch_max]
        is_kept = state.is_unstable(group_id) or len(expired) < len(state.all_committed(group_id))
        if hosted.group.is_unused and not is_kept:
            self._delete_group(hosted, expired, ignore_outcome)
        elif expired:
            self._store.delete_nowait(group_id, expired, ignore_outcome)

    def _begin_sweep(self) -> None:
        self._sweep([hosted.group.group_id for hosted in self._table])

    def _sweep(self, group_ids: list[str]) -> None:
        rest = group_ids[GROUPS_PER_SWEEP_STEP:]
        if rest:
            self._expiry = self._timers.call_after(1, partial(self._sweep, rest))
        else:
            self.start_expiry()
        for group_id in group_ids[:GROUPS_PER_SWEEP_STEP]:
            self._runtime.containment.run(NamedUnit("group", group_id), self.expire, group_id)


class _OffsetsWrite:
    """The result of one write, awaited by a request."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(self, error: LedgerError | None) -> None:
        """Set the result; called by the store."""
        if not self._future.done():
            self._future.set_result(ErrorCode.NONE if error is None else WRITE_FAILED)

    async def wait(self) -> ErrorCode:
        """Return the error that the client gets."""
        return await self._future
