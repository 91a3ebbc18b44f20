"""Members and their channels: joining, leaving, dying, growing."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.named_topics import ownership_state
from kledger.named_topics.channel_plan import allocate
from kledger.named_topics.ownership_state import NO_OWNER, ChannelOwnership


def test_join_takes_channels_from_members_and_leaving_gives_them_back() -> None:
    ownership = ChannelOwnership(4, timeout_ms=0)
    ownership.join(1, 0)
    assert [0, 1, 2, 3] == ownership.channels_of(1)
    ownership.join(2, 0)
    assert ([0, 1], [2, 3]) == (ownership.channels_of(1), ownership.channels_of(2))
    assert ownership.leave(1)
    assert [0, 1, 2, 3] == ownership.channels_of(2)
    assert not ownership.leave(1)


def test_channel_that_stays_keeps_its_ownership_and_one_that_moves_gets_a_new_one() -> None:
    ownership = ChannelOwnership(2, timeout_ms=0)
    ownership.join(1, 0)
    before = [ownership.ownership(each) for each in range(2)]
    ownership.join(2, 0)
    assert before[0] == ownership.ownership(0)
    assert before[1] < ownership.ownership(1)


def test_channel_that_comes_back_to_its_former_owner_has_a_new_ownership() -> None:
    """Else elements that it pre-fetched before it lost the channel would be delivered."""
    ownership = ChannelOwnership(1, timeout_ms=10)
    ownership.join(1, 0)
    before = ownership.ownership(0)
    assert [1] == ownership.expire(10)
    ownership.join(1, 11)
    assert before < ownership.ownership(0)


def test_subscriber_that_joins_again_loses_what_it_had() -> None:
    ownership = ChannelOwnership(1, timeout_ms=0)
    ownership.join(1, 0)
    before = ownership.ownership(0)
    ownership.join(1, 0)
    assert before < ownership.ownership(0)


def test_heartbeat_moves_the_deadline() -> None:
    ownership = ChannelOwnership(1, timeout_ms=10)
    ownership.join(1, 0)
    ownership.heartbeat(1, 5)
    ownership.heartbeat(1, 3)  # an older one that was held up
    ownership.heartbeat(2, 5)  # of a stranger
    assert (15, []) == (ownership.next_deadline_ms, ownership.expire(14))
    assert [1] == ownership.expire(15)
    assert ownership.has_timed_out(1)
    assert NO_OWNER == ownership.owner(0)
    assert ownership.next_deadline_ms is None


def test_without_a_timeout_nobody_dies() -> None:
    ownership = ChannelOwnership(1, timeout_ms=0)
    ownership.join(1, 0)
    assert ownership.next_deadline_ms is None
    assert [] == ownership.expire(1 << 60)


def test_remembered_timeouts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership_state, "TIMED_OUT_MAX", 2)
    ownership = ChannelOwnership(1, timeout_ms=1)
    for member in (1, 2, 3):
        ownership.join(member, 0)
    ownership.expire(1)
    assert [False, True, True] == [ownership.has_timed_out(each) for each in (1, 2, 3)]


def test_channels_that_are_added_are_allocated() -> None:
    ownership = ChannelOwnership(1, timeout_ms=0)
    ownership.join(1, 0)
    ownership.join(2, 0)
    assert ownership.grow(3)
    assert ([0, 1], [2]) == (ownership.channels_of(1), ownership.channels_of(2))
    assert not ownership.grow(2)


def test_channel_that_does_not_exist_has_no_owner() -> None:
    ownership = ChannelOwnership(1, timeout_ms=0)
    ownership.join(1, 0)
    assert not ownership.owns(1, 1)
    assert not ownership.owns(1, -1)
    assert not ownership.owns(NO_OWNER, 5)


class OwnershipMachine(RuleBasedStateMachine):
    """Any joins, leaves, timeouts and growth."""

    def __init__(self) -> None:
        super().__init__()
        self.ownership = ChannelOwnership(5, timeout_ms=10)
        self.now_ms = 0
        self.members: dict[int, int] = {}
        self.seen: dict[tuple[int, int], int] = {}

    @rule(member=st.integers(1, 8))
    def join(self, member: int) -> None:
        self.ownership.join(member, self.now_ms)
        self.members[member] = self.now_ms + 10

    @rule(member=st.integers(1, 8))
    def leave(self, member: int) -> None:
        assert (member in self.members) == self.ownership.leave(member)
        self.members.pop(member, None)

    @rule(member=st.integers(1, 8))
    def heartbeat(self, member: int) -> None:
        self.ownership.heartbeat(member, self.now_ms)
        if member in self.members:
            self.members[member] = self.now_ms + 10

    @rule(ms=st.integers(0, 15))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        dead = {each for each, deadline in self.members.items() if deadline <= self.now_ms}
        assert dead == set(self.ownership.expire(self.now_ms))
        for member in dead:
            del self.members[member]

    @rule()
    def grow(self) -> None:
        assert self.ownership.grow(self.ownership.channel_count + 1)

    @invariant()
    def owners_are_those_of_the_plan(self) -> None:
        plan = allocate(self.ownership.channel_count, self.members)
        assert sorted(self.members) == self.ownership.members
        for member, channels in plan.items():
            assert list(channels) == self.ownership.channels_of(member)

    @invariant()
    def ownership_has_one_owner(self) -> None:
        for channel in range(self.ownership.channel_count):
            owner = self.ownership.owner(channel)
            if owner != NO_OWNER:
                key = channel, self.ownership.ownership(channel)
                assert owner == self.seen.setdefault(key, owner)


TestOwnershipMachine = OwnershipMachine.TestCase
TestOwnershipMachine.settings = settings(max_examples=50, stateful_step_count=30)
