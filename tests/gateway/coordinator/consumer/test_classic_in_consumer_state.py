"""Members of the classic protocol beside those of the consumer protocol."""

from dataclasses import replace
from typing import Any

import pytest

from kledger.gateway.coordinator.consumer import classic_in_consumer_state
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import (
    JoinResult,
    LeavingMember,
    RequestingMember,
    SyncResult,
)
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.consumer_words import (
    NOTHING,
    ConsumerWorld,
    assignment_of,
    subscribed,
)
from tests.gateway.coordinator.group_words import join_command, sync_command


class MixedWorld(ConsumerWorld):
    """A group of the consumer protocol that classic members join."""

    def classic_join(self, member_id: str = "c", owned: str = "", **changes: Any) -> JoinResult:
        waiter = self.next_waiter()
        asked = join_command(
            member_id, protocols=(("range", subscribed("t", owned=owned)),), waiter=waiter
        )
        asked = replace(asked, **changes)
        group = self.group
        self.perform(classic_in_consumer_state.join(group, asked, self.catalog, self.now_ms))
        result = self.answers[waiter]
        assert isinstance(result, JoinResult)
        return result

    def sync(self, member_id: str, generation: int, instance_id: str | None = None) -> SyncResult:
        waiter = self.next_waiter()
        asked = sync_command(member_id, generation, instance_id=instance_id, waiter=waiter)
        group = self.group
        self.perform(classic_in_consumer_state.sync(group, asked, self.catalog, self.now_ms))
        result = self.answers[waiter]
        assert isinstance(result, SyncResult)
        return result

    def classic_heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        sender = RequestingMember(member_id, generation, instance_id)
        error, effects = classic_in_consumer_state.heartbeat(self.group, sender, self.now_ms)
        self.perform(effects)
        return error

    def leave(self, *leaving: LeavingMember) -> list[ErrorCode]:
        waiter = self.next_waiter()
        effects = classic_in_consumer_state.leave(self.group, leaving, waiter, self.now_ms)
        self.perform(effects)
        result = self.answers[waiter]
        assert isinstance(result, tuple)
        error, errors = result
        assert error is ErrorCode.NONE
        return list(errors)


def test_classic_member_joins_without_a_leader_and_syncs_its_partitions() -> None:
    world = MixedWorld()
    world.join("a")
    joined = world.classic_join()
    assert ("c", 2, "consumer", "range", "", ()) == (
        joined.member_id,
        joined.generation,
        joined.protocol_type,
        joined.protocol_name,
        joined.leader,
        joined.members,
    )
    assert assignment_of("t", "") == world.sync("c", 2).assignment
    assert ErrorCode.NONE == world.classic_heartbeat("c", 2), "nothing is free for it yet"


def test_classic_member_must_rejoin_when_a_partition_is_free_for_it() -> None:
    world = MixedWorld()
    world.join("a")
    world.classic_join()
    world.heartbeat("a", 1)
    world.heartbeat("a", 1, owned=world.catalog.parts("t", 0, 1))
    assert ErrorCode.REBALANCE_IN_PROGRESS == world.classic_heartbeat("c", 2)
    assert 2 == world.classic_join().generation
    assert assignment_of("t", "23") == world.sync("c", 2).assignment
    assert ErrorCode.NONE == world.classic_heartbeat("c", 2)


def test_classic_member_revokes_by_joining_without_the_partitions() -> None:
    world = MixedWorld()
    world.classic_join()
    assert 1 == world.classic_join(owned="0123").generation
    b = world.client("b")
    b.heartbeat()
    assert ErrorCode.REBALANCE_IN_PROGRESS == world.classic_heartbeat("c", 1)
    assert 1 == world.classic_join(owned="0123").generation
    assert assignment_of("t", "01") == world.sync("c", 1).assignment
    assert NOTHING == b.owned
    assert 2 == world.classic_join(owned="01").generation
    b.heartbeat()
    assert world.catalog.parts("t", 2, 3) == b.owned


def test_eager_member_owns_no_partitions_when_it_rejoins() -> None:
    world = MixedWorld()
    world.classic_join()
    b = world.client("b")
    b.heartbeat()
    assert 2 == world.classic_join().generation
    b.heartbeat()
    assert world.catalog.parts("t", 2, 3) == b.owned


