"""Subscriber state: the channels that a subscriber owns, and what it has pre-fetched. Pure.

Rule: an element is handed out only while its channel is owned by the ownership that it was fetched
in; what a subscriber has pre-fetched of a channel that it lost, or repositioned, is dropped. Every
change that invalidates responses in flight begins another generation of the channel. Elements
are taken from one channel after the other, and fetched from the one that was answered longest ago,
so that none starves.
Must not know: the server, requests, futures.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from kledger.named_topics.model import (
    NO_OFFSET,
    ChannelAllocation,
    ChannelFetch,
    OwnedChannel,
    SeekOutcome,
)
from kledger.native.client.named_topics.element import Element

_offset_of = attrgetter("offset")
_size_of = attrgetter("size")


class ReadMark(NamedTuple):
    """The highest offset that the application got, and the revision in which it did."""

    revision: int
    offset: int


class OwnershipChange(NamedTuple):
    """What an allocation changes: the channels that were taken away, and whether there is any."""

    revoked: frozenset[int]
    is_changed: bool


@dataclass(slots=True)
class _Channel:
    """A channel that is owned.

    Attributes:
        read_before: what the application got in the revision before the channel was lost.
        read_offset: what it got last, or where it has sought to.
    """

    ownership: int
    revision: int
    generation: int
    fetch_offset: int
    read_before: int
    read_offset: int = NO_OFFSET
    elements: deque[Element] = field(default_factory=deque)
    answer: int = 0
    """The number of the last answer with elements of it."""
    committed_offset: int = NO_OFFSET
    """What this subscriber has committed since it owns the channel, or since its last seek."""

    @property
    def read_mark(self) -> ReadMark:
        """What the application has read; what comes again does not make it less."""
        return ReadMark(self.revision, max(self.read_before, self.read_offset))


class SubscriberState:
    """The channels of one subscriber.

    Attributes:
        epoch: of the allocation that is known; 0: none.
        channel_count: how many channels the topic has.
        buffered_bytes: of all pre-fetched elements.
    """

    __slots__ = (
        "_answers", "_channels", "_generation", "_lost", "_rotation", "buffered_bytes",
        "channel_count", "epoch",
    )  # fmt: skip

    def __init__(self) -> None:
        self.epoch = 0
        self.channel_count = 0
        self.buffered_bytes = 0
        self._channels: dict[int, _Channel] = {}
        self._rotation: deque[int] = deque()
        """The owned channels with pre-fetched elements, the next one first."""
        self._lost: dict[int, ReadMark] = {}
        """What the application got of channels that are not owned any more."""
        self._generation = 0
        self._answers = 0

    @property
    def channels(self) -> frozenset[int]:
        """The channels that are owned."""
        return frozenset(self._channels)

    # Ownership

    def allocate(self, allocation: ChannelAllocation) -> OwnershipChange:
        """Take over an allocation."""
        self.epoch = allocation.epoch
        self.channel_count = allocation.channel_count
        owned = {each.channel: each for each in allocation.channels}
        revoked = frozenset(
            number
            for number, channel in self._channels.items()
            if number not in owned or owned[number].ownership != channel.ownership
        )
        for number in revoked:
            self._drop(number)
        added = [each for number, each in owned.items() if number not in self._channels]
        for each in added:
            self._add(each)
        return OwnershipChange(revoked, bool(revoked or added))

    def disconnect(self) -> frozenset[int]:
        """Lose all channels; return them."""
        lost = self.channels
        for number in lost:
            self._drop(number)
        self.epoch = 0
        return lost

    def _add(self, owned: OwnedChannel) -> None:
        self._generation += 1
        revision, read_offset = self._lost.pop(owned.channel, (owned.revision, NO_OFFSET))
        self._channels[owned.channel] = _Channel(
            owned.ownership,
            owned.revision,
            self._generation,
            owned.next_offset,
            read_offset if revision == owned.revision else NO_OFFSET,
        )

    def _drop(self, number: int) -> None:
        channel = self._channels.pop(number)
        self._lost[number] = channel.read_mark
        self._clear(channel)

    def _clear(self, channel: _Channel) -> None:
        self.buffered_bytes -= sum(map(_size_of, channel.elements))
        if channel.elements:
            self._rotation.remove(channel.elements[0].channel)
        channel.elements.clear()

    # Fetching

    def fetches(self) -> tuple[ChannelFetch, ...]:
        """Return what to fetch next: the channels with the fewest elements first.

        Of several, that is the one that was answered longest ago: the server answers with the first
        ones alone if these fill the answer, and the application may take them before the next.
        """
        ordered = sorted(
            self._channels.items(),
            key=lambda item: (len(item[1].elements), item[1].answer, item[0]),
        )
        return tuple(
            ChannelFetch(number, each.ownership, each.fetch_offset) for number, each in ordered
        )

    def generations(self) -> Mapping[int, int]:
        """Return the generation of every owned channel, to send with a fetch."""
        return {number: channel.generation for number, channel in self._channels.items()}

    def accept(
        self, channel: int, generation: int, elements: Sequence[Element], next_offset: int
    ) -> bool:
        """Buffer fetched elements; return False if they belong to an older generation.

        Those that were committed while the answer was under way are dropped.
        """
        owned = self._channels.get(channel)
        if owned is None or owned.generation != generation:
            return False
        was_empty = not owned.elements
        committed = bisect_right(elements, owned.committed_offset, key=_offset_of)
        fresh = elements[committed:] if committed else elements
        owned.elements.extend(fresh)
        self.buffered_bytes += sum(map(_size_of, fresh))
        if was_empty and owned.elements:
            self._rotation.append(channel)
        owned.fetch_offset = next_offset
        self._answers += 1
        owned.answer = self._answers
        return True

    # Handing out

    def take(self) -> Element | None:
        """Take the next element; None: nothing is pre-fetched."""
        if not self._rotation:
            return None
        channel = self._channels[self._rotation[0]]
        element = channel.elements.popleft()
        self.buffered_bytes -= element.size
        if channel.elements:
            self._rotation.rotate(-1)
        else:
            self._rotation.popleft()
        channel.read_offset = element.offset
        return element

    def take_some(self, count: int) -> list[Element]:
        """Take up to `count` of the next elements."""
        found: list[Element] = []
        while self._rotation and (left := count - len(found)) > 0:
            channel = self._channels[self._rotation[0]]
            if len(self._rotation) > 1 or len(channel.elements) <= left:
                element = self.take()
                assert element is not None, "a channel in the rotation has no element"
                found.append(element)
                continue
            # The elements of one channel alone, and not all of them.
            popleft = channel.elements.popleft
            taken = [popleft() for _ in range(left)]
            self.buffered_bytes -= sum(map(_size_of, taken))
            channel.read_offset = taken[-1].offset
            found += taken
        return found

    def put_back(self, element: Element) -> bool:
        """Put an element back in front of its channel, which is next; False: it is dropped."""
        channel = self._channels.get(element.channel)
        if channel is None or channel.generation != element.generation:
            return False
        if channel.elements:
            self._rotation.remove(element.channel)
        channel.elements.appendleft(element)
        self._rotation.appendleft(element.channel)
        self.buffered_bytes += element.size
        channel.read_offset = element.offset - 1
        return True

    # Positions

    def seeked(self, outcomes: Sequence[SeekOutcome]) -> None:
        """Begin elsewhere in the channels of a seek; what was pre-fetched of them is dropped."""
        for outcome in outcomes:
            read_offset = outcome.next_offset - 1
            channel = self._channels.get(outcome.channel)
            if channel is None:
                self._lost[outcome.channel] = ReadMark(outcome.revision, read_offset)
            else:
                self._clear(channel)
                self._generation += 1
                channel.generation = self._generation
                channel.fetch_offset = outcome.next_offset
                channel.revision, channel.read_offset = outcome.revision, read_offset
                channel.read_before = NO_OFFSET
                channel.committed_offset = NO_OFFSET

    def committed(self, channel: int, offset: int, revision: int) -> None:
        """Drop pre-fetched elements that are committed, though they were not handed out.

        A subscriber that joins again may commit what it received before; that does not come again.

        Args:
            channel: where.
            offset: up to it.
            revision: in which the commit was sent: a later seek may have gone back over it.
        """
        owned = self._channels.get(channel)
        if owned is None or owned.revision != revision:
            return
        owned.committed_offset = max(owned.committed_offset, offset)
        if not owned.elements or owned.elements[0].offset > offset:
            return
        while owned.elements and owned.elements[0].offset <= offset:
            self.buffered_bytes -= owned.elements.popleft().size
        if not owned.elements:
            self._rotation.remove(channel)

    def read_mark(self, channel: int) -> ReadMark:
        """Return what the application has read; also of a channel that was lost since."""
        owned = self._channels.get(channel)
        if owned is not None:
            return owned.read_mark
        return self._lost.get(channel, ReadMark(0, NO_OFFSET))

    def position(self, channel: int) -> int:
        """Return what the application got last of a channel, or sought to; else NO_OFFSET."""
        owned = self._channels.get(channel)
        return NO_OFFSET if owned is None else owned.read_offset

    def next_offset(self, channel: int) -> int | None:
        """Return the offset of the next pre-fetched element, or where it is fetched from.

        None: the channel is not owned.
        """
        owned = self._channels.get(channel)
        if owned is None:
            return None
        return owned.elements[0].offset if owned.elements else owned.fetch_offset
