"""EntryReader: reads the entries of a topic as they are stored, and how far it has read.

Rule: an entry and a read position of one partition come in order. When a link has ended, what it
has delivered leaves the queue, and the next link begins behind the last entry that was returned.
Must not know: records, keys.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kledger.ledger import Position
from kledger.native.broker import EARLIEST, SeekTarget, TopicInfo
from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from kledger.native.client.consumer_session import ConsumerSession
from kledger.native.client.partition_consumer import PartitionConsumer
from kledger.native.client.partition_set import close_all, open_all, watch_partitions
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import AlreadyClosed, KledgerError
from kledger.runtime.signal import Signal
from kledger.subscriptions.model import Delivery


class ReadEntry(NamedTuple):
    """An entry, with the mask of its records that can be read."""

    partition: int
    delivery: Delivery


class ReadPosition(NamedTuple):
    """All entries before the position were returned, or are none that can be read."""

    partition: int
    position: Position


ReadStep: TypeAlias = ReadEntry | ReadPosition


class EntryReader(ClosesOnExit):
    """Reads all partitions of a topic, also those that are added later, these from the beginning.

    What it has prefetched is limited by `SubscribeOptions.receiver_queue_size`, for each partition.
    """

    def __init__(
        self,
        services: ClientServices,
        topic: TopicInfo,
        options: SubscribeOptions,
        *,
        partition_refresh_ms: int,
    ) -> None:
        """Prepare; `open` connects.

        Args:
            services: the client's.
            topic: the topic to read.
            options: of a reader.
            partition_refresh_ms: the interval of looking for new partitions.
        """
        self._services = services
        self._topic = topic.name
        self._options = options
        self._partition_refresh_ms = partition_refresh_ms
        self._changed = Signal()
        self._queue = EntryQueue(self._changed)
        self._failure: KledgerError | None = None
        self._closing = CloseOnce(services.supervisor, f"reader of {topic.name}")
        self._partitions = [
            self._partition(each, options.start) for each in range(topic.partition_count)
        ]
        self._adding = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._topic

    def last_error(self) -> KledgerError | None:
        """Return the error of the last failed attempt to connect a partition, or None."""
        errors = (each.last_error for each in self._partitions)
        return next((each for each in errors if each is not None), None)

    async def open(self) -> None:
        """Connect to all partitions."""
        await open_all(self._partitions)
        self._check_open()
        self._watch = self._services.supervisor.spawn(
            watch_partitions(
                self._services,
                self._topic,
                len(self._partitions),
                self._add_partitions,
                interval_ms=self._partition_refresh_ms,
            ),
            f"partitions of {self._topic}",
        )

    async def read(self) -> ReadStep:
        """Wait for the next entry or read position, of any partition.

        Raises:
            AlreadyClosed: the reader is closed.
            KledgerError: the server has ended it for good, such as TopicNotFound.
        """
        while True:
            version = self._changed.version
            self._check_open()
            taken = self._queue.take()
            if taken is None and self._failure is not None:
                raise self._failure
            if isinstance(taken, ReadEntry):
                self._partitions[taken.partition].note_entry_received(taken.delivery)
            if taken is not None:
                return taken
            await self._changed.wait_beyond(version)

    async def add_partitions_upto(self, count: int) -> None:
        """Read new partitions now, until there are `count`. Raises KledgerError."""
        await self._add_partitions(range(count))

    def fail(self, error: KledgerError) -> None:
        """Let `read` raise this error once the queue is empty."""
        self._failure = error
        self._changed.notify()

    async def close(self) -> None:
        """Stop reading; may be repeated."""
        await self._closing.run(self._close)

    async def _close(self) -> None:
        self._changed.notify()
        if self._watch is not None:
            self._watch.cancel()
        await close_all(self._partitions)

    def _check_open(self) -> None:
        if self._closing.has_begun:
            raise AlreadyClosed(f"the reader of {self._topic} is closed")

    async def _add_partitions(self, known: range) -> None:
        """Open the partitions below the end of a range that are not open yet."""
        async with self._adding:
            for index in range(len(self._partitions), known.stop):
                self._check_open()
                partition = self._partition(index, EARLIEST)
                # Before it is open: `read` must know the partition of its first entry.
                self._partitions.append(partition)
                try:
                    await partition.open()
                except BaseException:
                    try:
                        await partition.close()
                    finally:
                        self._partitions.pop()
                    raise

    def _partition(self, index: int, start: SeekTarget) -> PartitionConsumer:
        return PartitionConsumer(
            self._services,
            self._options,
            topic=self._topic,
            partition=index,
            start=start,
            queue=self._queue,
            dead_letters=None,
            on_arrived=self._changed.notify,
            on_failed=self.fail,
            on_read_position=self._queue.add_read_position,
        )


class EntryQueue:
    """What was delivered and is not read yet, first in, first out."""

    def __init__(self, changed: Signal) -> None:
        """Args: changed: notified of read positions; deliveries have a callback of their own."""
        self._changed = changed
        self._steps: deque[tuple[ConsumerSession, ReadStep]] = deque()

    def add(self, source: ConsumerSession, delivery: Delivery) -> None:
        """Append a delivery."""
        self._steps.append((source, ReadEntry(source.partition, delivery)))

    def add_read_position(self, source: ConsumerSession, position: Position) -> None:
        """Append a read position; it replaces one of the same session at the end."""
        if not source.is_alive:
            return
        if self._steps and self._is_read_position(self._steps[-1], source):
            self._steps.pop()
        self._steps.append((source, ReadPosition(source.partition, position)))
        self._changed.notify()

    def take(self) -> ReadStep | None:
        """Return the next step; None: there is none."""
        return self._steps.popleft()[1] if self._steps else None

    def drop(self, source: ConsumerSession) -> int:
        """Remove what a session has added; return the number of its records."""
        dropped = [step for session, step in self._steps if session is source]
        if dropped:
            self._steps = deque(each for each in self._steps if each[0] is not source)
        return _record_count(dropped)

    def _is_read_position(
        self, step: tuple[ConsumerSession, ReadStep], of: ConsumerSession
    ) -> bool:
        return step[0] is of and isinstance(step[1], ReadPosition)


def _record_count(steps: Sequence[ReadStep]) -> int:
    return sum(each.delivery.record_count for each in steps if isinstance(each, ReadEntry))
