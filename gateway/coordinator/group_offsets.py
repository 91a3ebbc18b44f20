"""Group offsets: commits, reads, deletions and the expiry of offsets, under the group's rules.

Rule: the group says who may commit and which topics are in use; `offsets` stores and remembers.
A commit is answered when its rows are durable. Group row and offsets are deleted in one write.
Must not know: topics beyond their names and ids, API versions.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from uuid import UUID

from kledger.gateway.coordinator import records
from kledger.gateway.coordinator.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_expiry_plan import expiry_rule, topics_in_use
from kledger.gateway.coordinator.group_messages import Sender
from kledger.gateway.coordinator.group_state import GroupState
from kledger.gateway.coordinator.group_table import GroupHost, GroupTable
from kledger.gateway.coordinator.runtime import CoordinatorRuntime
from kledger.gateway.coordinator.subscription_plan import CONSUMER_PROTOCOL
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError, StorageFailed
from kledger.offsets import CommittedOffset, OffsetsState, OffsetStore, Place
from kledger.runtime.clock import Clock
from kledger.runtime.containment import Unit
from kledger.runtime.timers import TimerHandle, Timers

GROUPS_PER_SWEEP_STEP = 256
"""Groups looked at by expiry before the loop gets a turn."""

STORAGE_REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""What clients are told when rows cannot be stored: they try again."""


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
        self, group_id: str, sender: Sender, offsets: Sequence[tuple[Place, CommittedOffset]]
    ) -> ErrorCode:
        """Store offsets for a group; one error for all of them."""
        error = self._check_commit(group_id, sender)
        if error is not ErrorCode.NONE or not offsets:
            return error
        ended = _Ended()
        self._store.commit_nowait(group_id, offsets, ended.done)
        return await self._stored(group_id, ended)

    def committed(self, group_id: str, place: Place) -> CommittedOffset | None:
        """Return the last durable commit, or None."""
        return self._store.state.committed(group_id, place)

    def all_committed(self, group_id: str) -> Mapping[Place, CommittedOffset]:
        """Return every durable commit of a group; a view, valid until the next await."""
        return self._store.state.all_committed(group_id)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Say whether a member of the consumer protocol may read; others are never refused."""
        host = self._table.get(group_id)
        if host is None or not isinstance(host.group, ConsumerGroup):
            return ErrorCode.NONE
        return host.group.check_fetch(member_id, epoch)

    def is_unstable(self, group_id: str, place: Place) -> bool:
        """Whether an open transaction may still change that offset."""
        return self._store.state.has_pending(group_id, place)

    # Transactions.

    async def add_pending(
        self,
        group_id: str,
        sender: Sender,
        producer_id: int,
        offsets: Mapping[Place, CommittedOffset],
    ) -> ErrorCode:
        """Store what an open transaction would commit; one error for all of them."""
        error = self._check_commit(group_id, sender, is_transactional=True)
        if error is not ErrorCode.NONE or not offsets:
            return error
        ended = _Ended()
        self._store.add_pending_nowait(producer_id, group_id, offsets, ended.done)
        return await self._stored(group_id, ended)

    def end_nowait(
        self,
        producer_id: int,
        done: Callable[[LedgerError | None], None],
        *,
        is_commit: bool,
        outcome: tuple[bytes, bytes | None],
    ) -> None:
        """End a transaction's offsets in one write with the row that tells its outcome."""
        groups = list(self._store.state.pending(producer_id))

        def ended(error: LedgerError | None) -> None:
            try:
                for group_id in groups:
                    if self._store.state.has_group(group_id):
                        self._table.ensure(group_id)
            finally:
                done(error)  # a fault here must not keep the transaction waiting

        self._store.end_nowait(producer_id, ended, is_commit=is_commit, more_rows=[outcome])

    async def _stored(self, group_id: str, ended: "_Ended") -> ErrorCode:
        """Wait for a write; the group is there when it has an offset, pending or not."""
        error = await ended.wait()
        if self._store.state.has_group(group_id):
            self._table.ensure(group_id)
        return error

    def _check_commit(
        self, group_id: str, sender: Sender, *, is_transactional: bool = False
    ) -> ErrorCode:
        host = self._table.get(group_id)
        if host is not None:
            return host.group.check_commit(
                sender, self._clock.monotonic_ms(), is_transactional=is_transactional
            )
        if sender.generation >= 0:
            is_epoch = sender.speaks_epochs
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
        self, group_id: str, places: Sequence[Place]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Delete offsets that no member uses; return the request's error and one per place.

        Commits that are on their way go, too.
        """
        host = self._table.get(group_id)
        if host is None and self._is_first_coming(group_id):
            return ErrorCode.NONE, [await self._delete_stored(group_id, places)] * len(places)
        if host is None or host.group.state == GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        is_empty = host.group.is_empty
        if not is_empty and host.group.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.NON_EMPTY_GROUP, []
        in_use = frozenset() if is_empty else topics_in_use(host.group)
        errors = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if in_use is None or place.topic in in_use
            else ErrorCode.NONE
            for place in places
        ]
        free = [place for place, error in zip(places, errors, strict=True) if not error]
        stored = await self._delete_stored(group_id, free)
        return ErrorCode.NONE, [error or stored for error in errors]

    async def forget_topic(self, topic_id: UUID) -> None:
        """Delete every group's offsets of a topic that was deleted."""
        await self.forget_topics({topic_id})

    async def forget_topics(self, topic_ids: Set[UUID]) -> None:
        """Delete every group's offsets of topics that were deleted."""
        ends = []
        for group_id, places in self._store.places_of_topics(topic_ids).items():
            ended = _Ended()
            self._store.delete_nowait(group_id, places, ended.done)
            ends.append(ended)
        for ended in ends:
            await ended.wait()

    async def _delete_stored(self, group_id: str, places: Iterable[Place]) -> ErrorCode:
        stored = self._store.places(group_id)
        existing = [place for place in places if place in stored]
        if not existing:
            return ErrorCode.NONE
        ended = _Ended()
        self._store.delete_nowait(group_id, existing, ended.done)
        return await ended.wait()

    def _begin_delete(self, group_id: str) -> "ErrorCode | _Ended":
        host, places = self._table.get(group_id), self._store.places(group_id)
        ended = _Ended()
        if host is None and self._is_first_coming(group_id):
            self._store.delete_nowait(group_id, places, ended.done)
            return ended
        if host is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not host.group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        self._delete_group(host, places, ended.done)
        return ended

    def _is_first_coming(self, group_id: str) -> bool:
        """Whether a group that is not there will be, by a commit that is on its way."""
        return self._store.is_committing(group_id)

    def _delete_group(
        self, host: GroupHost, places: Iterable[Place], done: Callable[[LedgerError | None], None]
    ) -> None:
        """Take the group out now and delete its rows; a failure brings it back.

        A join that comes meanwhile makes a new group, whose rows are written behind these.
        """
        group_id = host.group.group_id
        self._table.remove(group_id)
        is_dead = self._runtime.decide(host, lambda now_ms: (True, host.group.kill(now_ms)), False)
        self._runtime.retire(host)

        def deleted(error: LedgerError | None) -> None:
            if error is not None:
                unit, bring_back = Unit("group", group_id), self._table.bring_back
                self._runtime.containment.run(unit, bring_back, host, self._runtime)
            done(error)

        if not is_dead:
            deleted(StorageFailed(f"group {group_id} was not deleted after a fault"))
            return
        row = (records.encode_key(group_id), None)
        self._store.delete_nowait(group_id, places, deleted, more_rows=[row])

    # Expiry.

    def start_expiry(self) -> None:
        """Look for old offsets from time to time."""
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry = self._timers.call_after(interval_ms, self._begin_sweep)

    def stop_expiry(self) -> None:
        """Stop looking."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def expire(self, group_id: str) -> None:
        """Delete the old offsets of one group, and the group if nothing of it is left."""
        host = self._table.get(group_id)
        # A commit on its way may renew what looks old; the next sweep sees it.
        if host is None or self._store.is_committing(group_id):
            return
        rule = expiry_rule(
            host.group,
            empty_since_ms=host.group_machine.empty_since_ms,
            now_ms=self._clock.now_ms(),
            retention_ms=self._config.offsets_retention_ms,
        )
        if rule is None:
            return
        state = self._store.state
        batch_max = self._config.offsets_expiry_batch_max
        expired = state.expired(group_id, rule)[:batch_max]
        is_kept = state.is_unstable(group_id) or len(expired) < len(state.all_committed(group_id))
        if host.group.is_unused and not is_kept:
            self._delete_group(host, expired, _ignore)
        elif expired:
            self._store.delete_nowait(group_id, expired, _ignore)

    def _begin_sweep(self) -> None:
        self._sweep([host.group.group_id for host in self._table])

    def _sweep(self, group_ids: list[str]) -> None:
        rest = group_ids[GROUPS_PER_SWEEP_STEP:]
        if rest:
            self._expiry = self._timers.call_after(1, partial(self._sweep, rest))
        else:
            self.start_expiry()
        for group_id in group_ids[:GROUPS_PER_SWEEP_STEP]:
            self._runtime.containment.run(Unit("group", group_id), self.expire, group_id)


class _Ended:
    """The end of one write, to be waited for."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(self, error: LedgerError | None) -> None:
        """Take the outcome; for the store."""
        if not self._future.done():
            self._future.set_result(ErrorCode.NONE if error is None else STORAGE_REFUSED)

    async def wait(self) -> ErrorCode:
        """Return the outcome as the client will see it."""
        return await self._future


def _ignore(_error: LedgerError | None) -> None:
    """Expiry that failed is tried again by the next sweep."""
