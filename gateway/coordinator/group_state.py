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

from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import (
    GroupDescription,
    JoinResult,
    Leaver,
    MemberDescription,
    Sender,
    SyncResult,
)
from kledger.gateway.coordinator.member_state import Member, Roster, member_from, record_of
from kledger.gateway.coordinator.outcome import Effect, TimerKey, Turn
from kledger.gateway.coordinator.records import GroupRecord
from kledger.gateway.wire.error_codes import ErrorCode

JOIN_TIMER: Final = TimerKey("join")
SYNC_TIMER: Final = TimerKey("sync")
SESSION_KIND: Final = "session"


class GroupState(StrEnum):
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
        "joined_during_delay",
        "protocol_name",
        "protocol_type",
        "roster",
        "state",
        "writes",
    )

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self.joined_during_delay = False
        self._delay_ms = 0
        self._delay_left_ms: int | None = None
        self._revision = 0
        self.writes: dict[int, object] = {}

    @classmethod
    def from_record(
        cls, record: GroupRecord, config: GroupConfig, now_ms: int
    ) -> tuple["ClassicGroup", list[Effect]]:
        """Bring a group back after a restart; its members get a whole session to say hello."""
        group = cls(record.group_id, config)
        turn = Turn(now_ms)
        group.protocol_type = record.protocol_type
        group.generation = record.generation
        for stored in record.members:
            group.roster.add(member_from(stored))
        group.apply(record)
        for member in group.roster.members.values():
            group.renew_session(member, turn)
        return group, turn.effects

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted."""
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether nobody is a member, or about to be."""
        return self.is_empty and not self.roster.pending

    # Requests.

    def heartbeat(self, sender: Sender, now_ms: int) -> ErrorCode:
        """Renew the session of a member. Writes nothing and sets no timer."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_sender(sender)
        if error is not ErrorCode.NONE:
            return error
        self._sign_of_life(sender.member_id, now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit(
        self, sender: Sender, now_ms: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        """Say whether the sender may commit offsets; renew its session if it may.

        Four cases: 1. nobody is in the group and the sender claims no generation: a tool or a
        consumer without a group. 2. it claims nothing, but the group has members: refused.
        3. it is a member of the running generation: allowed, also while the next one is prepared.
        4. the same while the assignment is awaited: the member has to sync first.
        A transaction's offsets are let in in cases 2 and 4 too: its producer need not be a member
        (KIP-447).
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if sender.generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if sender.generation < 0 and not sender.member_id and sender.instance_id is None:
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_sender(sender)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._sign_of_life(sender.member_id, now_ms)
        return ErrorCode.NONE

    def leave(
        self, leavers: tuple[Leaver, ...], now_ms: int
    ) -> tuple[list[ErrorCode], list[Effect]]:
        """Remove members, ids not used yet included; return one error per leaver."""
        turn = Turn(now_ms)
        if self.state is GroupState.DEAD:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leavers), turn.effects
        member_count = len(self.roster)
        errors = [self._leave_one(leaver, turn) for leaver in leavers]
        if len(self.roster) < member_count:
            self.members_removed(turn)
        elif ErrorCode.NONE in errors:
            self.maybe_complete_join(turn)
        return errors, turn.effects

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]:
        """Note that nobody waits under `waiter` any more: its connection is gone.

        The member gets one session to come back. One that was never told its id cannot come
        back and is removed at once.
        """
        turn = Turn(now_ms)
        for member in self.roster.members.values():
            if member.sync_waiter == waiter:
                member.sync_waiter = None
                self.renew_session(member, turn)
                break
            if member.join_waiter == waiter:
                self._abandon_join(member, turn)
                break
        return turn.effects

    def describe(self) -> GroupDescription:
        """Return what tools may see. Metadata is passed on unread, whatever it claims to be."""
        is_stable = self.state is GroupState.STABLE
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
        turn = Turn(now_ms)
        if self.state is GroupState.DEAD:
            return turn.effects
        if key == JOIN_TIMER:
            self._join_time_is_up(turn)
        elif key == SYNC_TIMER:
            self._sync_time_is_up(turn)
        else:
            self._session_time_is_up(key.subject, turn)
        return turn.effects

    def kill(self, now_ms: int) -> list[Effect]:
        """End the group after its deletion; only an empty one can be deleted."""
        assert self.state is GroupState.EMPTY, f"{self.group_id} is {self.state}"
        turn = Turn(now_ms)
        self.end()
        for member_id in self.roster.pending:
            turn.cancel(session_timer(member_id))
        self.roster.pending.clear()
        return turn.effects

    def end(self) -> None:
        """Do nothing any more: the group was deleted, or goes on as another one."""
        self.state = GroupState.DEAD

    # Transitions, also used by join_state.

    def prepare_rebalance(self, turn: Turn) -> None:
        """Begin to collect the members of the next generation."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, turn)
        turn.cancel(SYNC_TIMER)
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        delay_ms = self.config.group_initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            # More members are probably about to come; each that does extends the delay.
            self._delay_ms = delay_ms
            self._delay_left_ms = max(self.roster.rebalance_timeout_ms - delay_ms, 0)
            self.joined_during_delay = False
            turn.schedule(JOIN_TIMER, delay_ms)
        elif was_empty or self.roster.has_all_joined:
            self._complete_join(turn)
        else:
            turn.schedule(JOIN_TIMER, self.roster.rebalance_timeout_ms)

    def maybe_complete_join(self, turn: Turn) -> None:
        """Begin the generation if nobody is missing; the initial delay is always sat out."""
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and not self.is_in_initial_delay
            and self.roster.has_all_joined
        ):
            self._complete_join(turn)

    def members_removed(self, turn: Turn) -> None:
        """React to members that are gone."""
        if self.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            self.prepare_rebalance(turn)
        else:
            self.maybe_complete_join(turn)

    def drop_member(self, member_id: str, turn: Turn) -> None:
        """Remove one member and tell its waiting requests; the caller reacts to the gap."""
        member = self.roster.remove(member_id)
        turn.cancel(session_timer(member_id))
        self.answer_waiters(member, ErrorCode.UNKNOWN_MEMBER_ID, turn)

    def answer_waiters(self, member: Member, error: ErrorCode, turn: Turn) -> None:
        """Answer what waits for a member that is no longer in the roster under its id."""
        if member.join_waiter is not None:
            turn.answer(member.join_waiter, JoinResult(error=error))
            member.join_waiter = None
        if member.sync_waiter is not None:
            turn.answer(member.sync_waiter, SyncResult(error=error))
            member.sync_waiter = None

    def persist(self, write: object, record: GroupRecord, turn: Turn) -> None:
        """Ask for `record` to be stored; `write_state` finds `write` again when that ended."""
        self._revision += 1
        self.writes[self._revision] = write
        turn.persist(self._revision, record)

    def apply(self, record: GroupRecord) -> None:
        """Take over what a durable record of the running generation says.

        The only door to assignments and to STABLE, live and after a restart.
        """
        assert record.generation == self.generation, f"{record.generation} != {self.generation}"
        self.protocol_name = record.protocol_name
        self.roster.leader_id = record.leader
        for stored in record.members:
            self.roster.members[stored.member_id].assignment = stored.assignment
        self.state = GroupState.STABLE if record.members else GroupState.EMPTY

    def refuse_syncs(self, error: ErrorCode, turn: Turn) -> None:
        """Answer everyone who waits for an assignment with an error."""
        for member in self.roster.members.values():
            member.assignment = b""
            if member.sync_waiter is not None:
                turn.answer(member.sync_waiter, SyncResult(error=error))
                member.sync_waiter = None
                self.renew_session(member, turn)

    def renew_session(self, member: Member, turn: Turn, timeout_ms: int | None = None) -> None:
        """Begin the member's session anew, or with `timeout_ms` its time to join."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        member.session_deadline_ms = turn.now_ms + timeout_ms
        if member.timer_ms <= turn.now_ms or member.timer_ms > member.session_deadline_ms:
            member.timer_ms = member.session_deadline_ms
            turn.schedule(session_timer(member.member_id), timeout_ms)

    def snapshot(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
        """Return the group as it is to be stored; with `assignments` in place of the current."""
        return GroupRecord(
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

    def join_result(self, member: Member) -> JoinResult:
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

    def _complete_join(self, turn: Turn) -> None:
        """Drop who did not come back and begin the next generation with the rest.

        Static members are kept: they may be restarting. If only such members are left, nobody
        could lead, so the group waits on until one is back or all sessions have ended.
        """
        turn.cancel(JOIN_TIMER)
        self._delay_left_ms = None
        for member in self.roster.absent():
            if not member.is_static:
                self.drop_member(member.member_id, turn)
        if len(self.roster) and not self.roster.elect_joined_leader():
            turn.schedule(JOIN_TIMER, self.roster.rebalance_timeout_ms)
            return
        self.generation += 1
        self.roster.pending_sync.clear()
        if len(self.roster):
            self._begin_generation(turn)
        else:
            self.protocol_name = None
            self.state = GroupState.EMPTY
            self.persist(None, self.snapshot(), turn)

    def _begin_generation(self, turn: Turn) -> None:
        self.protocol_name = self.roster.choose_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        for member in self.roster.members.values():
            waiter = self.roster.set_join_waiter(member, None)
            if waiter is not None:
                turn.answer(waiter, self.join_result(member))
            member.is_new = False
            member.has_own_id = True
            self.renew_session(member, turn)
            self.roster.pending_sync.add(member.member_id)
        turn.schedule(SYNC_TIMER, self.roster.rebalance_timeout_ms)

    def _join_time_is_up(self, turn: Turn) -> None:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self._delay_left_ms and self.joined_during_delay:
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms = max(self._delay_left_ms - self._delay_ms, 0)
            self._delay_ms = delay_ms
            self.joined_during_delay = False
            turn.schedule(JOIN_TIMER, delay_ms)
        else:
            self._complete_join(turn)

    def _sync_time_is_up(self, turn: Turn) -> None:
        """Remove members that joined but never asked for their assignment."""
        if self.state not in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            return
        silent = list(self.roster.pending_sync)
        if silent:
            for member_id in sorted(silent):
                self.drop_member(member_id, turn)
            self.prepare_rebalance(turn)

    def _session_time_is_up(self, member_id: str, turn: Turn) -> None:
        """End a session, unless the member showed up since the timer was set, or is waiting."""
        if member_id in self.roster.pending:
            self.roster.pending.remove(member_id)
            self.maybe_complete_join(turn)
            return
        member = self.roster.members.get(member_id)
        if member is None:
            return
        if member.session_deadline_ms > turn.now_ms:
            member.timer_ms = member.session_deadline_ms
            turn.schedule(session_timer(member_id), member.session_deadline_ms - turn.now_ms)
        elif member.is_waiting and not member.is_new:
            self.renew_session(member, turn)
        else:
            self.drop_member(member_id, turn)
            self.members_removed(turn)

    def _check_sender(self, sender: Sender) -> ErrorCode:
        error = self.check_identity(sender.member_id, sender.instance_id)
        if error is ErrorCode.NONE and sender.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _sign_of_life(self, member_id: str, now_ms: int) -> None:
        member = self.roster.members[member_id]
        if not member.is_new:
            member.session_deadline_ms = now_ms + member.session_timeout_ms

    def _leave_one(self, leaver: Leaver, turn: Turn) -> ErrorCode:
        """Three cases: 1. an administrator names an instance; 2. an unused id; 3. a member."""
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            holder = self.roster.static_ids.get(leaver.instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = holder
        elif member_id in self.roster.pending:
            self.roster.pending.remove(member_id)
            turn.cancel(session_timer(member_id))
            return ErrorCode.NONE
        else:
            error = self.check_identity(member_id, leaver.instance_id)
            if error is not ErrorCode.NONE:
                return error
        self.drop_member(member_id, turn)
        return ErrorCode.NONE

    def _abandon_join(self, member: Member, turn: Turn) -> None:
        self.roster.set_join_waiter(member, None)
        if member.has_own_id:
            member.is_new = False
            self.renew_session(member, turn)
        else:
            self.drop_member(member.member_id, turn)
            self.members_removed(turn)


def session_timer(member_id: str) -> TimerKey:
    """Return the key of the timer that ends a session, or the life of an unused id."""
    return TimerKey(SESSION_KIND, member_id)
