"""SyncGroup against the pure state: one assignment per generation, from its leader."""

import pytest

from kledger.gateway.coordinator.classic.classic_group_state import SYNC_TIMER
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import SyncResult
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.group_words import GroupWorld


def test_members_left_out_get_an_empty_assignment() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    b = world.sync("b")

    a = world.sync("a", assignments={"a": b"all", "stranger": b"none"})

    assert world.synced(a).assignment == b"all"
    assert world.synced(b) == SyncResult(
        protocol_type="consumer", protocol_name="range", assignment=b""
    )


def test_assignment_from_a_follower_is_ignored() -> None:
    world = GroupWorld()
    world.completing("a", "b")

    b = world.sync("b", assignments={"b": b"stolen"})
    assert world.is_waiting(b)
    world.sync("a", assignments={"b": b"given"})

    assert world.synced(b).assignment == b"given"


def test_assignment_counts_when_it_is_durable() -> None:
    world = GroupWorld(stores_at_once=False)
    world.completing("a")

    a = world.sync("a", assignments={"a": b"1"})
    assert world.is_waiting(a)
    assert world.state == "CompletingRebalance"
    world.store()

    assert world.synced(a).assignment == b"1"
    assert world.state == "Stable"


def test_leader_that_repeats_its_sync_cannot_change_the_assignment() -> None:
    """The first one is being written; a second one must not differ from it in memory."""
    world = GroupWorld(stores_at_once=False)
    world.completing("a")
    first = world.sync("a", assignments={"a": b"1"})

    second = world.sync("a", assignments={"a": b"2"})
    world.store()

    assert world.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.synced(second).assignment == b"1"
    assert world.durable is not None
    assert world.durable.members[0].assignment == b"1"


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "expected"),
    [
        (None, None, ErrorCode.NONE),
        ("consumer", "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "coop", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_protocol_must_be_that_of_the_generation(
    protocol_type: str | None, protocol_name: str | None, expected: ErrorCode
) -> None:
    world = GroupWorld()
    world.stable("a")

    a = world.sync("a", protocol_type=protocol_type, protocol_name=protocol_name)

    assert world.error(a) == expected


def test_sync_timer_is_cancelled_when_all_members_have_synced() -> None:
    world = GroupWorld()
    world.completing("a", "b")
    world.sync("a")
    assert SYNC_TIMER in world.timers

    world.sync("b")

    assert SYNC_TIMER not in world.timers


def test_assignment_too_large_to_store_is_an_error_and_a_new_generation() -> None:
    world = GroupWorld(GroupConfig(group_record_bytes_max=10_000))
    world.completing("a")

    a = world.sync("a", assignments={"a": bytes(10_000)})

    assert world.error(a) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.state == "PreparingRebalance"
    assert world.durable is None
