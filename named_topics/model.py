"""Named topics as plain values: what a service takes and returns.

Rule: values only, so that the same calls cross a process boundary. An offset in these values is
that of a record in its partition, which is the position of an element in its channel.
Must not know: logs, clients, rows.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

NO_OFFSET: Final = -1
"""No position: the one before the first offset of a log."""
WRONG_POSITION: Final = -2
"""Stands for a position of another channel or another type, which the server refuses."""
ALL_CHANNELS: Final = -1
"""In place of the number of a channel."""
NO_LIMIT: Final = -1
"""No expiry, or no capacity."""

COMMITTED: Final = "committed"
ALREADY_COMMITTED: Final = "already_committed"
NOTHING_TO_COMMIT: Final = "nothing_to_commit"
UNOWNED: Final = "unowned"
REJECTED: Final = "rejected"

ILLEGAL_STATE: Final = "state"
ILLEGAL_ARGUMENT: Final = "argument"

TO_POSITION: Final = "position"
TO_TIME: Final = "time"
TO_HEAD: Final = "head"
TO_TAIL: Final = "tail"
SEEK_KINDS: Final = (TO_POSITION, TO_TIME, TO_HEAD, TO_TAIL)

SUBSCRIBER_TIMEOUT_MS: Final = 300_000
PAGE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopicOptions:
    """What a named topic is; durable from its first use on.

    Attributes:
        retain_values: committed elements stay, and new groups begin at the head.
        element_expiry_ms: age at which an element is removed; NO_LIMIT: never.
        subscriber_timeout_ms: silence after which a subscriber of a group loses its channels;
            0: never.
        page_bytes: how much one poll returns at most, but for one larger batch.
        max_unconsumed_bytes: bytes that some group has not committed at most; NO_LIMIT: no limit.
        allow_unowned_commits: subscribers may commit in channels that they do not own.
    """

    retain_values: bool = False
    element_expiry_ms: int = NO_LIMIT
    subscriber_timeout_ms: int = SUBSCRIBER_TIMEOUT_MS
    page_bytes: int = PAGE_BYTES
    max_unconsumed_bytes: int = NO_LIMIT
    allow_unowned_commits: bool = False


class NamedTopicInfo(NamedTuple):
    """A named topic: the short name of its topic, its channels and its options."""

    name: str
    channel_count: int
    options: NamedTopicOptions


class SubscriberJoin(NamedTuple):
    """How a subscriber joins a group.

    Attributes:
        group: empty: an anonymous subscriber, with a group of its own.
        subscriber: 0: a new one; else the id that it had before it was disconnected.
        filter_name: `module:attribute` of the group's filter; empty: none.
        converter_name: the same of its converter.
    """

    group: str
    subscriber: int
    filter_name: str
    converter_name: str


class OwnedChannel(NamedTuple):
    """A channel and its owner's right to it.

    Attributes:
        channel: its number.
        ownership: grows whenever the channel gets another owner, or its owner lost it in between.
        next_offset: where the owner begins: behind the last commit.
        revision: grows with every seek.
    """

    channel: int
    ownership: int
    next_offset: int
    revision: int


class ChannelAllocation(NamedTuple):
    """What a subscriber owns.

    Attributes:
        group: the name of its group, the generated one of an anonymous subscriber.
        subscriber: its id.
        epoch: of the group; grows with every allocation.
        channel_count: how many channels the topic has.
        channels: those of this subscriber.
        filter_name, converter_name: of the group.
    """

    group: str
    subscriber: int
    epoch: int
    channel_count: int
    channels: tuple[OwnedChannel, ...]
    filter_name: str
    converter_name: str


class ChannelFetch(NamedTuple):
    """What a subscriber wants of a channel: the elements from an offset on."""

    channel: int
    ownership: int
    offset: int


class ChannelPoll(NamedTuple):
    """A request for elements.

    Attributes:
        group, subscriber: of the poll.
        epoch: of the allocation that the subscriber knows.
        silent_ms: since the application has received, 0 while it waits; its timeout counts from
            there.
        wait_ms: how long to wait for an element or another allocation.
        bytes_max: how much to return at most, but for one larger batch.
        fetches: the channels that are read, in this order; none: only wait for an allocation.
    """

    group: str
    subscriber: int
    epoch: int
    silent_ms: int
    wait_ms: int
    bytes_max: int
    fetches: tuple[ChannelFetch, ...]


class ElementFailure(NamedTuple):
    """An element that is left out, as a function of the group has failed for it.

    Attributes:
        offset: of the element.
        reason: which function has failed, and how.
    """

    offset: int
    reason: str


class ChannelElements(NamedTuple):
    """Elements of one channel.

    Attributes:
        channel, ownership: as in the fetch.
        start_offset: records before it are not meant; at least the offset of the fetch.
        next_offset: where the next fetch goes on.
        batches: whole stored batches, or what the functions of the group have left of them.
        failures: of those functions, ascending by offset.
    """

    channel: int
    ownership: int
    start_offset: int
    next_offset: int
    batches: tuple[bytes, ...]
    failures: tuple[ElementFailure, ...] = ()


class ChannelPollResult(NamedTuple):
    """The answer to a poll: elements, or a newer allocation, or neither after the wait.

    Attributes:
        allocation: None: it is the one that the subscriber knows.
        elements: of some channels.
        now_ms: wall time of the server, if elements of the topic expire; else 0.
    """

    allocation: ChannelAllocation | None
    elements: tuple[ChannelElements, ...]
    now_ms: int = 0


class ChannelCommit(NamedTuple):
    """One position to commit.

    Attributes:
        channel: where.
        offset: the position, or WRONG_POSITION.
        read_offset: the last element that the application got from the channel, or NO_OFFSET.
        revision: of the channel when it got that.
    """

    channel: int
    offset: int
    read_offset: int
    revision: int


class CommitRequest(NamedTuple):
    """Positions to commit, decided one after the other and written together."""

    group: str
    subscriber: int
    commits: tuple[ChannelCommit, ...]


class CommitOutcome(NamedTuple):
    """What became of one commit.

    Attributes:
        status: COMMITTED, ALREADY_COMMITTED, NOTHING_TO_COMMIT, UNOWNED or REJECTED.
        error: ILLEGAL_STATE or ILLEGAL_ARGUMENT if it was rejected, else empty.
        reason: why it was rejected.
    """

    status: str
    error: str
    reason: str


class ChannelTarget(NamedTuple):
    """Where to seek in a channel.

    Attributes:
        kind: TO_POSITION, TO_TIME, TO_HEAD or TO_TAIL.
        value: the offset or the time in ms; else 0.
    """

    channel: int
    kind: str
    value: int


class SeekRequest(NamedTuple):
    """Channels to reposition, all or none; `is_committing`: the commit moves along."""

    group: str
    subscriber: int
    is_committing: bool
    targets: tuple[ChannelTarget, ...]


class SeekOutcome(NamedTuple):
    """Where a seek has led.

    Attributes:
        offset: the position that was sought to.
        next_offset: where the next element is looked for.
        revision: of the channel from now on.
    """

    channel: int
    offset: int
    next_offset: int
    revision: int


class ChannelEnds(NamedTuple):
    """The ends of one channel, as a group sees them.

    Attributes:
        owner: the id of the subscriber that owns it; 0: none.
        head_offset: of the first element that is available to the group.
        end_offset: behind the last one that is.
        committed_offset: the last commit, or NO_OFFSET.
        next_offset: behind the last commit.
        remaining: how many elements follow the last commit.
    """

    channel: int
    owner: int
    head_offset: int
    end_offset: int
    committed_offset: int
    next_offset: int
    remaining: int


class SubscriberGroupInfo(NamedTuple):
    """A subscriber group, its subscribers by id, and its channels."""

    name: str
    is_anonymous: bool
    subscribers: tuple[int, ...]
    filter_name: str
    converter_name: str
    channels: tuple[ChannelEnds, ...]
