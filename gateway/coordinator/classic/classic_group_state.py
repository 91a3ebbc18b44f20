"""Group state: one classic consumer group, its generations and its timers.

Rule: pure. Every entry point takes the monotonic time and returns effects. What must survive a
restart (generation, members, assignments) is handed out with `Persist` and counts only once
`persisted` says that it is durable; `from_record` brings it back.
Must not know: API versions, rows, committed offsets, what metadata and assignments mean.

`join_state` (JoinGroup), `sync_state` (SyncGroup) and `write_state` (a write ended) work on the
group through its transitions.

    EMPTY ─first join─▶ PREPARING ─all joined or time up─▶ COMPLETING ─leader's sync─▶ STABLE
      ▲                  │   ▲                               │                          │
      └──nobody is left──┘   └─────────── a member comes, goes or changes ──────────────┘
"""

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
    JoinResult,
    LeavingMember,
    MemberDescription,
    RequestingMember,
    SyncResult,
)
from kledger.gateway.wire.error_codes import ErrorCode

JOIN_TIMER: Final = TimerKey("join")
SYNC_TIMER: Final = TimerKey("sync")
SESSION_KIND: Final = "session"


class ClassicGroupState(StrEnum):
    """Where a group stands; the values are Kafka's names.

    EMPTY: no members, at most offsets. Answers commits without a generation. The first join
        leads to PREPARING_REBALANCE, a deletion to DEAD.
    PREPARING_REBALANCE: collects members. Joins wait; heartbeats and syncs get
        REBALANCE_IN_PROGRESS; commits of the old generation pass. When all have joined or the
        time is up: COMPLETING_REBALANCE, or EMPTY if nobody is left.
    COMPLETING_REBALANCE: the generation is known, the assignment is not. Syncs wait, heartbeats
        pass, commits get REBALANCE_IN_PROGRESS. The leader's durable assignment leads to STABLE;
        a member that comes, goes or changes leads back to PREPARING_REBALANCE.
    STABLE: members consume. Syncs are answered at once. Any change leads to
        PREPARING_REBALANCE.
    DEAD: deleted; everything gets COORDINATOR_NOT_AVAILABLE, so that the sender asks again and
        finds a new group or none.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """One group of the protocol of JoinGroup and SyncGroup."""

    kind: Final = "classic"

    __slots__ = (
        "_delay_left_ms",
        "_delay_ms",
        "_revision",
        "config",
        "generation",
        "group_id",
        "has_joined_in_delay",
        "protocol_name",
        "protocol_type",
        "roster",
        "state",
        "writes",
    )

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = ClassicGroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = ClassicRoster()
        self.has_joined_in_delay = False
        self._delay_ms = 0
        self._delay_left_ms: int | None = None
        self._revision = 0
        self.writes: dict[int, object] = {}

    @classmethod
    def from_record(
        cls, record: ClassicGroupRecord, config: GroupConfig, now_ms: int
    ) -> tuple["ClassicGroup", list[Effect]]:
        """Bring a group back after a restart; its members get a whole session to say hello."""
        group = cls(record.group_id, config)
        transition = Transition(now_ms)
        group.protocol_type = record.protocol_type
        group.generation = record.generation
        for stored in record.members:
            group.roster.add(member_from_record(stored))
        group.apply(record)
        for member in group.roster.members.values():
            group.renew_session(member, transition)
        return group, transition.effects

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted."""
        return self.state is ClassicGroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether nobody is a member, or about to be."""
        return self.is_empty and not self.roster.pending

    # Requests.

    def heartbeat(self, sender: RequestingMember, now_ms: int) -> ErrorCode:
        """Renew the session of a member. Writes nothing and sets no timer."""
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
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
        """Say whether the sender may commit offsets; renew its session if it may.

        Four cases: 1. nobody is in the group and the sender claims no generation: a tool or a
        consumer without a group. 2. it claims nothing, but the group has members: refused.
        3. it is a member of the running generation: allowed, also while the next one is prepared.
        4. the same while the assignment is awaited: the member has to sync first.
        A transaction's offsets are let in in cases 2 and 4 too: its producer need not be a member
        (KIP-447).
        """
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
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
        """Remove members, ids not used yet included; return one error per leaver."""
        transition = Transition(now_ms)
        if self.state is ClassicGroupState.DEAD:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leaving), transition.effects
        member_count = len(self.roster)
        errors = [self._leave_one(leaving_member, transition) for leaving_member in leaving]
        if len(self.roster) < member_count:
            self.members_removed(transition)
        elif ErrorCode.NONE in errors:
            self.maybe_complete_join(transition)
        return errors, transition.effects

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]:
        """Note that nobody waits under `waiter` any more: its connection is gone.

        The member gets one session to come back. One that was never told its id cannot come
        back and is removed at once.
        """
        transition = Transition(now_ms)
        for member in self.roster.members.values():
            if member.sync_waiter == waiter:
                member.sync_waiter = None
                self.renew_session(member, transition)
                break
            if member.join_waiter == waiter:
                self._abandon_join(member, transition)
                break
        return transition.effects

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

    # Events that no request brings.

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """Do what was put off until now."""
        transition = Transition(now_ms)
        if self.state is ClassicGroupState.DEAD:
            return transition.effects
        if key == JOIN_TIMER:
            self._join_timer_fired(transition)
        elif key == SYNC_TIMER:
            self._sync_timer_fired(transition)
        else:
            self._session_timer_fired(key.subject, transition)
        return transition.effects

    def kill(self, now_ms: int) -> list[Effect]:
        """End the group after its deletion; only an empty one can be deleted."""
        assert self.state is ClassicGroupState.EMPTY, f"{self.group_id} is {self.state}"
        transition = Transition(now_ms)
        self.end()
        for member_id in self.roster.pending:
            transition.cancel(session_timer(member_id))
        self.roster.pending.clear()
        return transition.effects

    def end(self) -> None:
        """Do nothing any more: the group was deleted, or goes on as another one."""
        self.state = ClassicGroupState.DEAD

    # Transitions, also used by join_state.

    def prepare_rebalance(self, transition: Transition) -> None:
        """Begin to collect the members of the next generation."""
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self.refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, transition)
        transition.cancel(SYNC_TIMER)
        was_empty = self.state is ClassicGroupState.EMPTY
        self.state = ClassicGroupState.PREPARING_REBALANCE
        delay_ms = self.config.group_initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            # More members are probably about to come; each that does extends the delay.
            self._delay_ms = delay_ms
            self._delay_left_ms = max(self.roster.rebalance_timeout_ms - delay_ms, 0)
            self.has_joined_in_delay = False
            transition.schedule(JOIN_TIMER, delay_ms)
        elif was_empty or self.roster.has_all_joined:
            self._complete_join(transition)
        else:
            transition.schedule(JOIN_TIMER, self.roster.rebalance_timeout_ms)

    def maybe_complete_join(self, transition: Transition) -> None:
        """Begin the generation if nobody is missing; the initial delay is always sat out."""
        if (
            self.state is ClassicGroupState.PREPARING_REBALANCE
            and not self.is_in_initial_delay
            and self.roster.has_all_joined
        ):
            self._complete_join(transition)

    def members_removed(self, transition: Transition) -> None:
        """React to members that are gone."""
        if self.state in {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE}:
            self.prepare_rebalance(transition)
        else:
            self.maybe_complete_join(transition)

    def drop_member(self, member_id: str, transition: Transition) -> None:
        """Remove one member and tell its waiting requests; the caller reacts to the gap."""
        member = self.roster.remove(member_id)
        transition.cancel(session_timer(member_id))
        self.answer_waiters(member, ErrorCode.UNKNOWN_MEMBER_ID, transition)

    def answer_waiters(
        self, member: ClassicMember, error: ErrorCode, transition: Transition
    ) -> None:
        """Answer what waits for a member that is no longer in the roster under its id."""
        if member.join_waiter is not None:
            transition.answer(member.join_waiter, JoinResult(error=error))
            member.join_waiter = None
        if member.sync_waiter is not None:
            transition.answer(member.sync_waiter, SyncResult(error=error))
            member.sync_waiter = None

    def persist(self, write: object, record: ClassicGroupRecord, transition: Transition) -> None:
        """Ask for `record` to be stored; `write_state` finds `write` again when that ended."""
        self._revision += 1
        self.writes[self._revision] = write
        transition.persist(self._revision, record)

    def apply(self, record: ClassicGroupRecord) -> None:
        """Take over what a durable record of the running generation says.

        The only door to assignments and to STABLE, live and after a restart.
        """
        assert record.generation == self.generation, f"{record.generation} != {self.generation}"
        self.protocol_name = record.protocol_name
        self.roster.leader_id = record.leader
        for stored in record.members:
            self.roster.members[stored.member_id].assignment = stored.assignment
        self.state = ClassicGroupState.STABLE if record.members else ClassicGroupState.EMPTY

    def refuse_syncs(self, error: ErrorCode, transition: Transition) -> None:
        """Answer everyone who waits for an assignment with an error."""
        for member in self.roster.members.values():
            member.assignment = b""
            if member.sync_waiter is not None:
                transition.answer(member.sync_waiter, SyncResult(error=error))
                member.sync_waiter = None
                self.renew_session(member, transition)

    def renew_session(
        self, member: ClassicMember, transition: Transition, timeout_ms: int | None = None
    ) -> None:
        """Begin the member's session anew, or with `timeout_ms` its time to join."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        member.session_deadline_ms = transition.now_ms + timeout_ms
        if member.timer_ms <= transition.now_ms or member.timer_ms > member.session_deadline_ms:
            member.timer_ms = member.session_deadline_ms
            transition.schedule(session_timer(member.member_id), timeout_ms)

    def snapshot(self, assignments: dict[str, bytes] | None = None) -> ClassicGroupRecord:
        """Return the group as it is to be stored; with `assignments` in place of the current."""
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

    def check_identity(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that the member exists and is the present holder of its instance id."""
        if instance_id is None:
            known = member_id in self.roster
            return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
        holder = self.roster.static_ids.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID

    def join_result(self, member: ClassicMember) -> JoinResult:
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

    @property
    def is_in_initial_delay(self) -> bool:
        """Whether an empty group still waits for more members to come."""
        return self._delay_left_ms is not None

    def _complete_join(self, transition: Transition) -> None:
        """Drop who did not come back and begin the next generation with the rest.

        Static members are kept: they may be restarting. If only such members are left, nobody
        could lead, so the group waits on until one is back or all sessions have ended.
        """
        transition.cancel(JOIN_TIMER)
        self._delay_left_ms = None
        for member in self.roster.absent():
            if not member.is_static:
                self.drop_member(member.member_id, transition)
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
            self.persist(None, self.snapshot(), transition)

    def _begin_generation(self, transition: Transition) -> None:
        self.protocol_name = self.roster.choose_protocol()
        self.state = ClassicGroupState.COMPLETING_REBALANCE
        for member in self.roster.members.values():
            waiter = self.roster.set_join_waiter(member, None)
            if waiter is not None:
                transition.answer(waiter, self.join_result(member))
            member.is_new = False
            member.has_own_id = True
            self.renew_session(member, transition)
            self.roster.pending_sync.add(member.member_id)
        transition.schedule(SYNC_TIMER, self.roster.rebalance_timeout_ms)

    def _join_timer_fired(self, transition: Transition) -> None:
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if self._delay_left_ms and self.has_joined_in_delay:
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms = max(self._delay_left_ms - self._delay_ms, 0)
            self._delay_ms = delay_ms
            self.has_joined_in_delay = False
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
                self.drop_member(member_id, transition)
            self.prepare_rebalance(transition)

    def _session_timer_fired(self, member_id: str, transition: Transition) -> None:
        """End a session, unless the member showed up since the timer was set, or is waiting."""
        if member_id in self.roster.pending:
            self.roster.pending.remove(member_id)
            self.maybe_complete_join(transition)
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
            self.renew_session(member, transition)
        else:
            self.drop_member(member_id, transition)
            self.members_removed(transition)

    def _check_sender(self, sender: RequestingMember) -> ErrorCode:
        error = self.check_identity(sender.member_id, sender.instance_id)
        if error is ErrorCode.NONE and sender.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _renew_deadline(self, member_id: str, now_ms: int) -> None:
        member = self.roster.members[member_id]
        if not member.is_new:
            member.session_deadline_ms = now_ms + member.session_timeout_ms

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
            error = self.check_identity(member_id, leaving_member.instance_id)
            if error is not ErrorCode.NONE:
                return error
        self.drop_member(member_id, transition)
        return ErrorCode.NONE

    def _abandon_join(self, member: ClassicMember, transition: Transition) -> None:
        self.roster.set_join_waiter(member, None)
        if member.has_own_id:
            member.is_new = False
            self.renew_session(member, transition)
        else:
            self.drop_member(member.member_id, transition)
            self.members_removed(transition)


def session_timer(member_id: str) -> TimerKey:
    """Return the key of the timer that ends a session, or the life of an unused id."""
    return TimerKey(SESSION_KIND, member_id)
