"""Upgrade and downgrade of groups, as values."""

import pytest

from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup, MemberSessions
from kledger.gateway.coordinator.consumer.migration_state import downgraded, upgraded
from kledger.gateway.coordinator.effects import Schedule
from kledger.gateway.coordinator.group_messages import Protocols, RequestingMember
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.consumer_words import CatalogOfTest, assignment_of, subscribed
from tests.gateway.coordinator.group_words import GroupWorld

CATALOG = CatalogOfTest(t=4)
PROTOCOLS: Protocols = (("other", b"?"), ("range", subscribed("t")))


def stable_world(protocols: Protocols = PROTOCOLS, **assignments: str) -> GroupWorld:
    world = GroupWorld()
    members = assignments or {"a": "0123"}
    world.stable(*members, protocols=protocols)
    world.group.protocol_name = "range"
    for member_id, numbers in members.items():
        world.group.roster.members[member_id].assignment = assignment_of("t", numbers)
    return world


def upgraded_group(world: GroupWorld) -> ConsumerGroup:
    record = upgraded(world.group, CATALOG)
    assert record is not None
    return ConsumerGroup(record, MemberSessions(), world.group.config)


def test_upgrade_keeps_the_partitions_of_members() -> None:
    world = stable_world(a="01", b="23")
    group = upgraded_group(world)
    assert (world.group.generation, "Stable") == (group.record.epoch, group.state.value)
    a, b = group.members.member("a"), group.members.member("b")
    assert (CATALOG.parts("t", 0, 1), CATALOG.parts("t", 2, 3)) == (a.assigned, b.assigned)
    assert (("t",), a.assigned, world.group.generation) == (a.topic_names, a.target, a.epoch)
    assert a.classic is not None
    assert ["range", "other"] == [name for name, _ in a.classic.protocols]
    assert group.is_all_classic


@pytest.mark.parametrize("protocols", [(("range", b"?"),), (("range", b""),)])
def test_group_with_unreadable_metadata_is_not_upgraded(protocols: Protocols) -> None:
    assert upgraded(stable_world(protocols).group, CATALOG) is None


def test_group_with_an_overlapping_assignment_is_not_upgraded() -> None:
    """A leader may assign what it wants; here a partition has one owner."""
    assert upgraded(stable_world(a="01", b="12").group, CATALOG) is None


def test_group_of_another_type_is_not_upgraded() -> None:
    world = stable_world()
    world.group.protocol_type = "connect"
    assert upgraded(world.group, CATALOG) is None


def test_group_with_an_unreadable_assignment_is_not_upgraded() -> None:
    world = stable_world()
    world.group.roster.members["a"].assignment = b"?"
    assert upgraded(world.group, CATALOG) is None


def test_downgrade_keeps_members_and_rebalances() -> None:
    world = stable_world(a="01", b="23")
    classic, effects = downgraded(upgraded_group(world), CATALOG, 9)
    assert ("PreparingRebalance", world.group.generation, "consumer") == (
        classic.state.value,
        classic.generation,
        classic.protocol_type,
    )
    assert {"a", "b"} == set(classic.roster.members)
    assert assignment_of("t", "23", version=0) == classic.roster.members["b"].assignment
    kinds = {one.key.kind for one in effects if isinstance(one, Schedule)}
    assert {"session", "join"} == kinds


def test_downgrade_allows_commits_before_members_rejoin() -> None:
    group = upgraded_group(stable_world(a="0123"))
    member = group.members.member("a")
    group.bump_epoch()  # the last one of the other protocol has left
    classic, _ = downgraded(group, CATALOG, 9)
    sender = RequestingMember("a", member.epoch)
    assert ErrorCode.NONE == classic.check_commit(sender, 9)
    assert ErrorCode.REBALANCE_IN_PROGRESS == classic.heartbeat(sender, 9)
