"""ChannelPositions: where groups stand in channels, and which elements are there for them.

Rule: answers are made of the newest records submitted. What must be looked up first is a coroutine;
`record` and `bounds` are plain, so that a decision can rely on them. A group begins at the start of
a channel that was added.
Must not know: subscribers, owners, when records are written.
"""

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

from kledger.ledger.record_table import GroupedRecordTable, RecordTable
from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.element_expiry import ElementExpiry
from kledger.named_topics.model import NO_LIMIT
from kledger.named_topics.records import GroupKey, NamedTopicRecord
from kledger.named_topics.retention_plan import ChannelLog, logical_start
from kledger.named_topics.seek_plan import SeekBounds
from kledger.runtime.clock import Clock
from kledger.topics import PartitionLog


class ChannelPositions:
    """Of all named topics of a server."""

    def __init__(
        self,
        topics: RecordTable[UUID, NamedTopicRecord],
        channels: GroupedRecordTable[GroupKey, int, ChannelRecord],
        groups: Mapping[UUID, Iterable[GroupKey]],
        clock: Clock,
    ) -> None:
        """Prepare.

        Args:
            topics: the named topics.
            channels: where groups stand.
            groups: of each topic.
            clock: for expiry.
        """
        self._topics = topics
        self._channels = channels
        self._groups = groups
        self._expiry = ElementExpiry(clock)

    def record(self, key: GroupKey, channel: int) -> ChannelRecord:
        """Return where a group stands in a channel."""
        return self._channels.head(key, channel) or ChannelRecord(0)

    def next_offsets(self, topic_id: UUID, channel: int) -> Iterator[int]:
        """Yield where each group of a topic goes on in a channel."""
        for key in self._groups.get(topic_id, ()):
            yield self.record(key, channel).next_offset

    async def log_of(self, named: NamedTopicRecord, log: PartitionLog) -> ChannelLog:
        """Look for expired elements; return what is there. Raises TopicsError: it is not known."""
        unexpired = await self._expiry.first_offset(log, named.options.element_expiry_ms)
        return ChannelLog(log.log_start_offset, log.last_stable_offset, unexpired)

    async def head(self, key: GroupKey, channel: int, log: PartitionLog) -> int:
        """Look for expired elements; return the offset of the first one that is there.

        Raises:
            TopicsError: it is not known.
        """
        named = self._topics.get(key.topic_id)
        if named is not None and named.options.element_expiry_ms != NO_LIMIT:
            await self.log_of(named, log)
        return self.bounds(key, channel, log).head_offset

    def bounds(self, key: GroupKey, channel: int, log: PartitionLog) -> SeekBounds:
        """Return the elements that are there for a group, as far as it is known now."""
        named = self._topics.get(key.topic_id)
        found = ChannelLog(
            log.log_start_offset, log.last_stable_offset, self._expiry.known_offset(log)
        )
        head = logical_start(
            found,
            self.next_offsets(key.topic_id, channel),
            is_retaining=named is not None and named.options.retain_values,
        )
        return SeekBounds(head, log.last_stable_offset)
