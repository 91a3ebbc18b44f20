"""JoinGroup against the pure state: which members are admitted, when, and their answers."""

import pytest

from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import JoinedMember, JoinResult
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.group_words import (
    DELAY_MS,
    NO_DELAY,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
)

COOP = (("coop", b"c"),)


def test_first_member_leads_and_alone_sees_the_members() -> None:
    world = GroupWorld()

    a = world.new("a", protocols=(("range", b"topics of a"),))
    b = world.new("b", protocols=(("range", b"topics of b"),))
    world.advance(2 * DELAY_MS)

    assert world.joined(a) == JoinResult(
        member_id="a",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        members=(
            JoinedMember("a", None, b"topics of a"),
            JoinedMember("b", None, b"topics of b"),
        ),
    )
    assert world.joined(b) == JoinResult(
        member_id="b",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
    )


def test_without_initial_delay_the_first_join_is_answered_at_once() -> None:
    world = GroupWorld(NO_DELAY)

    a = world.new("a")

    assert world.joined(a).generation == 1


def test_initial_delay_extends_with_each_join_up_to_the_rebalance_timeout() -> None:
    world = GroupWorld()
    first = world.new("m0", rebalance_timeout_ms=10_000)

    start_ms = world.now_ms
    while world.is_waiting(first):
        world.advance(1_000)
        if world.is_waiting(first):
            world.new(f"m{world.now_ms}", rebalance_timeout_ms=10_000)

    # 3 s, twice extended by 3 s, then the one second that is left of the ten.
    assert world.now_ms - start_ms == 10_000
    assert len(world.joined(first).members) == 10


def test_initial_delay_passes_even_if_the_only_member_leaves() -> None:
    world = GroupWorld()
    a = world.new("a")

    world.leave("a")
    b = world.new("b")

    assert world.error(a) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.is_waiting(b)
    world.advance(2 * DELAY_MS)
    assert world.joined(b).leader == "b"


