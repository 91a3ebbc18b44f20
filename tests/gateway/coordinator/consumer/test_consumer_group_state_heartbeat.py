"""Heartbeats: which are accepted, their answers, how partitions move between members."""

from typing import Any

import pytest

from kledger.gateway.coordinator.consumer_messages import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kledger.gateway.coordinator.group_config import ConsumerTimes, GroupConfig
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.consumer_words import (
    NOTHING,
    REBALANCE_MS,
    CatalogOfTest,
    ConsumerWorld,
    command,
    settle,
)


def test_row_106_first_heartbeat_assigns_and_the_next_repeats_nothing() -> None:
    world = ConsumerWorld()
    joined = world.join("a")
    assert (1, world.catalog.parts("t")) == (joined.epoch, joined.assignment)
    assert 5_000 == joined.heartbeat_interval_ms
    assert world.heartbeat("a", 1).assignment is None
    full = {"rebalance_timeout_ms": 1, "topic_names": ("t",), "owned": joined.assignment}
    assert world.heartbeat("a", 1, **full).assignment == joined.assignment


def test_own_times_of_a_group_hold_from_the_next_heartbeat_on() -> None:
    world = ConsumerWorld()
    assert 5_000 == world.join("a").heartbeat_interval_ms
    for session_ms, interval_ms in ((20_000, 7_000), (60_000, 8_000)):
        world.config.own_times["g"] = ConsumerTimes(session_ms, interval_ms)
        answer = world.heartbeat("a", 1)
        assert interval_ms == answer.heartbeat_interval_ms
        world.advance(session_ms - 1)
        assert "a" in world.group.members
    world.advance(1)
    assert "a" not in world.group.members


def test_own_times_of_a_group_hold_after_a_restart() -> None:
    world = ConsumerWorld()
    world.join("a")
    world.config.own_times["g"] = ConsumerTimes(20_000, 7_000)
    world.restart()
    world.advance(19_999)
    assert "a" in world.group.members
    world.advance(1)
    assert "a" not in world.group.members


def test_row_106_partitions_are_revoked_first_and_assigned_after_confirmation() -> None:
    world = ConsumerWorld()
    parts = world.catalog.parts
    world.join("a")
    assert (2, NOTHING) == (world.join("b").epoch, world.group.members.member("b").assigned)
    answer = world.heartbeat("a", 1)
    assert (1, parts("t", 0, 1)) == (answer.epoch, answer.assignment)
    assert world.heartbeat("b", 2).assignment is None
    assert world.heartbeat("a", 1, owned=parts("t", 0, 1, 3)).epoch == 1
    assert world.heartbeat("b", 2).assignment is None
    assert world.heartbeat("a", 1).epoch == 1, "silence confirms nothing"
    confirmed = world.heartbeat("a", 1, owned=parts("t", 0, 1))
    assert (2, None) == (confirmed.epoch, confirmed.assignment)
    assert parts("t", 2, 3) == world.heartbeat("b", 2).assignment
    assert "Stable" == world.group.state


def test_row_106_member_that_leaves_frees_its_partitions() -> None:
    world = ConsumerWorld()
    a, b = world.client("a"), world.client("b")
    settle(a, b)
    left = world.heartbeat("a", LEAVE_EPOCH)
    assert (ErrorCode.NONE, LEAVE_EPOCH) == (left.error, left.epoch)
    settle(b)
    assert world.catalog.parts("t") == b.owned
    assert ErrorCode.UNKNOWN_MEMBER_ID == world.heartbeat("a", LEAVE_EPOCH).error


