"""Writes of a group that end late, fail, or belong to an old generation."""

from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.group_words import DELAY_MS, GroupWorld


def test_assignment_that_cannot_be_stored_makes_members_rejoin() -> None:
    world = GroupWorld(stores_at_once=False)
    world.completing("a", "b")
    b = world.sync("b")
    a = world.sync("a", assignments={"a": b"1", "b": b"2"})

    world.store(failed=True)

    assert world.error(a) == world.error(b) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state == "PreparingRebalance"
    joins = [world.join("a"), world.join("b")]
    assert [world.joined(waiter).generation for waiter in joins] == [2, 2]


def test_assignment_overtaken_by_a_rebalance_changes_nothing() -> None:
    world = GroupWorld(stores_at_once=False)
    world.completing("a")
    a = world.sync("a", assignments={"a": b"old"})
    world.new("b")
    assert world.error(a) == ErrorCode.REBALANCE_IN_PROGRESS

    world.store()
    assert world.state == "PreparingRebalance"
    world.join("a")
    world.store()

    assert world.state == "CompletingRebalance"
    assert {member.assignment for member in world.group.roster.members.values()} == {b""}


def test_late_failure_of_an_old_generation_changes_nothing() -> None:
    world = GroupWorld(stores_at_once=False)
    world.completing("a")
    world.sync("a", assignments={"a": b"old"})
    world.new("b")
    world.join("a")
    assert world.group.generation == 2
    late = world.unstored.pop()

    world.unstored = [late]
    world.store(failed=True)

    assert world.state == "CompletingRebalance"


def test_empty_generation_that_cannot_be_stored_does_no_harm() -> None:
    world = GroupWorld()
    world.stable("a")
    world.stores_at_once = False

    world.leave("a")
    world.store(failed=True)

    assert world.state == "Empty"
    b = world.new("b")
    world.advance(2 * DELAY_MS)
    assert world.joined(b).generation == 3


def test_stored_replacement_answers_the_join_of_the_new_id() -> None:
    world = GroupWorld(stores_at_once=False)
    world.completing("a", instance_id="i")
    world.sync("a", assignments={"a": b"1"})
    world.store()

    again = world.new("a2", instance_id="i")
    assert world.is_waiting(again)
    world.store()

    assert world.joined(again).member_id == "a2"
    assert world.group.roster.waiting_join_count == 0


def test_replacement_whose_client_disconnected_still_counts() -> None:
    world = GroupWorld(stores_at_once=False)
    world.completing("a", instance_id="i")
    world.sync("a", assignments={"a": b"1"})
    world.store()
    again = world.new("a2", instance_id="i")

    world.abandon(again)
    world.store()

    assert world.is_waiting(again)
    assert world.heartbeat("a2", instance_id="i") == ErrorCode.NONE


def test_generation_that_became_durable_after_a_fault_replaces_the_one_before() -> None:
    """A group that was made again of its durable record did not know the write under way."""
    world = GroupWorld()
    world.stable("a", "b")
    again = world.restart()
    waiting = again.join("a", protocols=(("range", b"changed"),))
    world.leave("b")
    world.join("a")
    world.sync("a", assignments={"a": b"all"})
    assert world.durable is not None

    again.perform(again.replay(world.durable))

    assert (again.state, again.group.generation) == ("Stable", 2)
    assert again.error(waiting) == ErrorCode.UNKNOWN_MEMBER_ID
    assert {key.subject for key in again.timers} == {"a"}
    assert again.synced(again.sync("a")).assignment == b"all"