def test_a_group_whose_members_all_left_takes_another_protocol_type() -> None:
    world = GroupWorld()
    world.new("a")
    world.leave("a")

    b = world.new("b", protocol_type="connect")
    world.advance(2 * DELAY_MS)

    assert world.joined(b).protocol_type == "connect"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", RANGE),
        ("consumer", COOP),
        ("consumer", ()),
        ("", RANGE),
    ],
)
@pytest.mark.parametrize("situation", ["preparing", "completing", "stable"])
def test_join_without_a_common_protocol_is_inconsistent(
    situation: str, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    world = GroupWorld()
    if situation == "preparing":
        world.new("a")
    elif situation == "completing":
        world.completing("a")
    else:
        world.stable("a")
    state = world.group.state

    b = world.new("b", protocol_type=protocol_type, protocols=protocols)

    assert world.error(b) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.group.state == state


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_first_join_without_type_or_protocols_is_inconsistent(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    world = GroupWorld()

    a = world.new("a", protocol_type=protocol_type, protocols=protocols)

    assert world.error(a) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state == "Empty"


@pytest.mark.parametrize("situation", ["empty", "preparing", "completing", "stable"])
def test_join_with_an_id_that_was_never_assigned_is_unknown(situation: str) -> None:
    world = GroupWorld()
    if situation == "preparing":
        world.new("a")
    elif situation == "completing":
        world.completing("a")
    elif situation == "stable":
        world.stable("a")

    ghost = world.join("ghost")

    assert world.error(ghost) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.joined(ghost).member_id == "ghost"


# Ids before membership.


def test_unused_id_keeps_a_rebalance_open_until_it_joins() -> None:
    """A client with a new id joins with it at once: the generation must not begin before."""
    world = GroupWorld()
    world.stable("a")
    world.new("b", requires_known_id=True)
    assert world.state == "Stable"

    a = world.join("a")
    assert world.is_waiting(a)
    b = world.join("b", requires_known_id=True)

    assert world.joined(a).generation == world.joined(b).generation == 2


def test_unused_id_that_expires_completes_the_rebalance() -> None:
    world = GroupWorld()
    world.stable("a")
    world.new("b", requires_known_id=True)
    a = world.join("a")

    world.advance(SESSION_MS)

    assert world.joined(a).generation == 2
    assert world.error(world.join("b")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_unused_id_with_an_instance_id_is_unknown() -> None:
    world = GroupWorld()
    world.new("b", requires_known_id=True)

    b = world.join("b", instance_id="i")

    assert world.error(b) == ErrorCode.UNKNOWN_MEMBER_ID


def test_unused_ids_are_limited() -> None:
    world = GroupWorld(GroupConfig(pending_members_max=2))
    for name in ("a", "b"):
        world.new(name, requires_known_id=True)

    c = world.new("c", requires_known_id=True)

    assert world.error(c) == ErrorCode.GROUP_MAX_SIZE_REACHED


# Size.


@pytest.mark.parametrize("situation", ["preparing", "completing", "stable"])
def test_full_group_rejects_new_members_but_keeps_the_old(situation: str) -> None:
    world = GroupWorld(GroupConfig(group_max_size=2))
    if situation == "preparing":
        world.new("a")
        world.new("b")
    elif situation == "completing":
        world.completing("a", "b")
    else:
        world.stable("a", "b")

    c = world.new("c")

    assert world.error(c) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.joined(c).member_id == ""
    assert set(world.group.roster.members) == {"a", "b"}
    assert world.heartbeat("b", instance_id=None) != ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_rejoins_a_full_group_too_late_is_removed() -> None:
    world = GroupWorld(GroupConfig(group_max_size=2))
    world.stable("a", "b")
    a = world.join("a")
    c = world.new("c")

    b = world.join("b")

    assert world.error(b) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.joined(a).generation == world.joined(c).generation == 2


# Rejoining.


def test_repeated_join_replaces_the_waiting_one() -> None:
    """The client lost its connection and repeats the join on a new one."""
    world = GroupWorld()
    world.stable("a", "b")
    world.join("a")
    first = world.join("a", protocols=(("range", b"new"),))
    second = world.join("a", protocols=(("range", b"newer"),))
    b = world.join("b")

    assert world.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.joined(second).generation == world.joined(b).generation == 2
    assert world.joined(second).members[0].metadata == b"newer"


def test_join_repeated_after_the_generation_began_is_answered_again() -> None:
    world = GroupWorld()
    waiters = world.completing("a", "b")

    again = {name: world.join(name) for name in ("a", "b")}

    for name, waiter in again.items():
        assert world.joined(waiter) == world.joined(waiters[name])
    assert world.state == "CompletingRebalance"


def test_changed_join_in_a_new_generation_begins_another() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    sync = world.sync("a", assignments={})
    assert world.state == "Stable"
    assert world.error(sync) == ErrorCode.NONE

    b = world.join("b", protocols=(("range", b"changed"),))

    assert world.is_waiting(b)
    assert world.state == "PreparingRebalance"


def test_late_member_makes_members_with_waiting_syncs_rejoin() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    b_sync = world.sync("b")

    c = world.new("c")

    assert world.error(b_sync) == ErrorCode.REBALANCE_IN_PROGRESS
    a, b = world.join("a"), world.join("b")
    assert {world.joined(w).generation for w in (a, b, c)} == {2}


def test_leader_that_does_not_rejoin_is_replaced() -> None:
    world = GroupWorld()
    world.stable("a", "b")
    b = world.join("b", protocols=(("range", b"changed"),))

    world.live(REBALANCE_MS, "a")

    assert world.joined(b).leader == "b"
    assert world.heartbeat("a") == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_timeouts_are_applied() -> None:
    world = GroupWorld()
    world.stable("a")
    world.join("a", session_timeout_ms=30_000, rebalance_timeout_ms=90_000)
    world.finish_sync()

    world.advance(29_999)
    assert world.state == "Stable"
    world.advance(1)
    assert world.state == "Empty"


# Static members.


def static(name: str) -> dict[str, object]:
    return {"instance_id": f"instance {name}"}


def stable_static_pair(world: GroupWorld) -> None:
    """A leads, B follows, both static."""
    world.new("a", **static("a"))
    world.new("b", **static("b"))
    world.advance(2 * DELAY_MS)
    world.finish_sync()


def test_static_member_joins_without_an_id_first() -> None:
    world = GroupWorld(NO_DELAY)

    a = world.new("a", requires_known_id=True, **static("a"))

    assert world.error(a) == ErrorCode.NONE


def test_static_member_that_restarts_keeps_its_assignment_without_a_rebalance() -> None:
    world = GroupWorld()
    stable_static_pair(world)

    b = world.new("b2", **static("b"))

    assert world.state == "Stable"
    assert world.joined(b).generation == 1
    assert world.joined(b).member_id == "b2"
    assert world.joined(b).members == ()
    assert world.synced(world.sync("b2", instance_id="instance b")).assignment == b"b"
    assert world.durable is not None
    assert {member.member_id for member in world.durable.members} == {"a", "b2"}


@pytest.mark.parametrize("can_skip", [True, False])
def test_static_leader_that_restarts_does_not_assign_again(can_skip: bool) -> None:
    """From v9 on the answer says to skip; an older client must not see that it leads."""
    world = GroupWorld()
    stable_static_pair(world)

    a = world.new("a2", can_skip_assignment=can_skip, **static("a"))

    assert world.group.roster.leader_id == "a2"
    assert world.joined(a).skip_assignment is can_skip
    assert world.joined(a).leader == ("a2" if can_skip else "a")
    assert len(world.joined(a).members) == (2 if can_skip else 0)


def test_old_id_of_a_static_member_is_fenced_everywhere() -> None:
    world = GroupWorld()
    stable_static_pair(world)
    world.new("b2", **static("b"))

    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat("b", instance_id="instance b") == fenced
    assert world.commit("b", instance_id="instance b") == fenced
    assert world.error(world.sync("b", instance_id="instance b")) == fenced
    assert world.error(world.join("b", **static("b"))) == fenced


def test_static_member_that_restarts_fences_a_join_of_its_old_id() -> None:
    world = GroupWorld()
    old = world.new("a", **static("a"))

    new = world.new("a2", **static("a"))
    world.advance(2 * DELAY_MS)

    assert world.error(old) == ErrorCode.FENCED_INSTANCE_ID
    assert world.joined(new).leader == "a2"


def test_static_member_that_restarts_before_the_assignment_rebalances() -> None:
    """The leader may be assigning to the old id."""
    world = GroupWorld()
    world.new("a", **static("a"))
    world.new("b", **static("b"))
    world.advance(2 * DELAY_MS)
    old_sync = world.sync("b", instance_id="instance b")

    b = world.new("b2", **static("b"))

    assert world.error(old_sync) == ErrorCode.FENCED_INSTANCE_ID
    assert world.is_waiting(b)
    assert world.state == "PreparingRebalance"


def test_static_member_that_restarts_with_another_preferred_protocol_rebalances() -> None:
    world = GroupWorld()
    both = (("range", b""), ("coop", b""))
    world.new("a", protocols=both, **static("a"))
    world.advance(2 * DELAY_MS)
    world.finish_sync()

    a = world.new("a2", protocols=tuple(reversed(both)), **static("a"))

    assert world.joined(a).generation == 2
    assert world.joined(a).protocol_name == "coop"


def test_absent_static_member_is_kept_when_the_join_times_out() -> None:
    world = GroupWorld()
    world.new("a", **static("a"), session_timeout_ms=300_000)
    b = world.new("b")
    world.advance(2 * DELAY_MS)
    world.finish_sync()

    b = world.join("b", protocols=(("range", b"changed"),))
    world.advance(REBALANCE_MS)

    assert set(world.group.roster.members) == {"a", "b"}
    assert world.joined(b).leader == "b"


def test_group_of_absent_static_members_waits_until_one_rejoins() -> None:
    world = GroupWorld()
    world.new("a", **static("a"), session_timeout_ms=300_000)
    world.new("b")
    world.advance(2 * DELAY_MS)
    world.finish_sync()
    world.join("b", protocols=(("range", b"changed"),))
    world.leave("b")
    world.advance(REBALANCE_MS)
    assert world.state == "PreparingRebalance"

    a = world.new("a2", **static("a"))

    assert world.joined(a).leader == "a2"


def test_replacement_that_cannot_be_stored_is_rolled_back() -> None:
    world = GroupWorld()
    stable_static_pair(world)
    world.stores_at_once = False

    b = world.new("b2", **static("b"))
    assert world.is_waiting(b)
    world.store(failed=True)

    assert world.error(b) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(world.group.roster.members) == {"a", "b"}
    assert world.heartbeat("b", instance_id="instance b") == ErrorCode.NONE


def test_replacement_overtaken_by_a_rebalance_joins_it() -> None:
    world = GroupWorld()
    stable_static_pair(world)
    world.stores_at_once = False
    b = world.new("b2", **static("b"))

    a = world.join("a", **static("a"))
    world.store()

    assert world.joined(b).generation == 1
    assert world.heartbeat("b2", instance_id="instance b") == ErrorCode.REBALANCE_IN_PROGRESS
    b = world.join("b2", **static("b"))
    assert world.joined(a).generation == world.joined(b).generation == 2


def test_replacement_that_a_rebalance_has_overtaken_and_that_fails_asks_again() -> None:
    world = GroupWorld()
    stable_static_pair(world)
    world.stores_at_once = False
    b = world.new("b2", **static("b"))

    a = world.join("a", **static("a"))
    world.store(failed=True)

    assert world.error(b) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    b = world.new("b3", **static("b"))
    assert world.joined(a).generation == world.joined(b).generation == 2
    assert set(world.group.roster.members) == {"a", "b3"}


def test_second_replacement_that_fails_leaves_the_first_one() -> None:
    world = GroupWorld()
    stable_static_pair(world)
    world.new("b2", **static("b"))
    world.stores_at_once = False

    world.new("b3", session_timeout_ms=30_000, **static("b"))
    world.store(failed=True)

    assert set(world.group.roster.members) == {"a", "b2"}
    assert world.group.roster.members["b2"].session_timeout_ms == SESSION_MS
