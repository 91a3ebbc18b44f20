"""Reader: a batch into its records, lazily.

Rule: a record is decoded when the caller asks for it; the number of records is what the body holds,
at most the header's count, and damage raises CorruptBatch.
Must not know: which records a consumer may see; it returns all of them, control records too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from kledger.batches.buffers import Buffer
from kledger.batches.builder import ABORT, COMMIT
from kledger.batches.compression import OUTPUT_SIZE_MAX, decompress, release
from kledger.batches.errors import CorruptBatch
from kledger.batches.header import BATCH_OVERHEAD, BatchHeader, read_header
from kledger.batches.pacing import Pause, no_pause, paced
from kledger.batches.record import (
    Record,
    RecordFields,
    locate_fields,
    read_headers,
    rest_of_varint,
)

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class RecordTime(NamedTuple):
    """Offset and timestamp of a record, without its contents."""

    offset: int
    timestamp: int


class ControlRecord(NamedTuple):
    """How a transaction has ended, and the epoch of the coordinator that decided so."""

    is_commit: bool
    coordinator_epoch: int


def iterate_batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Split consecutive stored batches, as in a fetch response; drop an incomplete last one."""
    view = memoryview(data)
    position = 0
    while len(view) - position >= BATCH_OVERHEAD:
        header = read_header(view, position)
        if header.size < BATCH_OVERHEAD:
            raise CorruptBatch(f"batch of {header.size} bytes at byte {position}")
        if position + header.size > len(view):
            return
        yield header, view[position : position + header.size]
        position += header.size


def iterate_records(batch: Buffer, size_max: int = OUTPUT_SIZE_MAX) -> Iterator[Record]:
    """Yield the records of exactly one batch, in offset order.

    Args:
        batch: one whole batch.
        size_max: how many bytes the records may take when uncompressed.

    Raises:
        CorruptBatch: while iterating, when the records do not fit the header.
    """
    header = read_header(batch)
    body = bytes(open_body(batch, header, size_max))
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for parts in iterate_parts(body, header.record_count):
        attributes, timestamp_delta, offset_delta, key_start, key_size, *rest = parts
        value_start, value_size, headers_start, end = rest
        yield Record(
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if append_time is None else append_time,
            None if key_size < 0 else body[key_start : key_start + key_size],
            None if value_size < 0 else body[value_start : value_start + value_size],
            read_headers(body, headers_start, end),
            attributes,
        )


def read_is_commit(batch: Buffer) -> bool:
    """Return whether a marker commits or aborts its transaction; errors as of `read_marker`."""
    return read_marker(batch).is_commit


def read_marker(batch: Buffer) -> ControlRecord:
    """Return what a marker says.

    Raises:
        CorruptBatch: it is no marker of either kind.
    """
    record = next(iterate_records(batch))
    key, value = record.key or b"", record.value or b""
    kind = int.from_bytes(key[2:4], "big") if len(key) >= 4 else -1
    if kind not in {ABORT, COMMIT}:
        raise CorruptBatch(f"marker of kind {kind}, expected {ABORT} or {COMMIT}")
    return ControlRecord(kind == COMMIT, int.from_bytes(value[2:6], "big", signed=True))


def iterate_times(
    batch: Buffer, size_max: int = OUTPUT_SIZE_MAX, pause: Pause = no_pause
) -> Iterator[RecordTime]:
    """Yield offset and timestamp of every record of one batch, skipping over the contents."""
    header = read_header(batch)
    with opened_body(batch, header, size_max, pause) as body:
        for fields in iterate_fields(body, header.record_count, pause):
            timestamp = record_timestamp(header, fields)
            yield RecordTime(header.base_offset + fields.offset_delta, timestamp)


def open_body(
    batch: Buffer,
    header: BatchHeader,
    size_max: int = OUTPUT_SIZE_MAX,
    pause: Pause = no_pause,
) -> Buffer:
    """Return the uncompressed records of a batch, without a copy when they were not compressed."""
    block = memoryview(batch)[BATCH_OVERHEAD : header.size]
    return decompress(header.codec, block, size_max, pause)


@contextmanager
def opened_body(
    batch: Buffer,
    header: BatchHeader,
    size_max: int = OUTPUT_SIZE_MAX,
    pause: Pause = no_pause,
) -> Iterator[Buffer]:
    """Open the body for the length of a block; its memory is freed at the end."""
    body = open_body(batch, header, size_max, pause)
    try:
        yield body
    finally:
        release(body)


def iterate_fields(body: Buffer, count: int, pause: Pause = no_pause) -> Iterator[RecordFields]:
    """Yield the location of each of `count` records.

    Raises:
        CorruptBatch: there are fewer or more records than `count`.
    """
    position = 0
    for index in paced(count, pause):
        if position >= len(body):
            raise CorruptBatch(f"records end after {index}, expected {count}")
        fields = locate_fields(body, position)
        position = fields.end
        yield fields
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes after the last of {count} records")


RecordParts: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""Where the parts of one record lie in the uncompressed body of its batch.

