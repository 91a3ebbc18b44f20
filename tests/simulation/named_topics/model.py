"""The model of a named topic: what each group may have committed, and what a subscriber may get.

Rule: the model sees requests and answers at the server, in their order, and the elements that an
application gets. A commit or seek that was not answered may have happened, so a channel has a set
of offsets at which its group may stand. What the model does not expect raises InvariantBroken.
Must not know: rows, ownership plans, clocks, clients.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kledger.named_topics.model import (
    ALREADY_COMMITTED,
    COMMITTED,
    TO_HEAD,
    TO_POSITION,
    TO_TAIL,
    UNOWNED,
    ChannelAllocation,
    ChannelElements,
    ChannelTarget,
    CommitOutcome,
    CommitRequest,
    SeekOutcome,
    SeekRequest,
)
from tests.simulation.invariants import check

Owner = tuple[int, int]
"""A start of the server, and the id of a subscriber."""


@dataclass(slots=True, eq=False)
class Period:
    """The time in which a subscriber owns a channel without a seek in between.

    Attributes:
        begin: where its elements begin, as the server said.
        ownership: by which it is owned.
        revision: of the channel.
        last: the offset of the last one that the application got.
    """

    begin: int
    ownership: int
    revision: int
    last: int | None = None

    @property
    def next(self) -> int:
        return self.begin if self.last is None else self.last + 1


@dataclass(slots=True, eq=False)
class CommitSent:
    """A commit of one channel that the server has not answered.

    Attributes:
        offset: of the element.
        subscriber: its id.
        revision: of the channel, as the subscriber knows it.
        may_be_undone: a seek whose outcome is not known has ended meanwhile.
    """

    offset: int
    subscriber: int
    revision: int
    may_be_undone: bool = False


@dataclass(slots=True, eq=False)
class ChannelModel:
    """Where a group stands in a channel.

    Attributes:
        choices: offsets behind the last commit, one of which holds; empty: any may.
        commits: those that are not answered.
        pending_seeks: how many are not answered.
        is_vague: a seek may have happened that nobody knows of.
        received: by subscriber and revision, what its application got.
        skipped: by subscriber and revision, the offset that it has sought to.
        revision: the highest that is known.
        owner: of the newest ownership, which is `ownership`.
        is_left_out: whether the element at an offset may not come: it is filtered out, or expired.
    """

    choices: set[int]
    commits: dict[CommitSent, None] = field(default_factory=dict)
    pending_seeks: int = 0
    is_vague: bool = False
    received: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    skipped: dict[tuple[int, int], int] = field(default_factory=dict)
    revision: int = 0
    ownership: int = -1
    owner: Owner = (-1, 0)
    is_left_out: Callable[[int], bool] = lambda _: False

    def may_be_at(self) -> set[int]:
        """Return where the group may stand now; empty: anywhere."""
        if self.pending_seeks or not self.choices:
            return set()
        return self.choices | {each.offset + 1 for each in self.commits}

    def has_moved(self, revision: int) -> bool:
        """Return whether there may have been a seek since a revision."""
        return bool(self.pending_seeks or self.is_vague or self.revision != revision)

    def settle(self, offset: int, what: str) -> None:
        """Note where the group stands when nothing is under way."""
        may = self.may_be_at()
        check(not may or offset in may, f"{what} stands at {offset}, expected one of {may}")
        self.choices, self.is_vague = {offset}, False

    # Commits

    def end_commit(self, sent: CommitSent, outcome: CommitOutcome | None, what: str) -> None:
        """Note the outcome of a commit; None: it is not known.

        One without ownership may cover what only the owner of the channel was sent.
        """
        del self.commits[sent]
        after = sent.offset + 1
        if outcome is None:
            if self.choices and after > min(self.choices):
                self.choices.add(after)
        elif outcome.status in {COMMITTED, UNOWNED}:
            before = self.may_be_at()
            if before:
                check(min(before) < after, f"{what}: committed {sent.offset} behind {before}")
                if outcome.status == COMMITTED:
                    self._check_covered(sent, range(max(self.choices), after), what)
            self.choices = set() if sent.may_be_undone else {after}
        elif outcome.status == ALREADY_COMMITTED and (before := self.may_be_at()):
            check(max(before) >= after, f"{what}: {sent.offset} is not committed: {before}")

    def _check_covered(self, sent: CommitSent, offsets: range, what: str) -> None:
        """Check that a commit covers nothing that its subscriber has not received."""
        if self.has_moved(sent.revision):
            return
        received = self.received.get((sent.subscriber, sent.revision), set())
        skipped = self.skipped.get((sent.subscriber, sent.revision), 0)
        lost = [
            each
            for each in offsets
            if each >= skipped and each not in received and not self.is_left_out(each)
        ]
        check(not lost, f"{what}: {lost} are committed, and {sent.subscriber} never got them")

    # Seeks

    def end_seek(
        self,
        target: ChannelTarget,
        outcome: SeekOutcome | None,
        subscriber: int,
        *,
        is_committing: bool,
        what: str,
    ) -> None:
        """Note the outcome of a seek; None: it is not known."""
        self.pending_seeks -= 1
        if outcome is None:
            self.choices, self.is_vague = set(), True
            for commit in self.commits:
                commit.may_be_undone = True
            return
        self.revision = max(self.revision, outcome.revision)
        sought = outcome.next_offset
        self.skipped[subscriber, outcome.revision] = sought
        if target.kind == TO_HEAD or is_committing:
            self.choices = {sought}
        else:
            self.choices = {min(each, sought) for each in self.choices}


class GroupModel:
    """One group.

    Attributes:
        keeps: its filter.
    """

    def __init__(
        self, name: str, topic: "TopicModel", *, keeps: Callable[[bytes], bool] | None = None
    ) -> None:
        self.name = name
        self.topic = topic
        self.channels: dict[int, ChannelModel] = {}
        self.keeps = keeps

    def channel(self, number: int) -> ChannelModel:
        """Return a channel; one that was added begins at its start."""
        found = self.channels.get(number)
        if found is None:
            found = self.channels[number] = self._new_channel(number, 0)
        return found

    def _new_channel(self, number: int, next_offset: int) -> ChannelModel:
        return ChannelModel({next_offset}, is_left_out=partial(self._is_left_out, number))

    def _is_left_out(self, number: int, offset: int) -> bool:
        value = self.topic.values.get((number, offset))
        if value is None:
            return self.keeps is not None or self.topic.expires
        is_filtered = self.keeps is not None and not self.keeps(value)
        return is_filtered or self.topic.may_have_expired(value)

    def what(self, number: int) -> str:
        return f"channel {number} of {self.name}"

    # What the server answers

    @classmethod
    def joined_anonymously(
        cls, allocation: ChannelAllocation, ends: Mapping[int, int], topic: "TopicModel"
    ) -> "GroupModel":
        """Return the group of a new anonymous subscriber, which begins at the tail, or the head.

        Args:
            allocation: what the server answers.
            ends: what was surely published when it was asked.
            topic: its own.
        """
        group = cls(allocation.group, topic)
        for each in allocation.channels:
            group.channels[each.channel] = group._new_channel(each.channel, each.next_offset)
            is_right = (
                each.next_offset == 0 or topic.expires
                if topic.is_retaining
                else each.next_offset >= ends.get(each.channel, 0)
            )
            check(is_right, f"{group.what(each.channel)} begins at {each.next_offset}")
        return group

    def allocated(self, life: int, allocation: ChannelAllocation) -> None:
        """Check an allocation: one owner, which begins behind the last commit."""
        for each in allocation.channels:
            channel, what = self.channel(each.channel), self.what(each.channel)
            self._check_owner(channel, life, allocation.subscriber, each.ownership, what)
            channel.revision = max(channel.revision, each.revision)
            may = channel.may_be_at()
            check(
                not may or each.next_offset in may,
                f"{what}: its owner begins at {each.next_offset}, expected one of {may}",
            )

    def _check_owner(
        self, channel: ChannelModel, life: int, subscriber: int, ownership: int, what: str
    ) -> None:
        owner = (life, subscriber)
        if channel.owner[0] != life:
            channel.ownership = -1
        check(ownership >= channel.ownership, f"{what}: {owner} owns it by {ownership}, an old one")
        if ownership == channel.ownership:
            check(owner == channel.owner, f"{what} is owned by {owner} and {channel.owner}")
        channel.ownership, channel.owner = ownership, owner

    def committed(self) -> dict[int, tuple[int, int]]:
        """Return by channel its revision, and what was surely committed then."""
        return {
            number: (each.revision, min(each.may_be_at(), default=0))
            for number, each in self.channels.items()
        }

    def fetched(
        self,
        life: int,
        subscriber: int,
        elements: Sequence[ChannelElements],
        committed: Mapping[int, tuple[int, int]],
    ) -> None:
        """Check elements that are sent: to the owner alone, and none that was committed.

        Args:
            life: of the server.
            subscriber: its id.
            elements: that are sent.
            committed: what was when they were asked for; the client drops what was since.
        """
        for each in elements:
            channel, what = self.channel(each.channel), self.what(each.channel)
            self._check_owner(channel, life, subscriber, each.ownership, what)
            revision, first = committed.get(each.channel, (-1, 0))
            check(
                channel.has_moved(revision) or each.start_offset >= first,
                f"{what}: {each.start_offset} is sent, and committed up to {first}",
            )

    # Requests

    def begin_commits(self, request: CommitRequest) -> list[tuple[int, CommitSent]]:
        sent = []
        for each in request.commits:
            channel = self.channel(each.channel)
            commit = CommitSent(each.offset, request.subscriber, each.revision)
            channel.commits[commit] = None
            sent.append((each.channel, commit))
        return sent

    def end_commits(
        self,
        sent: Sequence[tuple[int, CommitSent]],
        outcomes: Iterable[CommitOutcome | None],
    ) -> None:
        for (number, commit), outcome in zip(sent, outcomes, strict=True):
            self.channel(number).end_commit(commit, outcome, self.what(number))

    def lose_commits(self, sent: Sequence[tuple[int, CommitSent]]) -> None:
        """Note that commits may have happened, or not."""
        self.end_commits(sent, [None] * len(sent))

    def refuse_commits(self, sent: Sequence[tuple[int, CommitSent]]) -> None:
        """Note that nothing was committed."""
        for number, commit in sent:
            del self.channel(number).commits[commit]

    def begin_seek(self, request: SeekRequest) -> None:
        for each in request.targets:
            self.channel(each.channel).pending_seeks += 1

    def end_seek(
        self, request: SeekRequest, outcomes: Sequence[SeekOutcome] | None, ends: Mapping[int, int]
    ) -> None:
        """Note the outcome of a seek. `ends`: what was surely published when it began."""
        for index, target in enumerate(request.targets):
            channel, what = self.channel(target.channel), self.what(target.channel)
            outcome = None if outcomes is None else outcomes[index]
            if outcome is not None:
                end = ends.get(target.channel, 0)
                _check_target(target, outcome, channel, end, what=what, expires=self.topic.expires)
            channel.end_seek(
                target, outcome, request.subscriber, is_committing=request.is_committing, what=what
            )

    def refuse_seek(self, request: SeekRequest) -> None:
        """Note that nothing has moved."""
        for each in request.targets:
            self.channel(each.channel).pending_seeks -= 1


def _check_target(
    target: ChannelTarget,
    outcome: SeekOutcome,
    channel: ChannelModel,
    end: int,
    *,
    what: str,
    expires: bool,
) -> None:
    """Check where a seek has led: to its target, the head or the tail."""
    found = outcome.next_offset
    if target.kind == TO_TAIL:
        check(found >= end, f"{what}: the tail is {end} or more, sought to {found}")
    elif target.kind == TO_POSITION:
        wanted = target.value + 1
        check(found >= min(wanted, end), f"{what}: sought to {wanted}, found {found} before it")
        # An element that this group has not committed is never before the head.
        upto = max(channel.choices | {each.offset + 1 for each in channel.commits}, default=None)
        if upto is not None and channel.pending_seeks == 1 and not expires:
            check(found <= max(wanted, upto), f"{what}: sought to {wanted}, found {found}")


@dataclass(slots=True)
class TopicModel:
    """The topic over all lives of the server.

    Attributes:
        is_retaining: whether committed elements stay.
        allows_unowned: whether subscribers may commit in channels that they do not own.
        expiry_ms: the age at which elements expire; None: never.
        now_ms: returns the wall time, which is that of the server, too.
        values: what was published or received, by channel and offset.
        groups: by name.
    """

    is_retaining: bool
    allows_unowned: bool
    expiry_ms: int | None
    now_ms: Callable[[], int]
    values: dict[tuple[int, int], bytes] = field(default_factory=dict)
    groups: dict[str, GroupModel] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    """By channel the offset behind the last acknowledged value."""
    begun_ms: dict[bytes, int] = field(default_factory=dict)
    """When a value was published at the earliest."""
    ended_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    """When a value was published at the latest, by channel and offset."""

    @property
    def expires(self) -> bool:
        return self.expiry_ms is not None

    def may_have_expired(self, value: bytes) -> bool:
        """Return whether a value may be gone."""
        if self.expiry_ms is None:
            return False
        return self.begun_ms.get(value, 0) + self.expiry_ms <= self.now_ms()

    def expired_count(self, channel: int, offsets: range) -> int:
        """Return how many of some elements are surely gone."""
        if self.expiry_ms is None:
            return 0
        before_ms = self.now_ms() - self.expiry_ms
        known = (self.ended_ms.get((channel, each)) for each in offsets)
        return sum(each is not None and each <= before_ms for each in known)

    def published(self, channel: int, offset: int, value: bytes) -> None:
        """Note a value that a publisher has a position of."""
        self.seen(channel, offset, value)
        self.ended_ms[channel, offset] = self.now_ms()
        self.ends[channel] = max(self.ends.get(channel, 0), offset + 1)

    def seen(self, channel: int, offset: int, value: bytes) -> None:
        """Check that an offset has one value."""
        known = self.values.setdefault((channel, offset), value)
        check(known == value, f"channel {channel}, {offset} is {value!r}, and was {known!r}")

    def check_order(self) -> None:
        """Check that the values of each publisher are there once, in the order of its publishes."""
        last: dict[tuple[int, bytes], int] = {}
        for (channel, offset), value in sorted(self.values.items()):
            _, publisher, number = value.split(b"|")
            key, place = (channel, publisher), int(number)
            check(
                place > last.get(key, -1),
                f"channel {channel}, {offset}: {value!r} follows number {last.get(key)}",
            )
            last[key] = place
