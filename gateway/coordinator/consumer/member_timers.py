"""Consumer timers: how long a member of a consumer group may be silent, and may hold on.

Rule: pure. A heartbeat only moves the session's deadline; the timer finds that out when it fires,
and is set again. So a heartbeat costs one assignment.
Must not know: groups, what happens when a time is up.
"""

from collections.abc import Collection, Iterable
from typing import Final

from kledger.gateway.coordinator.consumer.consumer_member_state import ConsumerMember, MemberState
from kledger.gateway.coordinator.effects import TimerKey, Transition

SESSION_KIND: Final = "session"
REBALANCE_KIND: Final = "rebalance"


class MemberTimers:
    """The timers of all members of one group."""

    __slots__ = ("_deadlines",)

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[int, int]] = {}

    def renew_session(
        self, member: ConsumerMember, transition: Transition, session_timeout_ms: int
    ) -> None:
        """Begin a member's session anew; members of the classic protocol bring their own time."""
        classic = member.classic
        timeout_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
        deadline_ms = transition.now_ms + timeout_ms
        _, timer_ms = self._deadlines.get(member.member_id, (0, 0))
        if timer_ms <= transition.now_ms or timer_ms > deadline_ms:
            timer_ms = deadline_ms
            transition.schedule(_session_timer(member.member_id), timeout_ms)
        self._deadlines[member.member_id] = (deadline_ms, timer_ms)

    def has_expired(self, key: TimerKey, member: ConsumerMember, transition: Transition) -> bool:
        """Whether the time of a timer that fired is really up; sets it again if it is not."""
        if key.kind == REBALANCE_KIND:
            return member.state is MemberState.REVOKING
        deadline_ms, _ = self._deadlines[member.member_id]
        if deadline_ms <= transition.now_ms:
            return True
        self._deadlines[member.member_id] = (deadline_ms, deadline_ms)
        transition.schedule(key, deadline_ms - transition.now_ms)
        return False

    def watch(self, before: ConsumerMember, after: ConsumerMember, transition: Transition) -> None:
        """Give a member time to let go of partitions, from when it is told to."""
        if after.state is not MemberState.REVOKING:
            if before.state is MemberState.REVOKING:
                self.stop_watching(after, transition)
        elif before.state is not MemberState.REVOKING or before.epoch != after.epoch:
            transition.schedule(_rebalance_timer(after), after.rebalance_timeout_ms)

    def stop_watching(self, member: ConsumerMember, transition: Transition) -> None:
        """Let a member hold on as long as it has a session."""
        transition.cancel(_rebalance_timer(member))

    def forget(self, member: ConsumerMember, transition: Transition) -> None:
        """Stop everything of a member that is gone."""
        del self._deadlines[member.member_id]
        transition.cancel(_session_timer(member.member_id))
        self.stop_watching(member, transition)

    def restart(
        self,
        before: Iterable[ConsumerMember],
        members: Collection[ConsumerMember],
        transition: Transition,
        session_timeout_ms: int,
    ) -> None:
        """Go over to other members; those that had no session get a whole one."""
        kept = {member.member_id for member in members}
        for member in before:
            if member.member_id in kept:
                self.stop_watching(member, transition)
            else:
                self.forget(member, transition)
        for member in members:
            if member.member_id not in self._deadlines:
                self.renew_session(member, transition, session_timeout_ms)
            if member.state is MemberState.REVOKING:
                transition.schedule(_rebalance_timer(member), member.rebalance_timeout_ms)


def _session_timer(member_id: str) -> TimerKey:
    return TimerKey(SESSION_KIND, member_id)


def _rebalance_timer(member: ConsumerMember) -> TimerKey:
    return TimerKey(REBALANCE_KIND, member.member_id)
