"""SubscriberGroup: the subscribers of one group while the server runs. A shell.

Rule: the members are in memory; after a restart subscribers join again with the ids that they had.
Polls that wait are woken by every allocation, and by the end of the group.
Must not know: rows, how elements are read.
"""

from collections.abc import Callable
from typing import TypeAlias

from kledger.delivery.errors import PartitionEnded
from kledger.delivery.partition_directory import PartitionDirectory
from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.model import NO_OFFSET
from kledger.named_topics.ownership_state import ChannelOwnership
from kledger.named_topics.records import GroupKey
from kledger.runtime.timers import TimerHandle
from kledger.topics import PartitionLog, Topic

Wake: TypeAlias = Callable[[], None]


class SubscriberGroup:
    """Made by the service when the first subscriber joins, or the first request names the group.

    Attributes:
        key: of its rows.
        topic: whose elements it gets.
        is_anonymous: it ends with its only subscriber.
        ownership: its members, and the owners of channels.
        is_destroyed: its rows are deleted.
        timer: of the next timeout.
    """

    def __init__(
        self,
        key: GroupKey,
        topic: Topic,
        partitions: PartitionDirectory,
        *,
        timeout_ms: int,
        is_anonymous: bool,
    ) -> None:
        self.key = key
        self.topic = topic
        self.is_anonymous = is_anonymous
        self.ownership = ChannelOwnership(topic.partition_count, timeout_ms=timeout_ms)
        self.is_destroyed = False
        self.timer: TimerHandle | None = None
        self._directory = partitions
        self._partitions: dict[int, _HeldPartition] = {}
        self._wakes: dict[Wake, None] = {}
        self._read: dict[int, tuple[int, int]] = {}
        """The revision of a channel and the last offset that was read in it, by its number."""
        self._fetched: dict[int, tuple[int, int]] = {}
        """The same for elements that were sent to the owner, which may not have read them yet."""

    async def log(self, channel: int) -> PartitionLog:
        """Return the log of a channel, which stays open as long as the group has members.

        Raises:
            TopicsError, LedgerError, DeliveryError: it cannot be opened now.
        """
        held = self._partitions.get(channel)
        if held is not None and held.end_error is None:
            return held.log
        opened = await self._directory.open(self.topic.name, channel)
        if self.ownership.members:
            held = self._partitions[channel] = _HeldPartition(opened.log)
            opened.add_listener(held.on_ended)
            held.release = lambda: opened.remove_listener(held.on_ended)
        return opened.log

    # Waking

    def add_wake(self, wake: Wake) -> None:
        """Call back when the channels are allocated anew, or the group ends."""
        self._wakes[wake] = None

    def remove_wake(self, wake: Wake) -> None:
        """Stop calling back."""
        self._wakes.pop(wake, None)

    def notify(self) -> None:
        """Wake all polls; release the partitions of a group without members."""
        if not self.ownership.members:
            held, self._partitions = self._partitions, {}
            for each in held.values():
                each.release()
        for wake in list(self._wakes):
            wake()

    # What was read

    def read_offset(self, channel: int, record: ChannelRecord, *, is_owner: bool) -> int:
        """Return the last offset that counts as read by the group.

        Args:
            channel: where.
            record: its revision: what was read before the last seek does not count.
            is_owner: False: for a commit of another subscriber what was sent to the owner counts,
                as the server does not know how far the owner has come.
        """
        known = [self._read] if is_owner else [self._read, self._fetched]
        offsets = [
            offset
            for revision, offset in (each.get(channel, (-1, NO_OFFSET)) for each in known)
            if revision == record.revision
        ]
        return max([*offsets, record.next_offset - 1])

    def note_read(self, channel: int, revision: int, offset: int) -> None:
        """Note that a subscriber has read up to an offset in a revision."""
        self._read[channel] = max((revision, offset), self._read.get(channel, (-1, NO_OFFSET)))

    def note_fetched(self, channel: int, revision: int, offset: int) -> None:
        """Note that elements up to an offset are sent to the owner."""
        self._fetched[channel] = revision, offset


class _HeldPartition:
    """A partition that is kept open."""

    __slots__ = ("end_error", "log", "release")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.end_error: PartitionEnded | None = None
        self.release: Wake = _nothing

    def on_ended(self, error: PartitionEnded) -> None:
        """Note the end; the next request opens the partition again."""
        self.end_error = error


def _nothing() -> None:
    """Do nothing: the partition is not held yet."""
