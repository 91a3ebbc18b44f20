"""Record batches as columns: numpy finds the fields of all records of a group at once.

Rule: varints, times and the offsets of keys and values are computed for all records together, and
Arrow copies keys and values without a Python object for each. Records with headers take one step
more each, if headers are wanted.
Must not know: brokers, Spark, which batches a reader may see.

A record begins with its length, so its start is known only when the one before it was looked at.
So batches are walked side by side: one step finds the next record of every batch. A few batches
with many records each are walked one by one, with a step in Python for each record.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kledger.batches.buffers import Buffer
from kledger.batches.errors import CorruptBatch
from kledger.batches.header import BatchHeader
from kledger.batches.reader import open_body
from kledger.batches.record import read_headers, read_varint

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GROUP_BYTES: Final = 32 << 20
"""So many uncompressed bytes are decoded together; views address less than 2 GiB."""
SIDE_BY_SIDE_MIN: Final = 32
"""So many batches side by side are found faster than one by one."""
_INLINE_MAX: Final = 12
"""Arrow keeps values of up to twelve bytes inside their view."""
_PADDING: Final = bytes(16)
"""Lets varints be read at the end of the data without a check for each byte."""


Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
Int32s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]
Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


def _record_sizes() -> Int64s:
    """Return how many bytes a record has with its length, by the first two bytes of that.

    It is 0 where the length has more bytes or is negative.
    """
    low, high = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    is_long = low > 0x7F
    twice = np.where(is_long, low & 0x7F | high << 7, low)
    is_unknown = (is_long & (high > 0x7F)) | (twice & 1 == 1)
    return np.where(is_unknown, 0, 1 + is_long + (twice >> 1))


_RECORD_SIZES: Final = _record_sizes()


class RecordColumns(NamedTuple):
    """Columns of equal length, one row for each record.

    Attributes:
        batch: which of the decoded batches a record is in, counted from 0.
        batch_index: counts the records of a batch from 0, those too that are compacted.
    """

    offset: Int64s
    timestamp_ms: Int64s
    timestamp_type: Int32s
    batch: Int64s
    batch_index: Int32s
    key: pa.Array
    value: pa.Array
    headers: pa.Array | None


def decode_batches(
    batches: Iterable[tuple[BatchHeader, memoryview]], *, start: int, end: int, with_headers: bool
) -> Iterator[RecordColumns]:
    """Decode the records of data batches that have offsets in a range.

    Args:
        batches: header and bytes of each, in the order of the log.
        start: the first offset that is wanted.
        end: the first that is not.
        with_headers: decode the headers, too; a record without any has null.

    Returns:
        Columns with at least one row each.

    Raises:
        CorruptBatch: while iterating, when a batch is damaged.
    """
    group = _BatchGroup(0)
    for number, (header, batch) in enumerate(batches, 1):
        group.add(header, open_body(batch, header))
        if group.size >= GROUP_BYTES:
            yield from group.columns(start, end, with_headers)
            group = _BatchGroup(number)
    yield from group.columns(start, end, with_headers)


class _BatchGroup:
    """Uncompressed batches that are decoded together."""

    def __init__(self, first: int) -> None:
        self.size = 0
        self._first = first
        self._headers: list[BatchHeader] = []
        self._bodies: list[Buffer] = []

    def add(self, header: BatchHeader, body: Buffer) -> None:
        # Before memory is taken for them: a record has one byte at least.
        if not 0 <= header.record_count <= len(body):
            raise CorruptBatch(f"{header.record_count} records in {len(body)} bytes")
        self._headers.append(header)
        self._bodies.append(body)
        self.size += len(body)

    def columns(self, start: int, end: int, with_headers: bool) -> Iterator[RecordColumns]:
        if not self._headers:
            return
        counts = [header.record_count for header in self._headers]
        data = b"".join([*self._bodies, _PADDING])
        edges = [*accumulate(map(len, self._bodies), initial=0)]
        starts, ends = _find_records(data, edges, counts)
        found = _columns(
            np.frombuffer(data, dtype=np.uint8), self._headers, starts, ends,
            start=start, end=end, with_headers=with_headers,
        )  # fmt: skip
        if found is not None:
            yield found._replace(batch=found.batch + self._first)


def _find_records(data: bytes, edges: list[int], counts: list[int]) -> tuple[Int64s, Int64s]:
    """Return where each record starts, behind its length, and where it ends.

    Args:
        data: the bodies of batches without gaps, and _PADDING.
        edges: where each body starts, and the end of the last one.
        counts: how many records each has.

    Raises:
        CorruptBatch: the records of a batch do not fill its body.
    """
    if sum(counts) >= SIDE_BY_SIDE_MIN * max(counts):
        return _find_side_by_side(data, edges, counts)
    return _find_one_by_one(data, edges, counts)


def _find_side_by_side(data: bytes, edges: list[int], counts: list[int]) -> tuple[Int64s, Int64s]:
    """Find the next record of all batches with each step; those with most records are first."""
    order = np.argsort(counts, kind="stable")[::-1]
    position, limit = np.array(edges[:-1])[order], np.array(edges[1:])[order]
    # Where the first record of each batch is in the result, and how many batches a step has.
    row = np.cumsum([0, *counts[:-1]])[order]
    most = np.array(counts)[order]
    wide = len(most) - np.searchsorted(most[::-1], np.arange(most[0]), side="right")
    lengths_at = np.empty(sum(counts), dtype=np.int64)
    pairs = np.ndarray(len(data) - 1, dtype="<u2", buffer=data, strides=(1,))
    found = np.frombuffer(data, dtype=np.uint8)
    for step, batches in enumerate(wide.tolist()):
        here = position[:batches]
        lengths_at[row[:batches] + step] = here
        size = _RECORD_SIZES[pairs[here]]
        if np.count_nonzero(size) < batches:
            others = np.flatnonzero(size == 0)
            length, start = _varints(found, here[others], limit[others])
            size[others] = start - here[others] + np.maximum(length, 0)
        # One that does not fit is found below; until then it must not lead outside.
        np.minimum(here + size, limit[:batches], out=here)
    limit_of_each = np.repeat(edges[1:], counts)
    length, starts = _varints(found, lengths_at, limit_of_each)
    ends = starts + length
    if (length < 0).any() or (ends > limit_of_each).any():
        raise CorruptBatch("a record does not fit into its batch")
    if (position != limit).any():
        raise CorruptBatch("the records of a batch end before it does")
    return starts, ends


def _find_one_by_one(data: bytes, edges: list[int], counts: list[int]) -> tuple[Int64s, Int64s]:
    starts: list[int] = []
    ends: list[int] = []
    for start, end, count in zip(edges, edges[1:], counts, strict=False):
        at = start
        for _ in range(count):
            length = data[at]
            at += 1
            if length > 0x7F:
                high = data[at]
                if high > 0x7F:
                    twice, at = read_varint(data, at - 1)
                    length = twice << 1
                else:
                    length = length & 0x7F | high << 7
                    at += 1
            starts.append(at)
            at += length >> 1
            ends.append(at)
            if length & 1 or length < 0 or at > end:
                raise CorruptBatch(f"a record does not fit into its batch, before byte {at}")
        if at != end:
            raise CorruptBatch(f"{count} records end at byte {at}, expected {end}")
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def _columns(
    data: Bytes,
    headers: list[BatchHeader],
    starts: Int64s,
    ends: Int64s,
    *,
    start: int,
    end: int,
    with_headers: bool,
) -> RecordColumns | None:
    counts = [header.record_count for header in headers]

    def of_batch(values: list[int]) -> Int64s:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    timestamp_delta, position = _varints(data, starts + 1, ends)
    offset_delta, position = _varints(data, position, ends)
    offset = of_batch([header.base_offset for header in headers]) + offset_delta
    wanted = np.flatnonzero((offset >= start) & (offset < end))
    if not len(wanted):
        return None
    is_append_time = of_batch([int(header.is_log_append_time) for header in headers])
    timestamp = np.where(
        is_append_time,
        of_batch([header.max_timestamp for header in headers]),
        of_batch([header.base_timestamp for header in headers]) + timestamp_delta,
    )
    ends, position = ends[wanted], position[wanted]
    key_size, key_start = _varints(data, position, ends)
    value_size, value_start = _varints(data, key_start + np.maximum(key_size, 0), ends)
    rest = value_start + np.maximum(value_size, 0)
    if (rest >= ends).any() or (key_size < -1).any() or (value_size < -1).any():
        raise CorruptBatch("a key or a value does not fit into its record")
    if ((data[rest] == 0) & (rest + 1 != ends)).any():
        raise CorruptBatch("a record goes on behind its fields")
    return RecordColumns(
        offset[wanted],
        timestamp[wanted],
        is_append_time[wanted].astype(np.int32),
        of_batch([*range(len(headers))])[wanted],
        offset_delta[wanted].astype(np.int32),
        _binary(data, key_start, key_size),
        _binary(data, value_start, value_size),
        _headers(data, rest, ends) if with_headers else None,
    )


def _varints(
    data: Bytes,
    position: Int64s,
    ends: Int64s,
) -> tuple[Int64s, Int64s]:
    """Read a zigzag varint at each position; return them, and the positions behind them.

    Raises:
        CorruptBatch: one does not end within its record, or within ten bytes.
    """
    if (position >= ends).any():
        raise CorruptBatch("a record ends before its fields do")
    byte = data[position]
    value = (byte & 0x7F).astype(np.uint64)
    position = position + 1
    more = np.flatnonzero(byte > 0x7F)
    for shift in range(7, 70, 7):
        if not len(more):
            break
        if (position[more] >= ends[more]).any():
            raise CorruptBatch("a record ends before its fields do")
        byte = data[position[more]]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[more] += 1
        more = more[byte > 0x7F]
    if len(more):
        raise CorruptBatch("a varint is longer than 10 bytes")
    signed = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return signed, position


def _binary(
    data: Bytes,
    start: Int64s,
    size: Int64s,
) -> pa.Array:
    """Return slices of the data as an Arrow array; a size of -1 is null.

    Views point into the data; turning them into a plain binary array copies each slice once, in
    Arrow. Source: Arrow's columnar format, "Variable-size Binary View Layout".
    """
    if (size < 0).all():
        return pa.nulls(len(size), pa.binary())
    views = np.zeros((len(start), 4), dtype=np.int32)
    views[:, 0] = np.maximum(size, 0)
    short = np.flatnonzero((size > 0) & (size <= _INLINE_MAX))
    if len(short):
        within = np.arange(_INLINE_MAX)
        at = np.minimum(start[short][:, None] + within, len(data) - 1)
        inline = np.where(within < size[short][:, None], data[at], 0).astype(np.uint8)
        views.view(np.uint8).reshape(-1, 16)[short, 4:] = inline
    is_long = size > _INLINE_MAX
    # Arrow compares by a prefix of four bytes, which a cast does not read.
    views[is_long, 3] = start[is_long]
    validity = None
    if (size < 0).any():
        validity = pa.py_buffer(np.packbits(size >= 0, bitorder="little"))
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(start), buffers).cast(pa.binary())


def int_column(values: Int64s | Int32s) -> pa.Array:
    """Return whole numbers as an Arrow array, which shares their memory.

    `pyarrow.array` would do, but it imports pandas, which takes half of a short task's time.
    """
    kind = pa.int64() if values.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _headers(data: Bytes, rest: Int64s, ends: Int64s) -> pa.Array:
    """Return the headers of each record; `rest` is where their count is."""
    with_some = np.flatnonzero(data[rest])
    if not len(with_some):
        return pa.nulls(len(rest), HEADERS_TYPE)
    found: list[list[tuple[str, bytes | None]] | None] = [None] * len(rest)
    body = data.data
    for row in with_some.tolist():
        found[row] = [
            # Spark's source reads names as UTF-8, odd bytes as replacement characters.
            (name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
            for name, value in read_headers(body, int(rest[row]), int(ends[row]))
        ]
    return pa.array(found, HEADERS_TYPE)
