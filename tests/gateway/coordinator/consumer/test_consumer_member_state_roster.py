"""The roster: one holder per partition, one member per static id."""

from dataclasses import replace

import pytest

from kledger.gateway.coordinator.consumer.consumer_member_state import ConsumerRoster
from tests.gateway.coordinator.consumer.test_consumer_member_state import MEMBER, parts


def test_roster_finds_the_holders_of_partitions_and_ids() -> None:
    roster = ConsumerRoster([replace(MEMBER, revoking=parts("2"), instance_id="i")])
    free = [number for number in "0123" for one in parts(number) if roster.is_free(one)]
    assert ["3"] == free
    assert (1, True, False) == (len(roster), "m" in roster, "x" in roster)
    holder = roster.holder_of("i")
    assert holder is roster.get("m") is roster.member("m") is next(iter(roster))
    assert roster.holder_of("j") is None
    roster.remove("m")
    assert all(roster.is_free(one) for one in parts("012"))
    assert roster.holder_of("i") is None


def test_new_value_frees_the_partitions_it_lost() -> None:
    roster = ConsumerRoster([MEMBER])
    assert not roster.put(replace(MEMBER))
    assert roster.put(replace(MEMBER, assigned=parts("1")))
    assert all(roster.is_free(one) for one in parts("0"))


def test_partition_never_has_two_holders() -> None:
    roster = ConsumerRoster([MEMBER])
    with pytest.raises(AssertionError):
        roster.put(replace(MEMBER, member_id="other", assigned=parts("1")))


def test_static_id_never_has_two_members() -> None:
    roster = ConsumerRoster([replace(MEMBER, instance_id="i")])
    with pytest.raises(AssertionError):
        roster.put(replace(MEMBER, member_id="other", instance_id="i", assigned=parts("5")))