def test_id_is_assigned_first_where_the_version_requires_it() -> None:
    world = MixedWorld()
    world.join("a")
    reserved = world.classic_join("", new_member_id="n", requires_known_id=True)
    assert (ErrorCode.MEMBER_ID_REQUIRED, "n") == (reserved.error, reserved.member_id)
    assert "n" not in world.group.members
    assert ErrorCode.NONE == world.classic_join("", new_member_id="n").error


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b"?"),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "third"}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ({"member_id": "x", "instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_rejected_join_changes_nothing(changes: dict[str, Any], expected: ErrorCode) -> None:
    world = MixedWorld(config=GroupConfig(consumer_max_size=2))
    world.join("a")
    world.classic_join(instance_id="i")
    before = world.group.describe()
    assert expected == world.classic_join(**{"member_id": "c", **changes}).error
    assert before == world.group.describe()


def test_generations_and_ids_are_checked() -> None:
    world = MixedWorld()
    world.join("a")
    world.classic_join(instance_id="i")
    for ask in (lambda *sender: world.sync(*sender).error, world.classic_heartbeat):
        assert ErrorCode.ILLEGAL_GENERATION == ask("c", 1)
        assert ErrorCode.UNKNOWN_MEMBER_ID == ask("x", 2)
        assert ErrorCode.UNKNOWN_MEMBER_ID == ask("a", 1), "it speaks the other protocol"
        assert ErrorCode.FENCED_INSTANCE_ID == ask("x", 2, "i")
        assert ErrorCode.NONE == ask("c", 2, "i")


def test_static_classic_member_rejoins_under_a_new_id() -> None:
    world = MixedWorld()
    world.classic_join(instance_id="i")
    again = world.classic_join("", new_member_id="d", instance_id="i")
    assert ("d", 1) == (again.member_id, again.generation)
    assert assignment_of("t", "0123") == world.sync("d", 1).assignment
    assert ErrorCode.FENCED_INSTANCE_ID == world.classic_heartbeat("c", 1, "i")


def test_static_member_changes_its_protocol_and_keeps_its_partitions() -> None:
    """A static classic client sends no LeaveGroup; its successor is admitted all the same."""
    world = MixedWorld()
    world.classic_join(instance_id="i")
    new = world.join("n", instance_id="i")
    assert (1, world.catalog.parts("t")) == (new.epoch, new.assignment)
    assert not world.group.is_all_classic


def test_members_leave() -> None:
    world = MixedWorld()
    world.join("a", instance_id="j")
    world.classic_join(instance_id="i")
    world.classic_join("e")
    unknown, fenced = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
    assert [fenced, unknown] == world.leave(LeavingMember("e", "j"), LeavingMember("x"))
    assert [fenced, unknown] == world.leave(LeavingMember("e", "i"), LeavingMember("", "z"))
    assert [ErrorCode.NONE] * 3 == world.leave(
        LeavingMember("e"), LeavingMember("", "i"), LeavingMember("", "j")
    )
    assert world.group.is_empty


def test_members_of_the_consumer_protocol_are_removed_by_their_ids() -> None:
    """An administrator removes all members with the ids of the group's description."""
    world = MixedWorld()
    world.join("a")
    world.join("b", instance_id="i")
    world.join("c", instance_id="j")
    leaving = LeavingMember("a"), LeavingMember("b"), LeavingMember("c", "j")
    assert [ErrorCode.NONE] * 3 == world.leave(*leaving)
    assert world.group.is_empty


def test_classic_member_has_its_own_session_timeout() -> None:
    world = MixedWorld()
    world.join("a")
    world.classic_join(session_timeout_ms=10_000)
    world.advance(9_000)
    assert ErrorCode.NONE == world.classic_heartbeat("c", 2)
    world.advance(9_999)
    assert "c" in world.group.members
    world.advance(1)
    assert "c" not in world.group.members


def test_commit_of_a_classic_member_is_checked_by_its_generation() -> None:
    world = MixedWorld()
    world.join("a")
    world.classic_join()
    assert ErrorCode.NONE == world.commit("c", 2, uses_member_epoch=False)
    assert ErrorCode.ILLEGAL_GENERATION == world.commit("c", 1)


def test_failed_write_makes_classic_members_retry() -> None:
    world = MixedWorld(stores_at_once=False)
    asked = join_command("c", protocols=(("range", subscribed("t")),), waiter=1)
    world.perform(classic_in_consumer_state.join(world.group, asked, world.catalog, 0))
    world.store(failed=True)
    assert JoinResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE) == world.answers[1]
    assert world.group.is_empty


def test_member_of_the_consumer_protocol_becomes_classic_by_its_id() -> None:
    """As in Apache Kafka: a JoinGroup with the id of a live member is that member's."""
    world = MixedWorld()
    world.join("a")
    joined = world.classic_join("a")
    member = world.group.members.get("a")
    assert member is not None
    assert (ErrorCode.NONE, member.epoch) == (joined.error, joined.generation)
    assert member.classic is not None
    assert 1 == len(world.group.members)
    assert ErrorCode.NONE == world.sync("a", joined.generation).error
    assert ErrorCode.NONE == world.classic_heartbeat("a", joined.generation)
