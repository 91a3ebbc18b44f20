"""TopicCapacity: bounds the bytes of a topic that some group has not committed. A shell.

`TopicCapacities` has those of all topics.

Rule: a batch is refused if the topic would exceed its capacity with it, unless nothing in it is
unconsumed; so the largest batch can always be published. Bytes are estimated from the sizes of
whole ledgers.
Must not know: subscribers, when groups commit.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from uuid import UUID
from weakref import WeakKeyDictionary

from kledger.delivery.partition_directory import PartitionDirectory
from kledger.ledger import Position
from kledger.ledger.record_table import RecordTable
from kledger.named_topics.channel_positions import ChannelPositions
from kledger.named_topics.errors import CapacityReached
from kledger.named_topics.model import NO_LIMIT
from kledger.named_topics.records import NamedTopicRecord
from kledger.named_topics.retention_plan import logical_start
from kledger.runtime.clock import Clock
from kledger.runtime.signal import Signal
from kledger.runtime.timers import Timers
from kledger.topics import PartitionLog, Topic

Unconsumed = Callable[[], AsyncIterator[tuple[PartitionLog, int]]]
"""Yields the logs of a topic, with the offsets from which on some group has not committed."""


class TopicCapacity:
    """The capacity of one topic.

    Attributes:
        freed: notified whenever groups have committed, or were destroyed.
    """

    def __init__(
        self, name: str, bytes_max: int, unconsumed: Unconsumed, *, clock: Clock, timers: Timers
    ) -> None:
        self.freed = Signal()
        self._name = name
        self._bytes_max = bytes_max
        self._unconsumed = unconsumed
        self._clock = clock
        self._timers = timers
        self._positions: WeakKeyDictionary[PartitionLog, tuple[int, Position]] = WeakKeyDictionary()
        """The offset that was looked up last, and the position of its entry."""

    async def check(self, size: int) -> None:
        """Check that a batch fits.

        Raises:
            CapacityReached: it does not.
            TopicsError, LedgerError: a log cannot be read.
        """
        used = await self._used()
        if used and used + size > self._bytes_max:
            raise CapacityReached(
                f"topic {self._name}: {used} bytes are not committed by all groups, and {size} "
                f"more would exceed {self._bytes_max}"
            )

    async def wait(self, size: int, wait_ms: int) -> bool:
        """Wait until a batch fits; return False if it did not in that time. Raises as `check`."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        timer = self._timers.call_at(until_ms, self.freed.notify)
        try:
            while True:
                version = self.freed.version
                used = await self._used()
                if not used or used + size <= self._bytes_max:
                    return True
                if self._clock.monotonic_ms() >= until_ms:
                    return False
                await self.freed.wait_beyond(version)
        finally:
            timer.cancel()

    async def _used(self) -> int:
        used = 0
        async for log, offset in self._unconsumed():
            if offset >= log.high_watermark:
                continue
            known = self._positions.get(log)
            if known is None or known[0] != offset:
                known = offset, (await log.locate(offset)).position
                self._positions[log] = known
            used += log.managed_ledger.estimated_backlog_bytes(known[1])
        return used


class TopicCapacities:
    """The capacities of all named topics."""

    def __init__(
        self,
        topics: RecordTable[UUID, NamedTopicRecord],
        positions: ChannelPositions,
        partitions: PartitionDirectory,
        *,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """Args: topics: with their options; positions: where groups stand; partitions: the logs."""
        self._topics = topics
        self._positions = positions
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._capacities: dict[UUID, TopicCapacity] = {}

    def of(self, topic: Topic) -> TopicCapacity | None:
        """Return the capacity of a topic; None: it is unlimited, or the topic is no named topic."""
        named = self._topics.get(topic.id)
        if named is None or named.options.max_unconsumed_bytes == NO_LIMIT:
            return None
        found = self._capacities.get(topic.id)
        if found is None:
            found = self._capacities[topic.id] = TopicCapacity(
                topic.name,
                named.options.max_unconsumed_bytes,
                partial(self._unconsumed, topic, named),
                clock=self._clock,
                timers=self._timers,
            )
        return found

    def note_freed(self, topic_id: UUID) -> None:
        """Note that groups have committed, or were destroyed."""
        capacity = self._capacities.get(topic_id)
        if capacity is not None:
            capacity.freed.notify()

    def forget(self, topic_id: UUID) -> None:
        """Forget a topic that was deleted."""
        self._capacities.pop(topic_id, None)

    async def _unconsumed(
        self, topic: Topic, named: NamedTopicRecord
    ) -> AsyncIterator[tuple[PartitionLog, int]]:
        """Yield every log of a topic, with the first offset that some group has not committed."""
        for opened in await self._partitions.open_all(topic.name):
            found = await self._positions.log_of(named, opened.log)
            next_offsets = self._positions.next_offsets(topic.id, opened.log.index)
            yield opened.log, logical_start(found, next_offsets, is_retaining=False)
