"""One member's way to its target: revokes first, receives what is free, epoch by epoch."""

from dataclasses import replace

import pytest

from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ConsumerMember,
    MemberState,
    reconciled,
    updated,
)
from kledger.gateway.coordinator.consumer_messages import Partitions
from tests.gateway.coordinator.consumer_words import NOTHING, CatalogOfTest, command

CATALOG = CatalogOfTest(t=6)


def parts(numbers: str) -> Partitions:
    """Write partitions as digits: `012`."""
    return CATALOG.parts("t", *map(int, numbers)) if numbers else NOTHING


MEMBER = ConsumerMember(
    member_id="m",
    instance_id=None,
    rack_id=None,
    client_id="client",
    client_host="/10.0.0.1",
    rebalance_timeout_ms=60_000,
    epoch=5,
    previous_epoch=4,
    assigned=parts("01"),
    target=parts("01"),
)
STABLE, REVOKING, AWAITING = MemberState


def step(
    member: ConsumerMember, owned: str | None = None, taken: str = "", epoch: int = 7
) -> tuple[int, MemberState, Partitions, Partitions]:
    after = reconciled(
        member,
        target_epoch=epoch,
        owned=None if owned is None else parts(owned),
        is_free=lambda one: one not in parts(taken),
    )
    return after.epoch, after.state, after.assigned, after.revoking


@pytest.mark.parametrize(
    ("before", "owned", "taken", "expected"),
    [
        ({"epoch": 7}, None, "", (7, STABLE, "01", "")),
        ({}, None, "", (7, STABLE, "01", "")),
        ({"target": "0123"}, None, "", (7, STABLE, "0123", "")),
        ({"target": "0123"}, None, "3", (7, AWAITING, "012", "")),
        ({"target": "0123"}, None, "23", (7, AWAITING, "01", "")),
        ({"target": "12"}, None, "", (5, REVOKING, "1", "0")),
        ({"target": "12"}, "01", "", (5, REVOKING, "1", "0")),
        ({"target": "12"}, "1", "", (7, STABLE, "12", "")),
        ({"state": REVOKING, "assigned": "1", "revoking": "0", "target": "12"}, None, "", None),
        ({"state": REVOKING, "assigned": "1", "revoking": "0", "target": "12"}, "01", "", None),
        (
            {"state": REVOKING, "assigned": "1", "revoking": "0", "target": "12"},
            "1",
            "",
            (7, STABLE, "12", ""),
        ),
        (
            {"state": REVOKING, "assigned": "12", "revoking": "0", "target": "1"},
            "12",
            "",
            (6, REVOKING, "1", "2"),
        ),
        (
            {"state": AWAITING, "epoch": 7, "assigned": "01", "target": "0123"},
            None,
            "3",
            (7, AWAITING, "012", ""),
        ),
        (
            {"state": AWAITING, "epoch": 7, "assigned": "012", "target": "0123"},
            None,
            "",
            (7, STABLE, "0123", ""),
        ),
    ],
)
def test_member_moves_one_step(
    before: dict[str, object],
    owned: str | None,
    taken: str,
    expected: tuple[int, MemberState, str, str] | None,
) -> None:
    """`taken` is what others have; None expects that nothing moves."""
    sets = {"assigned", "revoking", "target"}
    changes = {k: parts(str(v)) if k in sets else v for k, v in before.items()}
    member = replace(MEMBER, **changes)  # type: ignore[arg-type]
    if expected is None:
        expected_step = (member.epoch, member.state, member.assigned, member.revoking)
    else:
        expected_step = (*expected[:2], parts(expected[2]), parts(expected[3]))
    assert expected_step == step(member, owned, taken)


def test_previous_epoch_is_kept() -> None:
    after = reconciled(MEMBER, target_epoch=7, owned=None, is_free=lambda _: True)
    assert (7, 5) == (after.epoch, after.previous_epoch)


def test_heartbeat_changes_only_the_fields_it_carries() -> None:
    member = replace(MEMBER, topic_names=("t",), topic_regex="x", server_assignor="range")
    assert member == updated(member, command("m", 5))
    said = command("m", 5, topic_names=("b", "a", "b"), rebalance_timeout_ms=1, rack_id="r")
    after = updated(member, said)
    assert ("a", "b") == after.topic_names
    assert (1, "r", "x", "range") == (
        after.rebalance_timeout_ms,
        after.rack_id,
        after.topic_regex,
        after.server_assignor,
    )
    assert not after.has_same_subscription(member)
    assert after.has_same_subscription(replace(after, rack_id=None, epoch=9))
    assert after.has_same_subscription(replace(after, server_assignor=None)), "waits for a change"


def test_member_holds_the_partitions_it_is_revoking() -> None:
    assert parts("012") == replace(MEMBER, revoking=parts("2")).held
