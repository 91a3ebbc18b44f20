"""What a subscriber holds: rotation, dropping at delivery, generations, putting back."""

from collections.abc import Awaitable, Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.named_topics.model import (
    ChannelAllocation,
    CommitOutcome,
    OwnedChannel,
    SeekOutcome,
)
from kledger.native.channel_position import ChannelPosition
from kledger.native.client.named_topics.element import Element
from kledger.native.client.named_topics.subscriber_state import (
    ReadMark,
    SubscriberState,
)


def allocation(epoch: int, *channels: tuple[int, int], start: int = 0) -> ChannelAllocation:
    """Channels as (number, ownership)."""
    owned = tuple(OwnedChannel(number, ownership, start, 0) for number, ownership in channels)
    return ChannelAllocation("g", 1, epoch, 4, owned, "", "")


def uncommitted(channel: int, position: ChannelPosition) -> Awaitable[CommitOutcome]:
    raise AssertionError("nothing is committed here")


def element(channel: int, generation: int, offset: int) -> Element:
    return Element(channel, generation, offset, 0, b"v", uncommitted)


def accept(state: SubscriberState, channel: int, offsets: Sequence[int]) -> bool:
    generation = state.generations()[channel]
    elements = [element(channel, generation, each) for each in offsets]
    return state.accept(channel, generation, elements, offsets[-1] + 1)


def taken(state: SubscriberState) -> list[tuple[int, int]]:
    found = []
    while (element := state.take()) is not None:
        found.append((element.channel, element.offset))
    return found


def owning(*channels: int) -> SubscriberState:
    state = SubscriberState()
    state.allocate(allocation(1, *((each, 1) for each in channels)))
    return state


def test_channels_alternate_and_order_in_each_is_kept() -> None:
    state = owning(0, 1, 2)
    accept(state, 0, [0, 1, 2])
    accept(state, 2, [5, 6])
    assert [(0, 0), (2, 5), (0, 1), (2, 6), (0, 2)] == taken(state)
    assert 0 == state.buffered_bytes


def test_several_are_taken_as_one_after_the_other() -> None:
    for count in range(1, 8):
        state, same = owning(0, 1, 2), owning(0, 1, 2)
        for one in (state, same):
            accept(one, 0, [0, 1, 2, 3])
            accept(one, 2, [5])
        expected = [each for _ in range(count) if (each := same.take()) is not None]
        found = state.take_some(count)
        assert [(each.channel, each.offset) for each in expected] == [
            (each.channel, each.offset) for each in found
        ]
        assert [same.read_mark(0), same.buffered_bytes] == [
            state.read_mark(0), state.buffered_bytes
        ]  # fmt: skip
        assert taken(same) == taken(state)


def test_allocation_names_what_was_revoked_and_drops_its_elements() -> None:
    state = owning(0, 1)
    accept(state, 0, [0])
    accept(state, 1, [0])
    change = state.allocate(allocation(2, (0, 1)))
    assert (frozenset({1}), True) == change
    assert [(0, 0)] == taken(state)
    assert (frozenset(), False) == state.allocate(allocation(3, (0, 1)))


def test_channel_that_was_lost_and_came_back_begins_behind_the_commit() -> None:
    state = owning(0)
    accept(state, 0, [0, 1])
    change = state.allocate(allocation(3, (0, 2), start=1))
    assert (frozenset({0}), True) == change
    assert [] == taken(state)
    assert 1 == state.next_offset(0)


def test_answer_to_an_older_generation_is_dropped() -> None:
    state = owning(0)
    generation = state.generations()[0]
    state.seeked([SeekOutcome(0, 6, 7, 1)])
    assert not state.accept(0, generation, [element(0, generation, 0)], 1)
    assert not state.accept(3, generation, [], 1)
    assert [(0, 1, 7)] == list(state.fetches())
    assert ReadMark(1, 6) == state.read_mark(0)


def test_put_back_element_is_the_next_one_and_unread() -> None:
    state = owning(0, 1)
    accept(state, 0, [0, 1])
    accept(state, 1, [0])
    first = state.take()
    assert first is not None
    assert ReadMark(0, 0) == state.read_mark(0)
    assert state.put_back(first)
    assert ReadMark(0, -1) == state.read_mark(0)
    assert [(0, 0), (1, 0), (0, 1)] == taken(state)


def test_element_of_a_lost_channel_is_not_put_back() -> None:
    state = owning(0)
    accept(state, 0, [0])
    element = state.take()
    assert element is not None
    assert frozenset({0}) == state.disconnect()
    assert not state.put_back(element)
    state.allocate(allocation(5, (0, 2)))
    assert not state.put_back(element)


def test_read_mark_outlives_ownership_but_not_a_seek_of_the_next_owner() -> None:
    state = owning(0)
    accept(state, 0, [0])
    state.take()
    state.disconnect()
    assert ReadMark(0, 0) == state.read_mark(0)
    state.allocate(allocation(5, (0, 2)))
    assert ReadMark(0, 0) == state.read_mark(0)
    state.disconnect()
    state.allocate(ChannelAllocation("g", 1, 6, 4, (OwnedChannel(0, 3, 0, 9),), "", ""))
    assert ReadMark(9, -1) == state.read_mark(0)


