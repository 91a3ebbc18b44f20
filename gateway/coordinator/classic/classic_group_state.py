"""Classic group state: one group of JoinGroup and SyncGroup, its generations and its timers.

Rule: pure. Every entry point takes the monotonic time and returns effects. Members, their waiting
requests and the rebalance under way are in memory only, as no join waits for a write. What must
survive a restart (a generation with its members and assignments) leaves with `Persist` and holds by
`replay`, live as at a start: the only way to assignments and to STABLE.
Must not know: API versions, rows, committed offsets, what metadata and assignments mean.

    EMPTY ─first join─▶ PREPARING ─all joined or time up─▶ COMPLETING ─leader's sync─▶ STABLE
      ▲                  │   ▲                               │                          │
      └──no members left─┘   └──────────── a member joins, leaves or changes ───────────┘

Source: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-389 (size
limit), KIP-394 (ids before membership), KIP-447 (transactional commits), KIP-814 (skipped
assignment).
"""

from dataclasses import replace
from enum import StrEnum
from typing import Final

from kledger.gateway.coordinator.classic.classic_group_record import ClassicGroupRecord
from kledger.gateway.coordinator.classic.classic_member_state import (
    ClassicMember,
    ClassicRoster,
    member_from_record,
    record_of,
)
from kledger.gateway.coordinator.effects import Effect, TimerKey, Transition
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import (
    GroupDescription,
    JoinCommand,
    JoinResult,
    LeavingMember,
    MemberDescription,
    RequestingMember,
    SyncCommand,
    SyncResult,
)
from kledger.gateway.wire.error_codes import ErrorCode

JOIN_TIMER: Final = TimerKey("join")
SYNC_TIMER: Final = TimerKey("sync")
SESSION_KIND: Final = "session"


