"""The roster: leaders, votes and counts."""

import pytest

from kledger.gateway.coordinator.classic.classic_member_state import (
    ClassicMember,
    ClassicRoster,
    member_from_record,
    record_of,
)
from kledger.gateway.coordinator.group_messages import Protocols


def member(name: str, *protocols: str, instance_id: str | None = None) -> ClassicMember:
    return ClassicMember(
        member_id=name,
        instance_id=instance_id,
        client_id="client",
        client_host="/10.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=tuple((protocol, b"") for protocol in protocols),
    )


def roster(*members: ClassicMember) -> ClassicRoster:
    made = ClassicRoster()
    for each in members:
        made.add(each)
    return made


@pytest.mark.parametrize(
    ("preferences", "expected"),
    [
        (["a"], "a"),
        (["a b", "b"], "b"),
        (["a b", "b a", "b a"], "b"),
        (["a b", "b a"], "a"),
        (["b a", "a b"], "b"),
        (["x a b", "b y a", "b a z"], "b"),
    ],
)
def test_protocol_that_all_support_and_most_prefer_is_chosen(
    preferences: list[str], expected: str
) -> None:
    made = roster(*(member(f"m{i}", *each.split()) for i, each in enumerate(preferences)))

    assert expected == made.choose_protocol()


def test_support_follows_the_protocols_of_members() -> None:
    a, b = member("a", "x", "y"), member("b", "y", "z")
    made = roster(a, b)
    assert [made.supports_any([name]) for name in "xyz"] == [False, True, False]

    made.set_protocols(a, (("z", b""),))
    assert [made.supports_any([name]) for name in "xyz"] == [False, False, True]

    made.remove("a")
    assert [made.supports_any([name]) for name in "xyz"] == [False, True, True]


def test_protocol_named_twice_counts_once() -> None:
    made = roster(member("a", "x", "x"), member("b", "y"))

    assert not made.supports_any(["x"])


def test_oldest_member_leads_when_the_leader_leaves() -> None:
    made = roster(member("a", "x"), member("b", "x"), member("c", "x"))
    assert made.leader_id == "a"
    made.remove("b")
    made.remove("a")
    assert made.leader_id == "c"
    made.remove("c")
    assert made.leader_id is None


def test_joined_member_is_elected_over_an_absent_leader() -> None:
    a, b = member("a", "x"), member("b", "x")
    made = roster(a, b)
    assert not made.elect_joined_leader()

    made.set_join_waiter(b, 1)

    assert made.elect_joined_leader()
    assert made.leader_id == "b"
    assert made.absent() == [a]


def test_join_waiters_are_counted_once() -> None:
    a = member("a", "x")
    made = roster(a)
    assert not made.has_all_joined

    assert made.set_join_waiter(a, 1) is None
    assert made.set_join_waiter(a, 2) == 1
    assert (made.waiting_join_count, made.has_all_joined) == (1, True)
    made.pending.add("b")
    assert not made.has_all_joined
    made.remove("a")
    assert made.waiting_join_count == 0


def test_renamed_static_member_keeps_leading_and_its_pending_sync() -> None:
    a = member("a", "x", instance_id="i")
    made = roster(a)
    made.pending_sync.add("a")

    made.rename(a, "a2")

    assert made.leader_id == "a2"
    assert made.static_ids == {"i": "a2"}
    assert made.pending_sync == {"a2"}
    assert "a" not in made
    assert made.supports_any(["x"])


def test_metadata_is_that_of_the_protocol() -> None:
    protocols: Protocols = (("x", b"1"), ("y", b"2"))
    each = member("a")
    each.protocols = protocols

    assert [each.metadata(name) for name in ("x", "y", "z", None)] == [b"1", b"2", b"", b""]


def test_member_round_trips_through_its_record() -> None:
    each = member("a", "x", instance_id="i")

    assert member_from_record(record_of(each, b"mine")).assignment == b"mine"
    assert member_from_record(record_of(each, b"")) == each
