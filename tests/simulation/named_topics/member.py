"""Member: a client process with one subscriber, and what its application has got.

Rule: an application notes every element that it receives, with the period in which its subscriber
handed it out: the deserializer, which runs at that moment, stamps the value. A period begins with
an ownership, or with a seek.
Must not know: which actions there are.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import kledger
from kledger.named_topics.model import (
    ALREADY_COMMITTED,
    COMMITTED,
    UNOWNED,
    ChannelAllocation,
    SeekOutcome,
)
from kledger.native.client.named_topics.subscriber_state import OwnershipChange, SubscriberState
from kledger.native.errors import IllegalArgument, IllegalState
from tests.simulation.invariants import check
from tests.simulation.named_topics.model import ChannelModel, GroupModel, Period, TopicModel
from tests.simulation.named_topics.network import Link

ANSWER_MS_MAX = 11_500
"""How long an answer of the server may be on its way, mostly because its client is frozen."""


class Stamped(NamedTuple):
    """A value, as the deserializer leaves it.

    Attributes:
        data: what was published.
        period: of its channel; None: the subscriber does not own it.
        committed: the last offset of it that the subscriber has committed by then.
        now_ms: when it was handed out.
    """

    data: bytes
    period: Period | None
    committed: int
    now_ms: int


class Member:
    """One client process."""

    def __init__(
        self, name: str, topic: TopicModel, link: Link, client: kledger.Client, group: str | None
    ) -> None:
        self.name = name
        self.link = link
        self.client = client
        self.group_name = group
        self.subscriber: kledger.Subscriber | None = None
        self.is_over = False
        self.elements: dict[int, kledger.Element] = {}
        """The last that the application got of each channel."""
        self.periods: dict[int, Period] = {}
        self._topic = topic
        self._committed: dict[int, tuple[int, int]] = {}
        """By channel the revision, and what was committed in it."""

    def __str__(self) -> str:
        return self.name

    @property
    def group(self) -> GroupModel:
        """The model of its group; of an anonymous one, after it has joined."""
        assert self.subscriber is not None
        return self._topic.groups[self.group_name or f"anonymous-{self.subscriber.id}"]

    @property
    def usable(self) -> kledger.Subscriber | None:
        return None if self.is_over else self.subscriber

    # What its subscriber learns

    def allocated(self, allocation: ChannelAllocation) -> None:
        known, self.periods = self.periods, {}
        for each in allocation.channels:
            period = known.get(each.channel)
            if period is None or period.ownership != each.ownership:
                period = Period(each.next_offset, each.ownership, each.revision)
            self.periods[each.channel] = period

    def disconnected(self) -> None:
        self.periods = {}

    def seeked(self, outcomes: Sequence[SeekOutcome]) -> None:
        for each in outcomes:
            before = self.periods.get(each.channel)
            if before is not None:
                self.periods[each.channel] = Period(
                    each.next_offset, before.ownership, each.revision
                )

    def stamp(self, data: bytes) -> Stamped:
        """Deserialize a value that is handed out now."""
        number = int(data.split(b"|")[0])
        period = self.periods.get(number)
        revision, committed = self._committed.get(number, (-1, -1))
        is_same = period is not None and period.revision == revision
        return Stamped(data, period, committed if is_same else -1, self._topic.now_ms())

    # What its application gets

    def received(self, element: kledger.Element) -> None:
        """Check an element: in order, once, uncommitted, of a channel that is owned."""
        stamped, offset = element.value, element.position.offset
        what = f"{self}, {self.group.what(element.channel)}"
        channel = self.group.channel(element.channel)
        check(stamped.data.startswith(b"%d|" % element.channel), f"{what}: {stamped.data!r}")
        self._topic.seen(element.channel, offset, stamped.data)
        expiry_ms = self._topic.expiry_ms
        if expiry_ms is not None:
            age_ms = stamped.now_ms - element.timestamp_ms
            check(age_ms < expiry_ms + ANSWER_MS_MAX, f"{what}: {offset} comes, it has expired")
        period = stamped.period
        check(period, f"{what}: {offset} of a channel that it does not own")
        check(offset > stamped.committed, f"{what}: {offset} comes again, it is committed")
        check(offset >= period.next, f"{what}: {offset} comes again, or late, after {period.last}")
        keeps = self.group.keeps
        check(keeps is None or keeps(stamped.data), f"{what}: {offset} comes, it is filtered out")
        may = channel.may_be_at()
        check(
            not may or all(map(channel.is_left_out, range(max(period.next, *may), offset))),
            f"{what}: {offset} comes, and {period.next} was next",
        )
        period.last = offset
        self.elements[element.channel] = element
        assert self.subscriber is not None
        key = self.subscriber.id, period.revision
        channel.received.setdefault(key, set()).add(offset)

    def committed(
        self, channel: ChannelModel, element: kledger.Element, result: kledger.CommitResult
    ) -> None:
        """Note the result of committing an element that was received."""
        period = element.value.period
        has_moved = channel.has_moved(period.revision)
        if result.status in {COMMITTED, ALREADY_COMMITTED, UNOWNED} and not has_moved:
            known = self._committed.get(element.channel, (-1, -1))
            self._committed[element.channel] = max(
                known, (period.revision, element.position.offset)
            )
        is_refused = isinstance(result.error, IllegalState) and self._topic.allows_unowned
        check(not is_refused, f"{self}: a commit without ownership is refused: {result.error}")
        is_unread = isinstance(result.error, IllegalArgument)
        check(
            has_moved or not is_unread,
            f"{self}: a commit of an element that it has received is refused: {result.error}",
        )


class WatchedState(SubscriberState):
    """The state of a subscriber, which notifies its member of every change."""

    __slots__ = ("_member",)

    next_member: ClassVar[Member]
    """Of the next subscriber that is made."""

    def __init__(self) -> None:
        super().__init__()
        self._member = WatchedState.next_member

    def allocate(self, allocation: ChannelAllocation) -> OwnershipChange:
        change = super().allocate(allocation)
        self._member.allocated(allocation)
        return change

    def disconnect(self) -> frozenset[int]:
        lost = super().disconnect()
        self._member.disconnected()
        return lost

    def seeked(self, outcomes: Sequence[SeekOutcome]) -> None:
        super().seeked(outcomes)
        self._member.seeked(outcomes)
