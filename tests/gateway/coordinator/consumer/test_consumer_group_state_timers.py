"""Timers of members: what a heartbeat moves, what a restart sets again."""

from dataclasses import replace

from kledger.gateway.coordinator.consumer.consumer_group_state import MemberTimers
from kledger.gateway.coordinator.consumer.consumer_member_state import MemberState
from kledger.gateway.coordinator.effects import Cancel, Effect, Schedule, TimerKey, Transition
from tests.gateway.coordinator.consumer.test_consumer_member_state import MEMBER

SESSION_MS = 10_000
SESSION = TimerKey("session", "m")
REBALANCE = TimerKey("rebalance", "m")
REVOKING = replace(MEMBER, state=MemberState.REVOKING)


def timers_of_member() -> MemberTimers:
    timers = MemberTimers()
    timers.renew_session(MEMBER, Transition(0), SESSION_MS)
    return timers


def test_heartbeats_move_the_deadline_and_set_no_timer() -> None:
    timers = MemberTimers()
    first, second, early, late = (
        Transition(0),
        Transition(4_000),
        Transition(10_000),
        Transition(14_000),
    )
    timers.renew_session(MEMBER, first, SESSION_MS)
    timers.renew_session(MEMBER, second, SESSION_MS)
    assert [Schedule(SESSION, 10_000)] == first.effects
    assert [] == second.effects
    assert not timers.has_expired(SESSION, MEMBER, early)
    assert [Schedule(SESSION, 4_000)] == early.effects
    assert timers.has_expired(SESSION, MEMBER, late)


def test_rebalance_timeout_starts_with_the_revocation() -> None:
    timers = timers_of_member()

    def effects(before: MemberState, after: MemberState, epoch: int = 5) -> list[Effect]:
        transition = Transition(0)
        timers.watch(
            replace(MEMBER, state=before), replace(MEMBER, state=after, epoch=epoch), transition
        )
        return transition.effects

    stable, revoking = MemberState.STABLE, MemberState.REVOKING
    assert [Schedule(REBALANCE, 60_000)] == effects(stable, revoking)
    assert [] == effects(revoking, revoking)
    assert [Schedule(REBALANCE, 60_000)] == effects(revoking, revoking, epoch=6)
    assert [Cancel(REBALANCE)] == effects(revoking, stable)
    assert [] == effects(stable, stable)


def test_only_a_revoking_member_exceeds_its_rebalance_timeout() -> None:
    timers = timers_of_member()
    assert timers.has_expired(REBALANCE, REVOKING, Transition(0))
    assert not timers.has_expired(REBALANCE, MEMBER, Transition(0))


def test_restart_keeps_running_sessions_and_begins_missing_ones() -> None:
    timers = timers_of_member()
    other = replace(REVOKING, member_id="n")
    transition = Transition(1_000)
    timers.restart([MEMBER], [other], transition, SESSION_MS)
    assert [
        Cancel(SESSION),
        Cancel(REBALANCE),
        Schedule(TimerKey("session", "n"), 10_000),
        Schedule(TimerKey("rebalance", "n"), 60_000),
    ] == transition.effects
    again = Transition(2_000)
    timers.restart([other], [other], again, SESSION_MS)
    rebalance = TimerKey("rebalance", "n")
    assert [Cancel(rebalance), Schedule(rebalance, 60_000)] == again.effects
