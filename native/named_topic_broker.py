"""NamedTopicBroker: the calls of named topics between a native client and a server.

Rule: as in `native.broker`: plain values, and the errors of `native.errors`. No call keeps a link:
a subscriber polls, so that a lost connection leaves nothing behind but its membership, which times
out.
Must not know: sockets, the implementation of the server.
"""

from typing import Protocol

from kledger.named_topics.model import (
    ChannelAllocation,
    ChannelEnds,
    ChannelPoll,
    ChannelPollResult,
    CommitOutcome,
    CommitRequest,
    NamedTopicInfo,
    NamedTopicOptions,
    SeekOutcome,
    SeekRequest,
    SubscriberGroupInfo,
    SubscriberJoin,
)


class NamedTopicBroker(Protocol):
    """A server, as publishers and subscribers see it.

    Every method raises TopicNotFound if there is no such named topic, and Unavailable if the server
    cannot be reached, or its storage fails; then nothing has changed.
    """

    async def open_named_topic(
        self, name: str, *, channel_count: int, options: NamedTopicOptions, create: bool
    ) -> NamedTopicInfo:
        """Return a named topic; make it of a topic that is none yet.

        Args:
            name: the short name or the long one.
            channel_count: channels are added until there are as many; 0: as many as it has.
            options: of a named topic that is new; else the defaults, or what it has.
            create: whether it may become a named topic, and is created if it is missing.

        Raises:
            IllegalArgument: an option is wrong, or is not what the named topic has.
        """
        ...

    async def destroy_named_topic(self, name: str) -> None:
        """Delete a named topic with its elements and groups."""
        ...

    async def named_topics(self) -> list[str]:
        """Return the names of all named topics, sorted."""
        ...

    async def ensure_subscriber_group(
        self, topic: str, group: str, *, filter_name: str, converter_name: str
    ) -> None:
        """Make a subscriber group, unless it exists.

        Raises:
            IllegalArgument: it exists with another filter or converter, or its name is wrong.
        """
        ...

    async def destroy_subscriber_group(self, topic: str, group: str) -> None:
        """Destroy a group; its subscribers are disconnected. Raises SubscriberGroupDestroyed."""
        ...

    async def subscriber_groups(self, topic: str) -> list[SubscriberGroupInfo]:
        """Return the groups with the state of every channel; anonymous subscribers have one too."""
        ...

    async def wait_for_room(self, topic: str, size: int, wait_ms: int) -> bool:
        """Wait until a batch of `size` bytes fits into a topic with a capacity.

        Returns:
            False: it did not in that time.
        """
        ...

    async def join_subscriber(self, topic: str, join: SubscriberJoin) -> ChannelAllocation:
        """Add a subscriber to a group, and return its channels.

        Raises:
            SubscriberGroupDestroyed: the subscriber was in it before.
            IllegalArgument: the group has another filter or converter.
        """
        ...

    async def leave_subscriber(self, topic: str, group: str, subscriber: int) -> None:
        """Remove a subscriber; the group of an anonymous one is destroyed. Repeatable."""
        ...

    async def poll_channels(self, topic: str, poll: ChannelPoll) -> ChannelPollResult:
        """Return elements or another allocation; wait for one of them.

        Raises:
            SubscriberDisconnected: the group has no such subscriber.
            SubscriberGroupDestroyed: there is no such group.
        """
        ...

    async def commit_channels(self, topic: str, request: CommitRequest) -> list[CommitOutcome]:
        """Commit positions; return when that is durable.

        Raises:
            SubscriberDisconnected: the server has restarted, and does not know the subscriber.
        """
        ...

    async def seek_channels(self, topic: str, request: SeekRequest) -> list[SeekOutcome]:
        """Reposition channels, all or none; return when that is durable.

        Raises:
            IllegalState: the subscriber does not own all of them.
            SubscriberDisconnected, SubscriberGroupDestroyed: as for a poll.
        """
        ...

    async def channel_ends(
        self, topic: str, group: str, subscriber: int, channel: int
    ) -> list[ChannelEnds]:
        """Return the ends of a channel, or of all (-1); only of those that the subscriber owns.

        Raises:
            SubscriberDisconnected, SubscriberGroupDestroyed: as for a poll.
        """
        ...