def test_committed_elements_are_not_handed_out() -> None:
    state = owning(0, 1)
    accept(state, 0, [3, 5, 6])
    accept(state, 1, [3])
    state.committed(0, 2, 0)
    state.committed(2, 9, 0)
    assert [0, 1] == [element.channel for element in (state.take(), state.take()) if element]
    state.committed(0, 5, 0)
    assert [(0, 6)] == taken(state)
    accept(state, 0, [7])
    state.committed(0, 7, 0)
    assert ([], 0) == (taken(state), state.buffered_bytes)


def test_element_that_was_committed_while_it_was_fetched_is_not_handed_out() -> None:
    """Its subscriber had received it before it lost the connection, and joined again."""
    state = owning(0)
    state.committed(0, 1, 0)
    accept(state, 0, [0, 1, 2])
    assert [(0, 2)] == taken(state)


def test_commit_from_before_a_seek_does_not_drop_what_the_seek_went_back_to() -> None:
    state = owning(0)
    state.committed(0, 2, 0)
    state.seeked([SeekOutcome(0, -1, 0, 1)])
    accept(state, 0, [0, 1, 2])
    state.committed(0, 1, 0)
    assert [(0, 0), (0, 1), (0, 2)] == taken(state)


def test_channel_whose_elements_were_taken_at_once_is_fetched_behind_the_others() -> None:
    """Else a fast application would get the elements of channel 0 alone, an answer being full."""
    state = owning(0, 1, 2)
    fetched = []
    for offset in range(6):
        channel = state.fetches()[0].channel
        accept(state, channel, [offset])
        fetched += taken(state)
    assert [0, 1, 2, 0, 1, 2] == [channel for channel, _ in fetched]


def test_emptiest_channels_are_fetched_first() -> None:
    state = owning(0, 1, 2)
    accept(state, 0, [0, 1])
    accept(state, 2, [0])
    assert [1, 2, 0] == [each.channel for each in state.fetches()]


class SubscriberMachine(RuleBasedStateMachine):
    """Elements of owned channels come in order, once for each ownership and seek."""

    def __init__(self) -> None:
        super().__init__()
        self.state = SubscriberState()
        self.epoch = 0
        self.ownership = 0
        self.expected: dict[int, list[int]] = {}
        self.next: dict[int, int] = {}

    @rule(channels=st.sets(st.integers(0, 3)), start=st.integers(0, 5))
    def allocate(self, channels: set[int], start: int) -> None:
        self.epoch += 1
        self.ownership += 1
        self.state.allocate(
            allocation(self.epoch, *((each, self.ownership) for each in channels), start=start)
        )
        self.expected = {each: [] for each in channels}
        self.next = dict.fromkeys(channels, start)

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), count=st.integers(1, 4))
    def fetch(self, data: st.DataObject, count: int) -> None:
        channel = data.draw(st.sampled_from(sorted(self.expected)))
        first = self.next[channel]
        offsets = list(range(first, first + count))
        assert accept(self.state, channel, offsets)
        self.expected[channel] += offsets
        self.next[channel] = first + count

    @rule()
    def take(self) -> None:
        element = self.state.take()
        if element is None:
            assert not any(self.expected.values())
        else:
            assert self.expected[element.channel].pop(0) == element.offset

    @rule(count=st.integers(1, 5))
    def take_some(self, count: int) -> None:
        found = self.state.take_some(count)
        assert min(count, sum(map(len, self.expected.values()))) == len(found)
        for each in found:
            assert self.expected[each.channel].pop(0) == each.offset

    @rule()
    def take_and_put_back(self) -> None:
        element = self.state.take()
        if element is not None:
            assert self.state.put_back(element)

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), offset=st.integers(0, 9))
    def seek(self, data: st.DataObject, offset: int) -> None:
        channel = data.draw(st.sampled_from(sorted(self.expected)))
        self.state.seeked([SeekOutcome(channel, offset - 1, offset, offset)])
        self.expected[channel] = []
        self.next[channel] = offset

    @invariant()
    def bytes_are_those_of_the_elements(self) -> None:
        count = sum(map(len, self.expected.values()))
        assert count * element(0, 0, 0).size == self.state.buffered_bytes


TestSubscriberMachine = SubscriberMachine.TestCase
TestSubscriberMachine.settings = settings(max_examples=50, stateful_step_count=30)


def test_what_was_read_before_a_loss_stays_read_when_it_comes_again() -> None:
    """A commit of an element that was received before a disconnection was refused as unread."""
    state = owning(0)
    accept(state, 0, [0, 1, 2])
    assert 3 == len(taken(state))
    state.disconnect()
    state.allocate(allocation(2, (0, 2)))
    accept(state, 0, [0, 1, 2])
    again = state.take()
    assert again is not None
    assert (ReadMark(0, 2), 0) == (state.read_mark(0), state.position(0))
    state.put_back(again)
    assert (ReadMark(0, 2), -1) == (state.read_mark(0), state.position(0))
    state.seeked([SeekOutcome(0, 0, 1, 1)])
    assert (ReadMark(1, 0), 0) == (state.read_mark(0), state.position(0))
