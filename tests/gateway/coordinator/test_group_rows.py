"""Rows 82 to 105 of docs/SCENARIOS.md against the pure state.

Those that need topics, versions or stored rows are in test_group_coordinator.py and with the
handlers.
"""

import pytest

from kledger.gateway.coordinator.group_messages import LeavingMember
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.group_words import (
    DELAY_MS,
    NO_DELAY,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
)


def test_row_82_id_first_then_membership() -> None:
    world = GroupWorld(NO_DELAY)

    first = world.new("a", requires_known_id=True)
    assert world.error(first) == ErrorCode.MEMBER_ID_REQUIRED
    assert world.joined(first).member_id == "a"
    assert len(world.group.roster) == 0
    assert world.state == "Empty"

    second = world.join("a", requires_known_id=True)
    assert world.joined(second).generation == 1

    world.new("never used", requires_known_id=True)
    assert "never used" in world.group.roster.pending
    world.live(SESSION_MS + 3_000, "a")
    assert world.group.roster.pending == set()
    assert world.error(world.join("never used")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_row_83_old_and_static_members_join_directly() -> None:
    world = GroupWorld()

    old = world.new("a", requires_known_id=False)
    static = world.new("b", requires_known_id=True, instance_id="i")
    world.advance(2 * DELAY_MS)

    assert world.joined(old).generation == world.joined(static).generation == 1


def test_row_84_third_member_brings_all_into_the_next_generation() -> None:
    world = GroupWorld()
    world.stable("a", "b")

    c = world.new("c")
    assert world.heartbeat("a") == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat("b") == ErrorCode.REBALANCE_IN_PROGRESS
    a, b = world.join("a"), world.join("b")

    assert {world.joined(waiter).generation for waiter in (a, b, c)} == {2}
    assert [len(world.joined(waiter).members) for waiter in (a, b, c)] == [3, 0, 0]


def test_row_84_member_that_does_not_rejoin_in_time_is_dropped() -> None:
    world = GroupWorld()
    world.stable("a", "b")
    c = world.new("c")
    a = world.join("a")

    world.live(REBALANCE_MS - 3_000, "b")
    assert world.is_waiting(a)
    world.live(3_000, "b")

    assert world.joined(a).generation == world.joined(c).generation == 2
    assert set(world.group.roster.members) == {"a", "c"}
    assert world.heartbeat("b") == ErrorCode.UNKNOWN_MEMBER_ID


def test_row_85_heartbeat_in_each_state() -> None:
    world = GroupWorld()
    assert world.heartbeat("a") == ErrorCode.UNKNOWN_MEMBER_ID
    world.completing("a", "b")
    assert world.heartbeat("a") == ErrorCode.NONE
    assert world.heartbeat("a", generation=0) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    world.finish_sync()
    assert world.heartbeat("a") == ErrorCode.NONE
    world.new("c")
    # The session is renewed although the answer is an error.
    world.live(3 * SESSION_MS, "a")
    assert world.heartbeat("a") == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("way", ["leaves", "is removed by its instance id", "times out"])
def test_row_86_rebalance_does_not_wait_for_removed_members(way: str) -> None:
    world = GroupWorld()
    world.new("a")
    world.new("b", instance_id="i")
    world.advance(2 * DELAY_MS)
    world.finish_sync()
    a = world.join("a", rebalance_timeout_ms=600_000)
    assert world.is_waiting(a)

    if way == "leaves":
        world.leave(LeavingMember("b", "i"))
    elif way == "times out":
        world.advance(SESSION_MS)
    else:
        world.leave(LeavingMember("", "i"))

    assert world.joined(a).generation == 2


def test_row_87_connection_lost_in_a_join_does_not_hold_the_group() -> None:
    world = GroupWorld()
    world.stable("a", "b")
    a = world.join("a", rebalance_timeout_ms=600_000)

    world.abandon(a)
    b = world.join("b")
    assert world.is_waiting(b)
    world.advance(SESSION_MS)

    assert [member.member_id for member in world.joined(b).members] == ["b"]


def test_row_87_connection_lost_in_a_sync_ends_with_the_session() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    b = world.sync("b")

    world.abandon(b)
    world.sync("a", assignments={})
    world.live(SESSION_MS + 3_000, "a")

    assert world.is_waiting(b)
    assert set(world.group.roster.members) == {"a"}
    assert world.state == "PreparingRebalance"


def test_row_87_lost_connection_of_a_member_without_an_id_removes_it() -> None:
    """Its client never received the id: it cannot rejoin with it."""
    world = GroupWorld()
    world.stable("a")
    b = world.new("b")
    assert world.state == "PreparingRebalance"

    world.abandon(b)
    a = world.join("a")

    assert len(world.joined(a).members) == 1


def test_row_88_silent_leader_is_ejected_after_the_rebalance_timeout() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    b_sync = world.sync("b")

    world.live(REBALANCE_MS - 3_000, "a")
    assert world.is_waiting(b_sync)
    world.live(3_000, "a")

    assert world.error(b_sync) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat("a") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.joined(world.join("b")).leader == "b"


def test_row_88_silent_follower_is_ejected_too() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    world.sync("a")
    assert world.state == "Stable"

    world.live(REBALANCE_MS, "a", "b")

    assert world.heartbeat("b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.joined(world.join("a")).generation == 2


def test_row_89_waiting_members_do_not_expire() -> None:
    world = GroupWorld()
    world.stable("a", "b", rebalance_timeout_ms=20 * SESSION_MS)
    a = world.join("a", rebalance_timeout_ms=20 * SESSION_MS)

    world.live(15 * SESSION_MS, "b")
    assert world.is_waiting(a)
    b = world.join("b", rebalance_timeout_ms=20 * SESSION_MS)
    assert world.joined(a).generation == world.joined(b).generation == 2

    b_sync = world.sync("b")
    world.live(15 * SESSION_MS, "a")
    assert world.is_waiting(b_sync)
    world.sync("a", assignments={"b": b"mine"})
    assert world.synced(b_sync).assignment == b"mine"


def test_row_89_new_members_are_dropped_after_five_minutes() -> None:
    world = GroupWorld()
    world.stable("a", rebalance_timeout_ms=3_600_000)
    b = world.new("b", rebalance_timeout_ms=3_600_000)

    world.live(299_000, "a", step_ms=1_000)
    assert world.is_waiting(b)
    world.live(1_000, "a", step_ms=1_000)

    assert world.error(b) == ErrorCode.UNKNOWN_MEMBER_ID
    assert "b" not in world.group.roster


def test_row_90_follower_waits_for_the_leader() -> None:
    world = GroupWorld()
    world.completing("a", "b")

    b = world.sync("b", protocol_type="consumer", protocol_name="range")
    assert world.is_waiting(b)
    wrong = world.sync("b", protocol_type="consumer", protocol_name="coop")
    assert world.error(wrong) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    a = world.sync("a", assignments={"a": b"1", "b": b"2"})

    assert world.synced(a).assignment == b"1"
    assert world.synced(b).assignment == b"2"
    assert world.synced(b).protocol_name == "range"


def test_row_91_rejoins_of_a_stable_group() -> None:
    world = GroupWorld()
    world.stable("a", "b")

    unchanged = world.join("b")
    assert world.joined(unchanged).generation == 1
    assert world.state == "Stable"

    leader = world.join("a")
    assert world.is_waiting(leader)
    assert world.state == "PreparingRebalance"
    world.join("b")
    world.finish_sync()

    changed = world.join("b", protocols=(("range", b"other topics"),))
    assert world.is_waiting(changed)
    assert world.state == "PreparingRebalance"


def test_row_92_protocol_is_the_common_one_with_most_votes() -> None:
    world = GroupWorld()
    a = world.new("a", protocols=(("range", b""), ("coop", b"")))
    b = world.new("b", protocols=(("coop", b""), ("sticky", b"")))
    x = world.new("x", protocols=(("x", b""),))
    world.advance(2 * DELAY_MS)

    assert world.error(x) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(a).protocol_name == world.joined(b).protocol_name == "coop"


def test_row_92_votes_decide_between_several_common_protocols() -> None:
    world = GroupWorld()
    one = (("range", b""), ("coop", b""))
    other = (("coop", b""), ("range", b""))
    a = world.new("a", protocols=one)
    world.new("b", protocols=other)
    world.new("c", protocols=other)
    world.advance(3 * DELAY_MS)

    assert world.joined(a).protocol_name == "coop"


def test_row_94_initial_delay_gathers_members_in_one_rebalance() -> None:
    world = GroupWorld()

    a = world.new("a")
    world.advance(1_000)
    b = world.new("b")
    assert world.is_waiting(a)
    world.advance(2 * DELAY_MS)

    assert world.joined(a).generation == world.joined(b).generation == 1


def test_row_95_static_member_restarts_without_a_rebalance() -> None:
    world = GroupWorld()
    world.new("a", instance_id="i")
    world.new("b")
    world.advance(2 * DELAY_MS)
    world.finish_sync()

    world.live(SESSION_MS - 4_000, "b")
    a = world.new("a2", instance_id="i", can_skip_assignment=True)

    assert world.joined(a).generation == 1
    assert world.joined(a).skip_assignment
    assert world.heartbeat("b") == ErrorCode.NONE
    assert world.synced(world.sync("a2", instance_id="i")).assignment == b"a"
    assert world.heartbeat("a", instance_id="i") == ErrorCode.FENCED_INSTANCE_ID


def test_row_96_static_member_stays_until_its_timeout() -> None:
    world = GroupWorld()
    world.stable("a", instance_id="i")

    world.advance(SESSION_MS - 1)
    assert world.state == "Stable"
    world.advance(1)

    assert world.state == "Empty"


def test_row_96_administrator_removes_static_members_one_result_each() -> None:
    world = GroupWorld()
    world.stable("a", instance_id="i")

    errors = world.leave(LeavingMember("", "i"), LeavingMember("", "other"), LeavingMember("ghost"))

    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.state == "Empty"


def test_row_97_commit_without_membership() -> None:
    world = GroupWorld()
    assert world.commit("", generation=-1) == ErrorCode.NONE
    assert world.commit("", generation=-1, instance_id="i") == ErrorCode.NONE

    world.stable("a")
    assert world.commit("", generation=-1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("", generation=-1, instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_row_98_commit_of_members() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    assert world.commit("a") == ErrorCode.REBALANCE_IN_PROGRESS
    world.finish_sync()
    assert world.commit("a") == ErrorCode.NONE
    assert world.commit("a", generation=0) == ErrorCode.ILLEGAL_GENERATION
    assert world.commit("ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    world.new("c")
    assert world.state == "PreparingRebalance"
    assert world.commit("b") == ErrorCode.NONE


def test_row_98_commit_renews_the_session() -> None:
    world = GroupWorld()
    world.stable("a")

    for _ in range(4):
        world.advance(SESSION_MS - 1)
        assert world.commit("a") == ErrorCode.NONE

    assert world.state == "Stable"


def test_row_104_metadata_passes_through_unread() -> None:
    """A client claims a version of the consumer protocol without that version's fields."""
    world = GroupWorld()
    odd = b"\x00\x01\x00\x00"

    a = world.new("a", protocols=(("range", odd),))
    world.advance(2 * DELAY_MS)
    world.sync("a", assignments={"a": odd})

    assert world.joined(a).members[0].metadata == odd
    described = world.group.describe().members[0]
    assert (described.metadata, described.assignment) == (odd, odd)


def test_row_105_members_continue_after_a_restart() -> None:
    world = GroupWorld()
    world.stable("a", "b")

    after = world.restart()

    assert after.state == "Stable"
    assert after.heartbeat("a", generation=1) == ErrorCode.NONE
    assert after.synced(after.sync("b", generation=1)).assignment == b"b"
    assert after.joined(after.join("b")).generation == 1
    after.live(2 * SESSION_MS, "a")
    assert set(after.group.roster.members) == {"a"}
    assert after.joined(after.join("a")).generation == 2


def test_row_105_restart_during_a_rebalance_makes_members_rejoin() -> None:
    world = GroupWorld()
    world.stable("a")
    b = world.new("b")
    world.join("a")
    assert world.joined(b).generation == 2

    after = world.restart()

    assert after.heartbeat("a", generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert after.heartbeat("b", generation=2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert after.joined(after.join("a")).generation == 2