@pytest.mark.parametrize(
    ("member_id", "epoch", "said", "expected"),
    [
        ("a", 2, {}, ErrorCode.NONE),
        ("a", 3, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, {"owned": (0, 1)}, ErrorCode.NONE),
        ("a", 1, {"owned": (0, 1, 2)}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("x", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, {"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, {"topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_row_106_epochs_and_ids_are_checked(
    member_id: str, epoch: int, said: dict[str, Any], expected: ErrorCode
) -> None:
    world = ConsumerWorld()
    a, b = world.client("a"), world.client("b")
    settle(a, b)
    before = world.group.describe()
    if "owned" in said:
        said = {"owned": world.catalog.parts("t", *said["owned"])}
    result = world.heartbeat(member_id, epoch, **said)
    assert expected == result.error
    assert before == world.group.describe()


def test_join_after_fencing_answers_the_whole_assignment() -> None:
    world = ConsumerWorld()
    world.join("a")
    assert ErrorCode.FENCED_MEMBER_EPOCH == world.heartbeat("a", 9).error
    again = world.join("a")
    assert (1, world.catalog.parts("t")) == (again.epoch, again.assignment)


def test_full_group_rejects_new_members() -> None:
    world = ConsumerWorld(config=GroupConfig(consumer_max_size=1))
    world.join("a")
    assert ErrorCode.GROUP_MAX_SIZE_REACHED == world.join("b").error
    assert ErrorCode.NONE == world.join("a").error


# Static members.


def test_static_member_rejoins_with_its_partitions_without_a_new_epoch() -> None:
    world = ConsumerWorld()
    a, b = world.client("a", instance_id="i"), world.client("b")
    settle(a, b)
    epoch = world.group.record.epoch
    left = world.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    assert (ErrorCode.NONE, STATIC_LEAVE_EPOCH) == (left.error, left.epoch)
    settle(b)
    assert a.owned.isdisjoint(b.owned), "its partitions wait for it"
    again = world.join("c", instance_id="i")
    assert (epoch, a.owned) == (again.epoch, again.assignment)
    assert epoch == world.group.record.epoch
    late = world.heartbeat("a", a.epoch, instance_id="i")
    assert ErrorCode.FENCED_INSTANCE_ID == late.error


def test_static_member_that_rejoins_with_another_subscription_gets_another_share() -> None:
    world = ConsumerWorld(CatalogOfTest(t=2, u=2))
    a = world.client("a", instance_id="i")
    settle(a)
    world.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    again = world.join("c", "u", instance_id="i")
    assert (2, world.catalog.parts("u")) == (again.epoch, again.assignment)


def test_instance_id_in_use_is_not_released() -> None:
    world = ConsumerWorld()
    world.join("a", instance_id="i")
    assert ErrorCode.UNRELEASED_INSTANCE_ID == world.join("b", instance_id="i").error
    assert ErrorCode.UNRELEASED_INSTANCE_ID == world.join("a", instance_id="i").error
    assert ErrorCode.FENCED_INSTANCE_ID == world.heartbeat("b", 1, instance_id="i").error
    assert ErrorCode.FENCED_INSTANCE_ID == world.heartbeat("b", -2, instance_id="i").error
    assert ErrorCode.UNKNOWN_MEMBER_ID == world.heartbeat("a", -1, instance_id="j").error


def test_static_member_that_stays_away_is_removed_with_its_session() -> None:
    world = ConsumerWorld()
    a, b = world.client("a", instance_id="i"), world.client("b")
    settle(a, b)
    world.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    for _ in range(6):
        world.advance(10_000)
        b.heartbeat()
    assert world.catalog.parts("t") == b.owned
    assert 1 == len(world.group.members)


def test_static_member_that_leaves_while_revoking_has_no_rebalance_timeout() -> None:
    """Its rebalance timeout stops while it is away."""
    world = ConsumerWorld()
    world.join("a", instance_id="i", rebalance_timeout_ms=1_000)
    world.join("b")
    world.heartbeat("a", 1, instance_id="i")
    world.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    world.advance(2_000)
    assert "a" in world.group.members


# Time.


def test_silent_member_is_removed_and_its_partitions_are_reassigned() -> None:
    world = ConsumerWorld()
    a, b = world.client("a"), world.client("b")
    settle(a, b)
    for _ in range(6):
        world.advance(10_000)
        b.heartbeat()
    assert world.catalog.parts("t") == b.owned
    assert ErrorCode.UNKNOWN_MEMBER_ID == world.ask(command("a", a.epoch)).error


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    """It sends heartbeats, but keeps partitions that another member waits for."""
    world = ConsumerWorld()
    world.join("a")
    b = world.client("b")
    settle(b)
    for _ in range(REBALANCE_MS // 10_000 - 1):
        world.heartbeat("a", 1)
        b.heartbeat()
        world.advance(10_000)
    assert ErrorCode.NONE == world.heartbeat("a", 1).error
    world.advance(10_000)
    assert ErrorCode.UNKNOWN_MEMBER_ID == world.heartbeat("a", 1).error
    settle(b)
    assert world.catalog.parts("t") == b.owned


def test_member_that_revokes_in_time_stays() -> None:
    world = ConsumerWorld()
    a, b = world.client("a"), world.client("b")
    settle(a)
    settle(a, b)
    for _ in range(8):
        world.advance(10_000)
        a.heartbeat()
        b.heartbeat()
    assert 2 == len(world.group.members)
