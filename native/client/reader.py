"""Reader: reads a topic from a start position, without a durable subscription.

Rule: the read position lives in this process only; the application acknowledges nothing.
Must not know: links.
"""

import asyncio
from collections.abc import Sequence
from typing import Self

from kledger.native.broker import EARLIEST, LATEST, Broker, RecordPosition, SeekTarget
from kledger.native.client.close_once import ClosesOnExit
from kledger.native.client.consumer import Consumer
from kledger.native.client.partition_consumer import PartitionConsumer
from kledger.native.client.services import ClientServices
from kledger.native.client.subscribe_options import target_of
from kledger.native.message import Message
from kledger.native.message_id import MessageId


class Reader(ClosesOnExit):
    """Made by `Client.create_reader`; also an asynchronous context manager and iterator."""

    def __init__(self, services: ClientServices, consumer: Consumer) -> None:
        """Args: consumer: exclusive and not durable."""
        self._broker = services.broker
        self._consumer = consumer

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._consumer.topic

    async def read_next(self, *, timeout_ms: int | None = None) -> Message:
        """Wait for the next message and return it.

        Raises:
            Timeout: no message arrived within the time limit.
            AlreadyClosed: the reader is closed, also while this call waits.
        """
        return await self._consumer.receive(timeout_ms=timeout_ms)

    async def has_message_available(self) -> bool:
        """Whether `read_next` would return without waiting for a producer."""
        if self._consumer.queued:
            return True
        if self._consumer.reads_compacted:
            # The newest record may be one that compaction has removed.
            return not await self._consumer.is_read_upto(
                await self._broker.committed_ends(self.topic)
            )
        for partition in self._consumer.partitions:
            if await self._is_behind(partition):
                return True
        return False

    async def seek(self, to: MessageId | int | str, *, inclusive: bool = True) -> None:
        """Continue at another position; the arguments are those of `Consumer.seek`."""
        if target_of(to) == LATEST:
            partitions = [each.partition for each in self._consumer.partitions]
            starts = await latest_positions(self._broker, self.topic, partitions)
            await self._consumer.restart_at(starts, inclusive=False)
        else:
            await self._consumer.seek(to, inclusive=inclusive)

    async def close(self) -> None:
        """Close the reader; may be repeated."""
        await self._consumer.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Read the next message; closing the reader ends the iteration."""
        return await anext(self._consumer)

    async def _is_behind(self, partition: PartitionConsumer) -> bool:
        start, is_inclusive = partition.start
        last = (await self._broker.last_record(self.topic, partition.partition)).record_position
        if last.position.entry_id < 0:
            return False
        if isinstance(start, RecordPosition):
            if start.batch_index < 0:
                start = start._replace(batch_index=last.batch_index)
            return last > start or (is_inclusive and last == start)
        if start == EARLIEST:
            return True
        # The start is a time and nothing was read yet: only the server knows the next message.
        return bool(await self._broker.peek(self.topic, self._consumer.subscription, 1))


async def latest_positions(
    broker: Broker, topic: str, partitions: Sequence[int]
) -> dict[int, SeekTarget]:
    """Return the newest record of each partition, or EARLIEST for an empty one.

    A reader at LATEST begins behind these records, so its position is known before it has read
    anything.
    """
    records = await asyncio.gather(*(broker.last_record(topic, each) for each in partitions))
    return {
        partition: record.record_position if record.offset >= 0 else EARLIEST
        for partition, record in zip(partitions, records, strict=True)
    }
