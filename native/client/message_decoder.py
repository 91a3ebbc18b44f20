"""MessageDecoder: decodes deliveries, short ones on the event loop, long ones in a thread.

Rule: batches of Kafka clients and of native clients are decoded alike. Work on the event loop is
limited before it begins and charged to the tick; a batch that proves to be long is decoded again in
the thread. There it is checked as a whole first, so damage is found before any message is
delivered, and then decoded part by part, so that its messages never exist all at once.
Must not know: queues, consumers.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from itertools import islice
from typing import TypedDict

from kledger.batches.buffers import Buffer
from kledger.batches.compression import OUTPUT_SIZE_MAX, release
from kledger.batches.errors import BatchError, DecompressedTooLarge
from kledger.batches.header import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    FLAGS_AT,
    BatchHeader,
    read_header,
    read_record_count,
)
from kledger.batches.pacing import STEPS_PER_PAUSE, Pause, no_pause
from kledger.batches.reader import (
    RecordParts,
    iterate_fields,
    iterate_parts,
    open_body,
    opened_body,
)
from kledger.batches.record import (
    Header,
    check_headers,
    headers_start,
    read_headers,
    read_varint,
)
from kledger.native.errors import AlreadyClosed, Unreadable
from kledger.native.message import EVENT_TIME_BIT, Message, MessageEntry
from kledger.native.message_id import MessageId
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import ALL, Delivery

RECORDS_AT_ONCE_MAX = 1_000
"""Records of a batch that is decoded on the event loop: as many as a native producer batches."""
BYTES_AT_ONCE_MAX = 256 << 10
"""Bytes of such a batch: twice the limit of a native producer."""
PLAIN_BYTES_AT_ONCE_MAX = 64 << 10
"""The decompressed size of a batch that is decoded on the event loop."""
BYTES_PER_STEP = 1024
"""Copying so many bytes costs at most as much as decoding one record."""
STEPS_PER_TICK_MAX = 1_500
"""Records, headers and copies on the event loop in one tick: 4 ms at most."""
SHORT_STEPS_MAX = 70
TINY_BYTES_MAX = 512
"""A batch within either limit is not charged: `Consumer.receive` yields often enough for those."""
PART_MESSAGES = 1_000
PART_BYTES = 1 << 20
"""The limits of one part of a long batch; it has at least one message. A message is copied without
releasing the GIL."""


class _Origin(TypedDict):
    """The source of a delivery."""

    topic: str
    partition: int
    link: object | None


class _TakesLong(Exception):
    """The budget of the tick is used up."""


class _Dropped(Exception):
    """The rest of a batch is not needed."""


class MessageDecoder:
    """Decodes for all consumers of one client."""

    def __init__(self, long_calls: ComputePool, supervisor: Supervisor) -> None:
        """Args: long_calls: one call at a time; its costs are `STEPS_PER_TICK_MAX` a tick."""
        self._long_calls = long_calls
        self._supervisor = supervisor

    def decode_at_once(
        self, delivery: Delivery, *, topic: str, partition: int, link: object | None
    ) -> list[Message] | None:
        """Return the messages of a short batch; None: it takes too long for the event loop.

        Raises:
            Unreadable: the batch is damaged.
        """
        data = delivery.data
        size_max, size = OUTPUT_SIZE_MAX, len(data)
        if size > TINY_BYTES_MAX or (size >= BATCH_OVERHEAD and data[FLAGS_AT] & CODEC_MASK):
            count = read_record_count(data)
            if count > RECORDS_AT_ONCE_MAX or size > BYTES_AT_ONCE_MAX:
                return None
            if data[FLAGS_AT] & CODEC_MASK:
                size_max = size = PLAIN_BYTES_AT_ONCE_MAX
            # Further records and headers are charged by `pause`.
            cost = min(max(count, 0), STEPS_PER_PAUSE) + size // BYTES_PER_STEP
            if cost > SHORT_STEPS_MAX and not self._long_calls.fits_in_tick(cost):
                return None
            if count > STEPS_PER_PAUSE and _steps_guessed(data, count) > STEPS_PER_TICK_MAX:
                return None
        try:
            return decode_delivery(
                delivery,
                topic=topic,
                partition=partition,
                link=link,
                size_max=size_max,
                pause=self._charge,
            )
        except (DecompressedTooLarge, _TakesLong):
            return None

    async def decode_parts(
        self, delivery: Delivery, *, topic: str, partition: int, link: object | None
    ) -> AsyncGenerator[list[Message], None]:
        """Yield the messages of a long batch in parts; `aclose` it to stop early.

        Raises:
            Unreadable: the batch is damaged; nothing was yielded.
            AlreadyClosed: the client is closing.
        """
        calls = self._long_calls
        batch = _LongBatch(
            delivery, topic=topic, partition=partition, link=link, yield_gil=calls.yield_gil
        )
        try:
            await calls.run(batch.open)
            while part := await calls.run(batch.read_part):
                yield part
        except PoolClosed:
            raise AlreadyClosed(f"the client of {topic}-{partition} is closed") from None
        finally:
            batch.is_dropped = True
            with suppress(PoolClosed):  # then the client frees the memory
                await calls.run(batch.close)

    async def decode(
        self, delivery: Delivery, *, topic: str, partition: int, link: object | None
    ) -> list[Message]:
        """Return all messages of a batch. Raises as `decode_at_once` and `decode_parts`."""
        found = self.decode_at_once(delivery, topic=topic, partition=partition, link=link)
        if found is not None:
            return found
        parts = self.decode_parts(delivery, topic=topic, partition=partition, link=link)
        return [message async for part in parts for message in part]

    async def open_body(
        self, delivery: Delivery, *, topic: str, partition: int
    ) -> tuple[int, bytes]:
        """Return how many records a batch has, and its uncompressed body.

        A batch that takes long to decompress goes to the thread.

        Raises:
            Unreadable: the batch is damaged.
            AlreadyClosed: the client is closing.
        """
        data, calls = delivery.data, self._long_calls
        try:
            header = read_header(data)
            if not data[FLAGS_AT] & CODEC_MASK:
                return header.record_count, bytes(memoryview(data)[BATCH_OVERHEAD : header.size])
            if len(data) <= PLAIN_BYTES_AT_ONCE_MAX and calls.fits_in_tick(SHORT_STEPS_MAX):
                with (
                    suppress(DecompressedTooLarge),
                    opened_body(data, header, PLAIN_BYTES_AT_ONCE_MAX) as body,
                ):
                    return header.record_count, bytes(body)
            return header.record_count, await calls.run(_uncompressed, data, calls.yield_gil)
        except BatchError as error:
            raise unreadable(
                delivery, error, topic=topic, partition=partition, link=None
            ) from error
        except PoolClosed:
            raise AlreadyClosed(f"the client of {topic}-{partition} is closed") from None

    def begin(
        self,
        delivery: Delivery,
        *,
        topic: str,
        partition: int,
        link: object | None,
        changed: Callable[[], None],
    ) -> "LongDecoding":
        """Begin to decode a long batch.

        Args:
            delivery: one entry.
            topic: its short name.
            partition: its number in the topic.
            link: the link that delivered it.
            changed: called whenever the result of `LongDecoding.take` changes.
        """
        parts = self.decode_parts(delivery, topic=topic, partition=partition, link=link)
        what = f"decode {delivery.position} of {topic}-{partition}"
        return LongDecoding(parts, changed, lambda work: self._supervisor.spawn(work, what))

    def close(self) -> None:
        """Stop: running and later decodings fail with AlreadyClosed."""
        self._long_calls.close()

    def _charge(self) -> None:
        if not self._long_calls.fits_in_tick(STEPS_PER_PAUSE):
            raise _TakesLong


class LongDecoding:
    """A long batch that is being decoded, one part ahead of the consumer."""

    def __init__(
        self,
        parts: AsyncGenerator[list[Message], None],
        changed: Callable[[], None],
        spawn: Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"],
    ) -> None:
        self._parts = parts
        self._changed = changed
        self._part: list[Message] | None = None
        self._taken = Signal()
        self._error: Unreadable | None = None
        self._is_over = False
        self._task = spawn(self._run())

    def take(self) -> list[Message] | None:
        """Return the next part, empty at the end; None: it is being decoded.

        Raises:
            Unreadable: the batch is damaged; it has no messages.
        """
        if self._error is not None:
            raise self._error
        part, self._part = self._part, None
        if part is not None:
            self._taken.notify()
            return part
        return [] if self._is_over else None

    def drop(self) -> None:
        """Stop decoding soon."""
        self._task.cancel()

    async def _run(self) -> None:
        try:
            async with aclosing(self._parts) as parts:
                async for part in parts:
                    while self._part is not None:
                        await self._taken.wait()
                    self._part = part
                    self._changed()
        except Unreadable as error:
            self._error = error
        except AlreadyClosed:
            pass  # the consumer is being closed as well
        self._is_over = True
        self._changed()


class _LongBatch:
    """A batch that the thread decodes, one call at a time.

    Attributes:
        is_dropped: the rest is not needed; the event loop may set it at any time.
    """

    def __init__(
        self,
        delivery: Delivery,
        *,
        topic: str,
        partition: int,
        link: object | None,
        yield_gil: Pause,
    ) -> None:
        self.is_dropped = False
        self._delivery = delivery
        self._topic = topic
        self._partition = partition
        self._link = link
        self._give_way = yield_gil
        self._body: Buffer = b""
        self._messages: Iterator[Message] = iter(())

    def open(self) -> None:
        """Decompress the batch and check its delivered records. Raises Unreadable."""
        delivery = self._delivery
        origin = _Origin(topic=self._topic, partition=self._partition, link=self._link)
        try:
            header = read_header(delivery.data)
            body = self._body = open_body(delivery.data, header, pause=self._pause)
            for _, parts in _wanted_parts(delivery, header, body, self._pause):
                check_headers(body, parts[-2], parts[-1], self._pause)
        except BatchError as error:
            raise unreadable(delivery, error, **origin) from error
        self._messages = _iterate_messages(delivery, header, body, **origin, pause=self._pause)

    def read_part(self) -> list[Message]:
        """Return the next part; empty at the end."""
        found: list[Message] = []
        size = 0
        for message in islice(self._messages, PART_MESSAGES):
            found.append(message)
            size += len(message.value or b"") + len(message.key or b"")
            if size >= PART_BYTES:
                break
        return found

    def close(self) -> None:
        """Free the memory."""
        self._messages = iter(())
        release(self._body)

    def _pause(self) -> None:
        if self.is_dropped:
            raise _Dropped
        self._give_way()


def _uncompressed(data: Buffer, pause: Pause) -> bytes:
    with opened_body(data, read_header(data), OUTPUT_SIZE_MAX, pause) as body:
        return bytes(body)


def decode_delivery(
    delivery: Delivery,
    *,
    topic: str,
    partition: int,
    link: object | None,
    size_max: int = OUTPUT_SIZE_MAX,
    pause: Pause = no_pause,
) -> list[Message]:
    """Return the delivered messages of one entry.

    Args:
        delivery: the entry and its delivered records.
        topic: its short name.
        partition: its number in the topic.
        link: the link that delivered it.
        size_max: the limit of the decompressed size, in bytes.
        pause: see `batches.pacing`.

    Raises:
        Unreadable: the batch is damaged.
        DecompressedTooLarge: it exceeds `size_max`, which is below the general limit.
    """
    try:
        header = read_header(delivery.data)
        body = bytes(open_body(delivery.data, header, size_max, pause))
        found = _iterate_messages(
            delivery, header, body, topic=topic, partition=partition, link=link, pause=pause
        )
        return list(found)
    except DecompressedTooLarge as error:
        if size_max < OUTPUT_SIZE_MAX:
            raise
        raise unreadable(delivery, error, topic=topic, partition=partition, link=link) from error
    except BatchError as error:
        raise unreadable(delivery, error, topic=topic, partition=partition, link=link) from error


def _iterate_messages(
    delivery: Delivery,
    header: BatchHeader,
    body: Buffer,
    *,
    topic: str,
    partition: int,
    link: object | None,
    pause: Pause = no_pause,
) -> Iterator[Message]:
    """Yield the delivered messages of one entry.

    `pause` is called after every `STEPS_PER_PAUSE` records, or headers if there are more.

    Raises:
        BatchError: the batch is damaged.
    """
    entry = MessageEntry(
        topic,
        partition,
        delivery.position,
        index_count_of(header),
        delivery.redelivery_count,
        link,
    )
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    headers: tuple[Header, ...]
    header_count = 0
    for index, parts in _wanted_parts(delivery, header, body, pause):
        attributes, delta, offset_delta, key_start, key_size, value_start, size, at, end = parts
        if at + 1 == end and not body[at]:
            headers = ()
        else:
            headers = read_headers(body, at, end, pause)
            header_count += len(headers)
            if header_count >= STEPS_PER_PAUSE:
                header_count = 0
                pause()
        # With LogAppendTime the record still holds the timestamp that its producer set.
        timestamp = base_timestamp + delta
        yield Message(
            entry,
            index,
            None if key_size < 0 else bytes(body[key_start : key_start + key_size]),
            None if size < 0 else bytes(body[value_start : value_start + size]),
            headers,
            timestamp if append_time is None else append_time,
            timestamp if attributes & EVENT_TIME_BIT else None,
            base_offset + offset_delta,
        )


def index_count_of(header: BatchHeader) -> int:
    """Return how many records a batch had before compaction has removed some."""
    return max(header.record_count, header.last_offset_delta + 1)


def _wanted_parts(
    delivery: Delivery, header: BatchHeader, body: Buffer, pause: Pause = no_pause
) -> Iterator[tuple[int, RecordParts]]:
    """Yield index and parts of the delivered records; a compacted batch keeps its indexes."""
    found = iterate_parts(body, header.record_count, pause)
    every: Iterator[tuple[int, RecordParts]] = enumerate(found)
    if header.record_count <= header.last_offset_delta:
        every = ((parts[2], parts) for parts in found)
    return every if delivery.records == ALL else _picked(every, delivery.records)


def _picked(
    every: Iterator[tuple[int, RecordParts]], records: int
) -> Iterator[tuple[int, RecordParts]]:
    # By bytes: shifting a mask of a million bits would copy it for every record.
    wanted = records.to_bytes(records.bit_length() // 8 + 1, "little")
    end = 8 * len(wanted)
    for index, parts in every:
        if index < end and wanted[index >> 3] >> (index & 7) & 1:
            yield index, parts


def unreadable(
    delivery: Delivery, error: BatchError, *, topic: str, partition: int, link: object | None
) -> Unreadable:
    """Return the error of a damaged batch, with the id of its entry."""
    position = delivery.position
    size = 0
    with suppress(BatchError):
        size = index_count_of(read_header(delivery.data))
    whole = MessageId(*position, -1, partition, size, link)
    return Unreadable(f"entry {position} of {topic}-{partition}: {error}", whole)


def _steps_guessed(data: Buffer, count: int) -> int:
    """Return how many steps a batch takes if all its records have as many headers as the first.

    The guess only avoids useless work on the event loop; a compressed batch is not looked into.
    """
    if data[FLAGS_AT] & CODEC_MASK:
        return count
    body = memoryview(data)[BATCH_OVERHEAD:]
    try:
        fields = next(iterate_fields(body, 1))
        header_count, _ = read_varint(body, headers_start(body, fields))
    except BatchError:
        return count
    return count * (1 + header_count)
