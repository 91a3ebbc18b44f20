"""The roster: one holder per partition, one member per static id."""

from dataclasses import replace

import pytest

from kledger.gateway.coordinator.consumer.consumer_member_state import ConsumerRoster
from tests.gateway.coordinator.consumer.test_consumer_member_state import MEMBER, parts

(PARTITION,) = parts("0")


def test_roster_finds_the_holders_of_partitions_and_ids() -> None:
    roster = ConsumerRoster([replace(MEMBER, revoking=parts("2"), instance_id="i")])
    free = [number for number in "0123" for one in parts(number) if roster.is_free(one)]
    assert ["3"] == free
    assert (1, True, False) == (len(roster), "m" in roster, "x" in roster)
    holder = roster.holder_of("i")
    assert holder is roster.get("m") is roster.member("m") is next(iter(roster))
    assert roster.holder_of("j") is None
    without = roster.without("m")
    assert all(without.is_free(one) for one in parts("012"))
    assert without.holder_of("i") is None
    assert "m" in roster


def test_new_value_frees_the_partitions_it_lost() -> None:
    roster = ConsumerRoster([MEMBER])
    assert roster.with_members(replace(MEMBER)) is roster
    after = roster.with_members(replace(MEMBER, assigned=parts("1")))
    assert (False, True) == tuple(each.is_free(PARTITION) for each in (roster, after))
    assert roster != after


def test_partition_moves_between_members_that_change_together() -> None:
    other = replace(MEMBER, member_id="other", assigned=parts("23"))
    roster = ConsumerRoster([MEMBER, other]).with_members(
        replace(MEMBER, assigned=parts("23")), replace(other, assigned=parts("01"))
    )
    assert [parts("23"), parts("01")] == [each.assigned for each in roster]
    assert not any(roster.is_free(one) for one in parts("0123"))


def test_partition_never_has_two_holders() -> None:
    roster = ConsumerRoster([MEMBER])
    with pytest.raises(AssertionError):
        roster.with_members(replace(MEMBER, member_id="other", assigned=parts("1")))


def test_static_id_never_has_two_members() -> None:
    roster = ConsumerRoster([replace(MEMBER, instance_id="i")])
    with pytest.raises(AssertionError):
        roster.with_members(
            replace(MEMBER, member_id="other", instance_id="i", assigned=parts("5"))
        )


def test_roster_returns_what_has_changed() -> None:
    other = replace(MEMBER, member_id="other", assigned=parts("23"))
    roster = ConsumerRoster([MEMBER, other])
    moved = replace(other, epoch=9)
    assert [moved] == roster.with_members(moved).changed_since(roster)
    assert [] == roster.without("m").changed_since(roster)
    assert [MEMBER] == roster.changed_since(roster.without("m"))