In this order: attributes, timestamp delta, offset delta, start and size of the key, start and size
of the value (a size of -1 is of a part that is not there), start of the headers (their count), and
the end of the record. A plain tuple, because a consumer takes one for each message.
"""


def iterate_parts(  # noqa: PLR0912 - varints are read in place
    body: Buffer, count: int, pause: Pause = no_pause
) -> Iterator[RecordParts]:
    """Yield where the parts of each of `count` records lie.

    It checks what `iterate_fields` and `read_rest` check before the headers, at a third of their
    cost: varints of one byte are read in place. Items of bytes are read faster than of a view.

    Raises:
        CorruptBatch: there are fewer or more records than `count`, or one is damaged before its
            headers.
    """
    position, body_end = 0, len(body)
    try:
        for _ in paced(count, pause):
            # A varint is twice its value; an odd one stands for a negative number.
            size = body[position]
            position += 1
            if size > 0x7F:
                size, position = rest_of_varint(body, position, size)
            end = position + (size >> 1)
            attributes, timestamp_delta = body[position], body[position + 1]
            position += 2
            if timestamp_delta > 0x7F:
                timestamp_delta, position = rest_of_varint(body, position, timestamp_delta)
            offset_delta = body[position]
            position += 1
            if offset_delta > 0x7F:
                offset_delta, position = rest_of_varint(body, position, offset_delta)
            key_size = body[position]
            position += 1
            if key_size > 0x7F:
                key_size, position = rest_of_varint(body, position, key_size)
            key_start = position
            if key_size & 1:
                key_size = -1
            else:
                key_size >>= 1
                position += key_size
            value_size = body[position]
            position += 1
            if value_size > 0x7F:
                value_size, position = rest_of_varint(body, position, value_size)
            value_start = position
            if value_size & 1:
                value_size = -1
            else:
                value_size >>= 1
                position += value_size
            # The count of headers is behind the value.
            if not position < end <= body_end or size & 1:
                raise CorruptBatch(f"record ends at byte {end}, its value at byte {position}")
            yield (
                attributes,
                (timestamp_delta >> 1) ^ -(timestamp_delta & 1),
                (offset_delta >> 1) ^ -(offset_delta & 1),
                key_start,
                key_size,
                value_start,
                value_size,
                position,
                end,
            )
            position = end
    except IndexError:
        raise CorruptBatch(f"records end too early, expected {count}") from None
    if position != body_end:
        raise CorruptBatch(f"{body_end - position} bytes after the last of {count} records")


def iterate_key_values(body: bytes, count: int, *, part_count: int) -> Iterator[list[KeyValue]]:
    """Yield key and value of each of `count` records, and nothing else of them.

    Args:
        body: uncompressed.
        count: of the header.
        part_count: the length of the lists, but for the last one.

    Raises:
        CorruptBatch: while iterating, when the records do not fit the count.
    """
    position = 0
    for first in range(0, count, part_count):
        part, position = _read_key_values(body, position, min(part_count, count - first))
        yield part
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes after the last of {count} records")


def _read_key_values(  # noqa: PLR0912 - varints are read in place
    body: bytes, position: int, count: int
) -> tuple[list[KeyValue], int]:
    """Read some records from a position on; return the position behind them too.

    Most of the time in which a table is loaded is spent here: varints of one byte, and of two where
    these are usual, are read in place, and times and offsets are skipped.
    """
    found: list[KeyValue] = []
    append, body_end = found.append, len(body)
    try:
        for _ in range(count):
            # A varint is twice its value; an odd one stands for a negative number.
            size = body[position]
            position += 1
            if size > 0x7F:
                high = body[position]
                if high > 0x7F:
                    size, position = rest_of_varint(body, position, size)
                else:
                    size = size & 0x7F | high << 7
                    position += 1
            end = position + (size >> 1)
            position += 1  # attributes
            while body[position] > 0x7F:  # timestamp delta
                position += 1
            position += 1
            while body[position] > 0x7F:  # offset delta
                position += 1
            key_size = body[position + 1]
            position += 2
            if key_size > 0x7F:
                key_size, position = rest_of_varint(body, position, key_size)
            key: bytes | None = None
            if not key_size & 1:
                start = position
                position += key_size >> 1
                key = body[start:position]
            value_size = body[position]
            position += 1
            if value_size > 0x7F:
                high = body[position]
                if high > 0x7F:
                    value_size, position = rest_of_varint(body, position, value_size)
                else:
                    value_size = value_size & 0x7F | high << 7
                    position += 1
            if value_size & 1:
                append((key, None))
            else:
                start = position
                position += value_size >> 1
                append((key, body[start:position]))
            # The count of headers is behind the value.
            if not position < end <= body_end or size & 1:
                raise CorruptBatch(f"record ends at byte {end}, its value at byte {position}")
            position = end
    except IndexError:
        raise CorruptBatch(f"records end after {len(found)}, expected {count}") from None
    return found, position


def record_timestamp(header: BatchHeader, fields: RecordFields) -> int:
    """Timestamp of a record: the batch's max under LogAppendTime, else its own."""
    if header.is_log_append_time:
        return header.max_timestamp
    return header.base_timestamp + fields.timestamp_delta