class ClassicGroupState(StrEnum):
    """The phase of a group; the values are Kafka's names.

    EMPTY: no members, at most offsets. Accepts commits without a generation. The first join
        leads to PREPARING_REBALANCE.
    PREPARING_REBALANCE: collects members. Joins wait; heartbeats and syncs get
        REBALANCE_IN_PROGRESS; commits of the old generation pass. When all have joined or the
        time is up: COMPLETING_REBALANCE, or EMPTY if no member is left.
    COMPLETING_REBALANCE: the generation is known, the assignment is not. Syncs wait, heartbeats
        pass, commits get REBALANCE_IN_PROGRESS. The leader's durable assignment leads to STABLE;
        a member that joins, leaves or changes leads back to PREPARING_REBALANCE.
    STABLE: members consume. Syncs are answered at once. Any change leads to
        PREPARING_REBALANCE.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """One group of the protocol of JoinGroup and SyncGroup."""

    kind: Final = "classic"

    __slots__ = (
        "_delay_left_ms",
        "_delay_ms",
        "_has_joined_in_delay",
        "_is_assigned",
        "config",
        "generation",
        "group_id",
        "protocol_name",
        "protocol_type",
        "roster",
        "state",
    )

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = ClassicGroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = ClassicRoster()
        self._has_joined_in_delay = False
        self._delay_ms = 0
        self._delay_left_ms: int | None = None
        self._is_assigned = False
        """Whether the assignment of this generation has left with `Persist`."""

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted."""
        return self.state is ClassicGroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether it has neither members nor member ids that were assigned but not used yet."""
        return self.is_empty and not self.roster.pending

    # JoinGroup.

    def join(self, command: JoinCommand, now_ms: int) -> list[Effect]:
        """Admit a member to the next generation, or reject it.

        The join is answered now, or its waiter stays in the member and a later event answers it.
        """
        transition = Transition(now_ms)
        error = self._check_join(command)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED and command.member_id in self.roster:
            # The limit was lowered, or other members joined first: this one is removed.
            self._drop_member(command.member_id, transition)
            self._members_removed(transition)
        if error is not ErrorCode.NONE:
            is_unknown = error is ErrorCode.GROUP_MAX_SIZE_REACHED
            rejected_id = "" if is_unknown else command.member_id
            transition.answer(command.waiter, JoinResult(error=error, member_id=rejected_id))
        elif command.member_id:
            self._join_with_id(command, transition)
        else:
            self._join_without_id(command, transition)
        return transition.effects

    def _check_join(self, command: JoinCommand) -> ErrorCode:
        if not self._has_room(command.member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._fits_protocols(command):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not command.member_id or command.member_id in self.roster.pending:
            return ErrorCode.NONE
        return self._check_identity(command.member_id, command.instance_id)

    def _has_room(self, member_id: str) -> bool:
        """Whether the group may have this member; while it prepares, only joined members count."""
        size_max = self.config.group_max_size
        member = self.roster.members.get(member_id)
        if self.state is ClassicGroupState.EMPTY:
            return True
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            has_joined = member is not None and member.join_waiter is not None
            return has_joined or self.roster.waiting_join_count < size_max
        return member is not None or len(self.roster) < size_max

    def _fits_protocols(self, command: JoinCommand) -> bool:
        """Whether the member has the group's type and a protocol that all members support."""
        if self.state is ClassicGroupState.EMPTY or not len(self.roster):
            return bool(command.protocol_type) and bool(command.protocols)
        return command.protocol_type == self.protocol_type and self.roster.supports_any(
            name for name, _ in command.protocols
        )

    def _join_without_id(self, command: JoinCommand, transition: Transition) -> None:
        """Three cases: 1. a static member that restarted; 2. an id first; 3. a new member."""
        if command.instance_id is not None and command.instance_id in self.roster.static_ids:
            self._replace_static(command, transition)
        elif command.requires_known_id and command.instance_id is None:
            self._reserve_member_id(command, transition)
        else:
            self._add_member(command, command.new_member_id, transition)

    def _reserve_member_id(self, command: JoinCommand, transition: Transition) -> None:
        """Assign an id; the client is a member only once it joins with it (KIP-394)."""
        member_id = command.new_member_id
        if len(self.roster.pending) >= self.config.pending_members_max:
            full = JoinResult(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
            transition.answer(command.waiter, full)
            return
        self.roster.pending.add(member_id)
        transition.schedule(session_timer(member_id), command.session_timeout_ms)
        reserved = JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        transition.answer(command.waiter, reserved)

    def _add_member(self, command: JoinCommand, member_id: str, transition: Transition) -> None:
        if not len(self.roster):
            self.protocol_type = command.protocol_type
        if self._is_in_initial_delay:
            self._has_joined_in_delay = True
        member = ClassicMember(
            member_id=member_id,
            instance_id=command.instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            session_timeout_ms=command.session_timeout_ms,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            protocols=command.protocols,
            # A static member rejoins by its instance id even if it never received this id.
            has_own_id=bool(command.member_id) or command.instance_id is not None,
            is_new=True,
            join_waiter=command.waiter,
        )
        self.roster.add(member)
        # A member that waits for its join sends no heartbeats, and a lost connection is not always
        # seen: a separate timeout keeps abandoned members from piling up in a long rebalance.
        transition.cancel(session_timer(member_id))
        self._renew_session(member, transition, self.config.new_member_join_timeout_ms)
        self._rebalance(transition)

    def _join_with_id(self, command: JoinCommand, transition: Transition) -> None:
        """Handle a join with an id: the first one, a change, or a repeat."""
        if command.member_id in self.roster.pending:
            if command.instance_id is None:
                self._add_member(command, command.member_id, transition)
            else:
                unknown = JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=command.member_id)
                transition.answer(command.waiter, unknown)
            return
        member = self.roster.members[command.member_id]
        is_unchanged = member.protocols == command.protocols
        is_leader = member.member_id == self.roster.leader_id
        # The leader of a stable group joins to have topics assigned that have changed since; a
        # member of a generation that just began may have missed the answer to its join.
        if is_unchanged and (
            self.state is ClassicGroupState.COMPLETING_REBALANCE
            or (self.state is ClassicGroupState.STABLE and not is_leader)
        ):
            self._renew_session(member, transition)
            transition.answer(command.waiter, self._join_result(member))
            return
        self._update_member(member, command, transition)
        self._rebalance(transition)

    def _update_member(
        self, member: ClassicMember, command: JoinCommand, transition: Transition
    ) -> None:
        """Take over what a join says, and let its waiter stay in the member."""
        self._update_settings(member, command)
        before = self.roster.set_join_waiter(member, command.waiter)
        if before is not None:
            # The member repeats its join on another connection; the old answer is not read.
            repeated = JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            transition.answer(before, repeated)
        if not member.is_new:
            self._renew_session(member, transition)

    def _update_settings(self, member: ClassicMember, command: JoinCommand) -> None:
        self.roster.set_protocols(member, command.protocols)
        member.session_timeout_ms = command.session_timeout_ms
        member.rebalance_timeout_ms = command.rebalance_timeout_ms

    def _replace_static(self, command: JoinCommand, transition: Transition) -> None:
        """Give a static member that restarted a new id; rebalance only if something else changed.

        Three cases: 1. stable and the protocol stays: the member learns its id when that is
        durable, and gets its old assignment with its next sync; 2. stable and the protocol would
        change: rebalance; 3. a rebalance is under way: the leader may be assigning to the old id,
        so begin again.
        """
        assert command.instance_id is not None, "only static members are replaced"
        old_id = self.roster.static_ids[command.instance_id]
        member = self.roster.members[old_id]
        old_leader = self.roster.leader_id
        self._fence_old_member_id(member, command.new_member_id, transition)
        self._update_settings(member, command)
        is_stable = self.state is ClassicGroupState.STABLE
        if not is_stable or self.roster.choose_protocol() != self.protocol_name:
            self._update_member(member, command, transition)
            self._rebalance(transition)
            return
        result = self._join_result(member)
        if command.can_skip_assignment:
            is_leader = member.member_id == self.roster.leader_id
            result = replace(result, skip_assignment=is_leader)
        else:
            # An older client would assign again if it saw itself as the leader: it gets the
            # leader of before, which may be its own old id.
            result = replace(result, leader=old_leader or "", members=())
        transition.persist(self._record(), (command.waiter, result))

    def _fence_old_member_id(
        self, member: ClassicMember, new_id: str, transition: Transition
    ) -> None:
        """Rename the member; requests with its old id are answered FENCED_INSTANCE_ID."""
        old_id = member.member_id
        old_waiter = self.roster.set_join_waiter(member, None)
        if old_waiter is not None:
            fenced = JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id)
            transition.answer(old_waiter, fenced)
        _answer_waiters(member, ErrorCode.FENCED_INSTANCE_ID, transition)
        transition.cancel(session_timer(old_id))
        member.timer_ms = 0
        self.roster.rename(member, new_id)
        timeout_ms = self.config.new_member_join_timeout_ms if member.is_new else None
        self._renew_session(member, transition, timeout_ms)

    def _join_result(self, member: ClassicMember) -> JoinResult:
        """Return the running generation as `member` sees it; only the leader sees the others."""
        is_leader = member.member_id == self.roster.leader_id
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader_id or "",
            members=self.roster.joined(self.protocol_name) if is_leader else (),
        )

    # SyncGroup.

    def sync(self, command: SyncCommand, now_ms: int) -> list[Effect]:
        """Answer with the member's assignment, now or once the leader's assignment is durable.

        The assignment of a generation comes from its leader alone.
        """
        transition = Transition(now_ms)
        error = self._check_sync(command)
        if error is not ErrorCode.NONE:
            transition.answer(command.waiter, SyncResult(error=error))
            return transition.effects
        member = self.roster.members[command.member_id]
        self._sync_arrived(member, transition)
        if self.state is ClassicGroupState.STABLE:
            self._renew_session(member, transition)
            transition.answer(command.waiter, self._sync_result(member))
            return transition.effects
        if member.sync_waiter is not None:
            # The member repeats its sync on another connection; the old answer is not read.
            transition.answer(member.sync_waiter, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_waiter = command.waiter
        if member.member_id == self.roster.leader_id and not self._is_assigned:
            self._store_assignment(command.assignments, transition)
        return transition.effects

    def _check_sync(self, command: SyncCommand) -> ErrorCode:
        error = self._check_identity(command.member_id, command.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if command.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if command.protocol_type not in {None, self.protocol_type}:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if command.protocol_name not in {None, self.protocol_name}:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _sync_arrived(self, member: ClassicMember, transition: Transition) -> None:
        """Cancel the sync timer once every member has asked for its assignment."""
        pending_sync = self.roster.pending_sync
        if member.member_id in pending_sync:
            pending_sync.remove(member.member_id)
            if not pending_sync:
                transition.cancel(SYNC_TIMER)

    def _store_assignment(self, assignments: dict[str, bytes], transition: Transition) -> None:
        """Store the leader's assignments; members that it left out get an empty one."""
        record = self._record(assignments)
        if record.size() > self.config.group_record_bytes_max:
            self._reject_syncs(ErrorCode.UNKNOWN_SERVER_ERROR, transition)
            self.prepare_rebalance(transition)
            return
        # The leader may repeat its sync; what is being written must not change any more.
        self._is_assigned = True
        transition.persist(record)

    def _reject_syncs(self, error: ErrorCode, transition: Transition) -> None:
        """Answer all waiting syncs with an error; the assignments of the generation are void."""
        for member in self.roster.members.values():
            member.assignment = b""
            if member.sync_waiter is not None:
                transition.answer(member.sync_waiter, SyncResult(error=error))
                member.sync_waiter = None
                self._renew_session(member, transition)

    def _sync_result(self, member: ClassicMember) -> SyncResult:
        """Return the member's assignment in the running generation."""
        return SyncResult(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # Heartbeat, OffsetCommit, LeaveGroup, DescribeGroups.

    def heartbeat(self, sender: RequestingMember, now_ms: int) -> ErrorCode:
        """Renew the session of a member. Writes nothing and sets no timer."""
        if self.state is ClassicGroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_sender(sender)
        if error is not ErrorCode.NONE:
            return error
        self._renew_deadline(sender.member_id, now_ms)
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit(
        self, sender: RequestingMember, now_ms: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        """Return the error of an offset commit, or NONE; renew the session of an allowed member.

        Four cases: 1. the group is empty and the sender claims no generation: a tool or a consumer
        that assigns partitions itself. 2. it claims none, but the group has members: rejected.
        3. it is a member of the running generation: allowed, also while the next one is prepared.
        4. the same while the assignment is missing: the member has to sync first.
        Commits of a transaction are allowed in cases 2 and 4 too: its producer need not be a member
        (KIP-447).
        """
        if sender.generation < 0 and self.state is ClassicGroupState.EMPTY:
            return ErrorCode.NONE
        if sender.generation < 0 and not sender.member_id and sender.instance_id is None:
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_sender(sender)
        if error is not ErrorCode.NONE:
            return error
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._renew_deadline(sender.member_id, now_ms)
        return ErrorCode.NONE

    def leave(
        self, leaving: tuple[LeavingMember, ...], now_ms: int
    ) -> tuple[list[ErrorCode], list[Effect]]:
        """Remove members, ids not used yet included; return one error per leaving member."""
        transition = Transition(now_ms)
        member_count = len(self.roster)
        errors = [self._leave_one(leaving_member, transition) for leaving_member in leaving]
        if len(self.roster) < member_count:
            self._members_removed(transition)
        elif ErrorCode.NONE in errors:
            self._maybe_complete_join(transition)
        return errors, transition.effects

    def describe(self) -> GroupDescription:
        """Return what tools may see. Metadata is passed on unread, whatever it claims to be."""
        is_stable = self.state is ClassicGroupState.STABLE
        return GroupDescription(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_name=(self.protocol_name or "") if is_stable else "",
            members=tuple(
                MemberDescription(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(self.protocol_name) if is_stable else b"",
                    assignment=member.assignment,
                )
                for member in self.roster.members.values()
            ),
        )

    def _check_sender(self, sender: RequestingMember) -> ErrorCode:
        error = self._check_identity(sender.member_id, sender.instance_id)
        if error is ErrorCode.NONE and sender.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _check_identity(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that the member exists and is the present holder of its instance id."""
        if instance_id is None:
            known = member_id in self.roster
            return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
        holder = self.roster.static_ids.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID

    def _leave_one(self, leaving_member: LeavingMember, transition: Transition) -> ErrorCode:
        """Three cases: 1. an administrator names an instance; 2. an unused id; 3. a member."""
        member_id = leaving_member.member_id
        if not member_id and leaving_member.instance_id is not None:
            holder = self.roster.static_ids.get(leaving_member.instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = holder
        elif member_id in self.roster.pending:
            self.roster.pending.remove(member_id)
            transition.cancel(session_timer(member_id))
            return ErrorCode.NONE
        else:
            error = self._check_identity(member_id, leaving_member.instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._drop_member(member_id, transition)
        return ErrorCode.NONE

    # Events other than requests.

    def replay(self, record: ClassicGroupRecord, now_ms: int) -> list[Effect]:
        """Let a durable generation hold, and answer the syncs that wait for it.

        Three cases: 1. it is newer than what is in memory, at a start or after a fault: its members
        begin with a full session timeout; 2. it is the running one; 3. a rebalance has overtaken
        it: nothing changes, as a later record will replace it.
        """
        transition = Transition(now_ms)
        if record.generation > self.generation:
            self._load(record, transition)
        is_running = record.generation == self.generation
        if is_running and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._assign(record, transition)
        return transition.effects

    def write_failed(
        self, record: ClassicGroupRecord, durable: ClassicGroupRecord | None, now_ms: int
    ) -> list[Effect]:
        """Undo what was done ahead of a record that could not be stored.

        Three cases: 1. the assignment that members wait for: the rebalance begins again; 2. the new
        id of a static member: it has the old one again; 3. anything else: the next generation will
        be stored.

        Args:
            record: what could not be stored.
            durable: what is stored; None without anything.
            now_ms: monotonic time.
        """
        transition = Transition(now_ms)
        if record.generation != self.generation:
            return transition.effects
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._reject_syncs(ErrorCode.COORDINATOR_NOT_AVAILABLE, transition)
            self.prepare_rebalance(transition)
        elif self.state is ClassicGroupState.STABLE and durable is not None:
            self._restore_ids(durable, transition)
        return transition.effects

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]:
        """Forget a waiter whose connection was lost.

        The member gets one session timeout to reconnect. One that never received its id cannot
        reconnect and is removed at once.
        """
        transition = Transition(now_ms)
        for member in self.roster.members.values():
            if member.sync_waiter == waiter:
                member.sync_waiter = None
                self._renew_session(member, transition)
                break
            if member.join_waiter == waiter:
                self._abandon_join(member, transition)
                break
        return transition.effects

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """Act on a timer: the initial delay, a rebalance, missing syncs or a session is over."""
        transition = Transition(now_ms)
        if key == JOIN_TIMER:
            self._join_timer_fired(transition)
        elif key == SYNC_TIMER:
            self._sync_timer_fired(transition)
        else:
            self._session_timer_fired(key.subject, transition)
        return transition.effects

    def _load(self, record: ClassicGroupRecord, transition: Transition) -> None:
        """Begin a stored generation, whose assignment is to follow."""
        for member_id in tuple(self.roster.members):
            self._drop_member(member_id, transition)
        transition.cancel(JOIN_TIMER)
        transition.cancel(SYNC_TIMER)
        self._delay_left_ms = None
        self.generation = record.generation
        self.protocol_type = record.protocol_type
        self.protocol_name = record.protocol_name
        for stored in record.members:
            member = member_from_record(stored)
            self.roster.add(member)
            self._renew_session(member, transition)
        self.roster.leader_id = record.leader
        self.state = ClassicGroupState.COMPLETING_REBALANCE

    def _assign(self, record: ClassicGroupRecord, transition: Transition) -> None:
        for stored in record.members:
            member = self.roster.members[stored.member_id]
            member.assignment = stored.assignment
        self.state = ClassicGroupState.STABLE if record.members else ClassicGroupState.EMPTY
        for member in self.roster.members.values():
            if member.sync_waiter is not None:
                transition.answer(member.sync_waiter, self._sync_result(member))
                member.sync_waiter = None
                self._renew_session(member, transition)

    def _restore_ids(self, durable: ClassicGroupRecord, transition: Transition) -> None:
        """Give static members the ids and settings that they have in the durable record."""
        for stored in durable.members:
            member_id = self.roster.static_ids.get(stored.instance_id or "")
            if member_id is None or member_id == stored.member_id:
                continue
            member = self.roster.members[member_id]
            self.roster.set_protocols(member, stored.protocols)
            member.session_timeout_ms = stored.session_timeout_ms
            member.rebalance_timeout_ms = stored.rebalance_timeout_ms
            self._fence_old_member_id(member, stored.member_id, transition)

    def _abandon_join(self, member: ClassicMember, transition: Transition) -> None:
        self.roster.set_join_waiter(member, None)
        if member.has_own_id:
            member.is_new = False
            self._renew_session(member, transition)
        else:
            self._drop_member(member.member_id, transition)
            self._members_removed(transition)

    def _join_timer_fired(self, transition: Transition) -> None:
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if self._delay_left_ms and self._has_joined_in_delay:
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms = max(self._delay_left_ms - self._delay_ms, 0)
            self._delay_ms = delay_ms
            self._has_joined_in_delay = False
            transition.schedule(JOIN_TIMER, delay_ms)
        else:
            self._complete_join(transition)

    def _sync_timer_fired(self, transition: Transition) -> None:
        """Remove members that joined but never asked for their assignment."""
        if self.state not in {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE}:
            return
        silent = list(self.roster.pending_sync)
        if silent:
            for member_id in sorted(silent):
                self._drop_member(member_id, transition)
            self.prepare_rebalance(transition)

    def _session_timer_fired(self, member_id: str, transition: Transition) -> None:
        """End a session, unless a request has moved its deadline or is waiting for an answer."""
        if member_id in self.roster.pending:
            self.roster.pending.remove(member_id)
            self._maybe_complete_join(transition)
            return
        member = self.roster.members.get(member_id)
        if member is None:
            return
        if member.session_deadline_ms > transition.now_ms:
            member.timer_ms = member.session_deadline_ms
            transition.schedule(
                session_timer(member_id), member.session_deadline_ms - transition.now_ms
            )
        elif member.is_waiting and not member.is_new:
            self._renew_session(member, transition)
        else:
            self._drop_member(member_id, transition)
            self._members_removed(transition)

    # Rebalance.

    def prepare_rebalance(self, transition: Transition) -> None:
        """Begin to collect the members of the next generation."""
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._reject_syncs(ErrorCode.REBALANCE_IN_PROGRESS, transition)
        self._is_assigned = False
        transition.cancel(SYNC_TIMER)
        was_empty = self.state is ClassicGroupState.EMPTY
        self.state = ClassicGroupState.PREPARING_REBALANCE
        delay_ms = self.config.group_initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            # More members usually follow; each that joins extends the delay.
            self._delay_ms = delay_ms
            self._delay_left_ms = max(self.roster.rebalance_timeout_ms - delay_ms, 0)
            self._has_joined_in_delay = False
            transition.schedule(JOIN_TIMER, delay_ms)
        elif was_empty or self.roster.has_all_joined:
            self._complete_join(transition)
        else:
            transition.schedule(JOIN_TIMER, self.roster.rebalance_timeout_ms)

    def _rebalance(self, transition: Transition) -> None:
        """Begin a rebalance, or complete the one under way if this member was the last."""
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(transition)
        else:
            self.prepare_rebalance(transition)

    def _members_removed(self, transition: Transition) -> None:
        """Rebalance without the removed members."""
        if self.state in {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE}:
            self.prepare_rebalance(transition)
        else:
            self._maybe_complete_join(transition)

    def _maybe_complete_join(self, transition: Transition) -> None:
        """Begin the generation if no member is missing and the initial delay has passed."""
        if (
            self.state is ClassicGroupState.PREPARING_REBALANCE
            and not self._is_in_initial_delay
            and self.roster.has_all_joined
        ):
            self._complete_join(transition)

    @property
    def _is_in_initial_delay(self) -> bool:
        """Whether a group that was empty still delays its first generation."""
        return self._delay_left_ms is not None

    def _complete_join(self, transition: Transition) -> None:
        """Drop the members that did not rejoin and begin the next generation with the others.

        Static members are kept: they may be restarting. If only such members are left, none of
        them can lead, so the group waits until one rejoins or all sessions have ended.
        """
        transition.cancel(JOIN_TIMER)
        self._delay_left_ms = None
        for member in self.roster.absent():
            if not member.is_static:
                self._drop_member(member.member_id, transition)
        if len(self.roster) and not self.roster.elect_joined_leader():
            transition.schedule(JOIN_TIMER, self.roster.rebalance_timeout_ms)
            return
        self.generation += 1
        self.roster.pending_sync.clear()
        if len(self.roster):
            self._begin_generation(transition)
        else:
            self.protocol_name = None
            self.state = ClassicGroupState.EMPTY
            transition.persist(self._record())

    def _begin_generation(self, transition: Transition) -> None:
        self.protocol_name = self.roster.choose_protocol()
        self.state = ClassicGroupState.COMPLETING_REBALANCE
        for member in self.roster.members.values():
            waiter = self.roster.set_join_waiter(member, None)
            if waiter is not None:
                transition.answer(waiter, self._join_result(member))
            member.is_new = False
            member.has_own_id = True
            self._renew_session(member, transition)
            self.roster.pending_sync.add(member.member_id)
        transition.schedule(SYNC_TIMER, self.roster.rebalance_timeout_ms)

    def _drop_member(self, member_id: str, transition: Transition) -> None:
        """Remove one member and answer its waiting requests; the caller rebalances."""
        member = self.roster.remove(member_id)
        transition.cancel(session_timer(member_id))
        _answer_waiters(member, ErrorCode.UNKNOWN_MEMBER_ID, transition)

    # Sessions.

    def _renew_session(
        self, member: ClassicMember, transition: Transition, timeout_ms: int | None = None
    ) -> None:
        """Restart the member's session timeout, or with `timeout_ms` its time to join."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        member.session_deadline_ms = transition.now_ms + timeout_ms
        if member.timer_ms <= transition.now_ms or member.timer_ms > member.session_deadline_ms:
            member.timer_ms = member.session_deadline_ms
            transition.schedule(session_timer(member.member_id), timeout_ms)

    def _renew_deadline(self, member_id: str, now_ms: int) -> None:
        member = self.roster.members[member_id]
        if not member.is_new:
            member.session_deadline_ms = now_ms + member.session_timeout_ms

    # Records.

    def _record(self, assignments: dict[str, bytes] | None = None) -> ClassicGroupRecord:
        """Return the group as it is to be stored, with `assignments` instead of the current."""
        return ClassicGroupRecord(
            group_id=self.group_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.roster.leader_id,
            members=tuple(
                record_of(
                    member,
                    member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b""),
                )
                for member in self.roster.members.values()
            ),
        )


def session_timer(member_id: str) -> TimerKey:
    """Return the key of the timer that ends a session, or expires an unused member id."""
    return TimerKey(SESSION_KIND, member_id)


def _answer_waiters(member: ClassicMember, error: ErrorCode, transition: Transition) -> None:
    """Answer the waiting requests of a member that is no longer in the roster under its id."""
    if member.join_waiter is not None:
        transition.answer(member.join_waiter, JoinResult(error=error))
        member.join_waiter = None
    if member.sync_waiter is not None:
        transition.answer(member.sync_waiter, SyncResult(error=error))
        member.sync_waiter = None
