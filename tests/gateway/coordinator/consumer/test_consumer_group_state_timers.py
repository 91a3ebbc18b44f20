"""Sessions of members: what a heartbeat moves, what a durable record begins and ends."""

from dataclasses import replace

from kledger.gateway.coordinator.consumer.consumer_group_state import MemberSessions
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ConsumerMember,
    ConsumerRoster,
    MemberState,
)
from kledger.gateway.coordinator.effects import Cancel, Effect, Schedule, TimerKey, Transition
from tests.gateway.coordinator.consumer.test_consumer_member_state import MEMBER

SESSION_MS = 10_000
SESSION = TimerKey("session", "m")
REBALANCE = TimerKey("rebalance", "m")
REVOKING = replace(MEMBER, state=MemberState.REVOKING)


def replay(sessions: MemberSessions, *members: ConsumerMember, now_ms: int = 0) -> list[Effect]:
    transition = Transition(now_ms)
    sessions.replay(ConsumerRoster(members), transition, SESSION_MS)
    return transition.effects


def renew(sessions: MemberSessions, now_ms: int) -> list[Effect]:
    transition = Transition(now_ms)
    sessions.renew(MEMBER, transition, SESSION_MS)
    return transition.effects


def expire(
    sessions: MemberSessions, key: TimerKey, member: ConsumerMember | None, now_ms: int
) -> tuple[bool, list[Effect]]:
    transition = Transition(now_ms)
    return sessions.has_expired(key, member, transition, SESSION_MS), transition.effects


def test_heartbeats_move_the_deadline_and_set_no_timer() -> None:
    sessions = MemberSessions()
    assert [] == renew(sessions, 0), "the member is not durable yet"
    assert [Schedule(SESSION, 10_000)] == replay(sessions, MEMBER)
    assert [] == renew(sessions, 4_000)
    assert (False, [Schedule(SESSION, 4_000)]) == expire(sessions, SESSION, MEMBER, 10_000)
    assert (True, [Schedule(SESSION, 10_000)]) == expire(sessions, SESSION, MEMBER, 14_000)


def test_rebalance_timeout_starts_with_the_revocation() -> None:
    sessions = MemberSessions()
    replay(sessions, MEMBER)
    assert [Schedule(REBALANCE, 60_000)] == replay(sessions, REVOKING)
    assert [] == replay(sessions, REVOKING)
    assert [Schedule(REBALANCE, 60_000)] == replay(sessions, replace(REVOKING, epoch=6))
    assert [Cancel(REBALANCE)] == replay(sessions, MEMBER)
    assert [] == replay(sessions, MEMBER)


def test_only_a_member_in_the_same_revocation_exceeds_its_rebalance_timeout() -> None:
    sessions = MemberSessions()
    replay(sessions, REVOKING)
    again = [Schedule(REBALANCE, 60_000)]
    assert (True, again) == expire(sessions, REBALANCE, REVOKING, 60_000)
    for under_way in (MEMBER, replace(REVOKING, epoch=6), None):
        assert (False, again) == expire(sessions, REBALANCE, under_way, 60_000)


def test_sessions_begin_and_end_with_the_members() -> None:
    sessions = MemberSessions()
    replay(sessions, REVOKING)
    other = replace(MEMBER, member_id="n", assigned=frozenset())
    assert [
        Schedule(TimerKey("session", "n"), 10_000),
        Cancel(SESSION),
        Cancel(REBALANCE),
    ] == replay(sessions, other, now_ms=1_000)
    assert [] == replay(sessions, other, now_ms=2_000)
