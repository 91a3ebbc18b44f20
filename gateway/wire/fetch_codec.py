"""Fetch: requests as flat tuples, responses as lists of buffers.

`topic` is the name in UTF-8 up to version 12 and the 16 bytes of the topic id from version 13 on;
the response repeats it. Stored batches become buffers of the response as they are; one small buffer
between two of them has the end of one partition and the head of the next.

    partition of a request, version 12 and later, 33 bytes
    0 partition   4 current_leader_epoch   8 fetch_offset   16 last_fetched_epoch
    20 log_start_offset   28 partition_max_bytes   32 tagged fields

Rule: gives the same bytes and values as the compiled codec; a test compares them per version.
Fields that only followers and controllers send (cluster id, replica state, directory id, high
watermark) are skipped. Records are never null: clients fail on it.
Must not know: what a record batch looks like, how long a fetch may wait.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct, error
from typing import Final, NoReturn

from kledger.gateway.wire.codec import explain_fault
from kledger.gateway.wire.leader_hints import (
    LeaderHints,
    partition_tags,
    response_tags,
)
from kledger.gateway.wire.primitives import (
    ELEMENTS_MAX,
    Buffer,
    DecodeError,
    encode_uvarint,
    read_uvarint,
    skip_tags,
    wrong_count,
    wrong_length,
)

FetchPartition = tuple[bytes, int, int, int, int, int, int]
"""Topic, partition, current leader epoch, fetch offset, last fetched epoch, log start offset,
partition max bytes; -1 for a field that the version does not have."""

FetchResult = tuple[
    bytes, int, int, int, int, int, Sequence[tuple[int, int]] | None, Sequence[Buffer], int
]
"""Topic, partition, error code, high watermark, last stable offset, log start offset, aborted
transactions as (producer id, first offset) or null, chunks of records, their size in bytes."""

FLEXIBLE_SINCE: Final = 12
TOPIC_ID_SINCE: Final = 13
LEADER_HINTS_SINCE: Final = 16
"""KIP-951: the fields are older, but no server fills them in for an older client."""
CURRENT_LEADER_TAG: Final = 1

_FAULTS: Final = (DecodeError, error, IndexError, UnicodeDecodeError)
_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_ONE_INT32: Final = Struct(">i")
_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqiB")
_TWO_INT32: Final = Struct(">ii").unpack_from
_REPLICA_TO_ISOLATION_V4: Final = Struct(">iiiib").unpack_from
_WAIT_TO_TOPICS_V12: Final = Struct(">iiibiiB").unpack_from


class ParsedFetchRequest:
    """A Fetch request as flat tuples, in request order."""

    __slots__ = (
        "forgotten", "isolation_level", "max_bytes", "max_wait_ms", "min_bytes", "partitions",
        "rack_id", "replica_id", "session_epoch", "session_id",
    )  # fmt: skip

    def __init__(
        self,
        head: tuple[int, int, int, int, int, int, int],
        partitions: list[FetchPartition],
        forgotten: list[tuple[bytes, int]],
        rack_id: str,
    ) -> None:
        (
            self.replica_id, self.max_wait_ms, self.min_bytes, self.max_bytes,
            self.isolation_level, self.session_id, self.session_epoch,
        ) = head  # fmt: skip
        self.partitions = partitions
        self.forgotten = forgotten
        self.rack_id = rack_id


# Filling slots costs half of what a constructor does.
_new_request: Final = object.__new__


def parse_fetch_request(buf: memoryview, version: int, pos: int = 0) -> ParsedFetchRequest:
    """Read a Fetch body of version 4 to 18.

    Raises:
        MalformedMessage: the bytes do not follow the schema.
    """
    try:
        if version < FLEXIBLE_SINCE:
            return _parse_fixed(buf, version, pos)
        return _parse_flexible(buf, version, pos)
    except _FAULTS as fault:
        _explain(buf, version, pos, fault)


def _explain(buf: memoryview, version: int, pos: int, fault: Exception) -> NoReturn:
    """Raise the same fault from the compiled codec, which names the field."""
    from kledger.gateway.wire.messages import k01_fetch  # noqa: PLC0415 (for faults only)

    explain_fault(k01_fetch.FetchRequest, version, buf, pos, fault)


def _parse_flexible(buf: memoryview, version: int, pos: int) -> ParsedFetchRequest:
    end = len(buf)
    request = _new_request(ParsedFetchRequest)
    request.replica_id = -1
    if version < 15:
        (request.replica_id,) = _INT32(buf, pos)
        pos += 4
    (
        request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level,
        request.session_id, request.session_epoch, count,
    ) = _WAIT_TO_TOPICS_V12(buf, pos)  # fmt: skip
    pos += 22
    if count > 127:
        count, pos = read_uvarint(buf, pos - 1)
    _check_count(count - 1, 3, end - pos)
    has_ids = version >= TOPIC_ID_SINCE
    partitions: list[FetchPartition] = []
    request.partitions = partitions
    for _ in range(count - 1):
        topic, pos = _compact_key(buf, pos, end, has_ids)
        pos = _partitions_flexible(buf, pos, end, topic, partitions)
    request.forgotten = []
    count, pos = read_uvarint(buf, pos)
    if count != 1:
        pos = _forgotten_flexible(buf, pos, count - 1, has_ids, request.forgotten)
    rack, pos = _compact_key(buf, pos, end, False)
    request.rack_id = rack.decode()
    if buf[pos]:
        skip_tags(buf, pos + 1, end, buf[pos])
    return request


def _forgotten_flexible(
    buf: memoryview, pos: int, count: int, has_ids: bool, forgotten: list[tuple[bytes, int]]
) -> int:
    """Append the forgotten partitions; return the position behind them."""
    end = len(buf)
    _check_count(count, 3, end - pos)
    for _ in range(count):
        topic, pos = _compact_key(buf, pos, end, has_ids)
        inner, pos = read_uvarint(buf, pos)
        indexes, pos = _int32s(buf, pos, inner - 1, len(forgotten))
        forgotten += [(topic, index) for index in indexes]
        pos = skip_tags(buf, pos + 1, end, buf[pos])
    return pos


def _compact_key(buf: memoryview, pos: int, end: int, has_ids: bool) -> tuple[bytes, int]:
    """Read a topic name or id, as bytes; return it and the position behind it."""
    if has_ids:
        stop = pos + 16
    else:
        size = buf[pos]
        pos += 1
        if size > 127:
            size, pos = read_uvarint(buf, pos - 1)
        stop = pos + size - 1
    if not pos <= stop <= end:
        raise wrong_length(stop - pos, end - pos)
    return bytes(buf[pos:stop]), stop


def _partitions_flexible(
    buf: memoryview, pos: int, end: int, topic: bytes, partitions: list[FetchPartition]
) -> int:
    """Append the partitions of one topic; return the position behind the topic."""
    count, width = buf[pos], _PARTITION_V12.size
    pos += 1
    if count > 127:
        count, pos = read_uvarint(buf, pos - 1)
    count -= 1
    _check_count(count, width, end - pos, len(partitions))
    stop = pos + count * width
    if count == 1 and not buf[stop - 1]:
        one, epoch, offset, fetched, start, size, _ = _PARTITION_V12.unpack_from(buf, pos)
        partitions.append((topic, one, epoch, offset, fetched, start, size))
    elif any(buf[pos + width - 1 : stop : width]):
        # Some partition has tagged fields, so they are not all of one width.
        for _ in range(count):
            *row, tags = _PARTITION_V12.unpack_from(buf, pos)
            partitions.append((topic, *row))
            pos = skip_tags(buf, pos + width, end, tags)
        stop = pos
    else:
        partitions += [
            (topic, one, epoch, offset, fetched, start, size)
            for one, epoch, offset, fetched, start, size, _ in _PARTITION_V12.iter_unpack(
                buf[pos:stop]
            )
        ]
    tags = buf[stop]
    return skip_tags(buf, stop + 1, end, tags) if tags else stop + 1


def _int32s(buf: memoryview, pos: int, count: int, before: int) -> tuple[tuple[int, ...], int]:
    """Read int32 values that follow each other; return them and the position behind them."""
    _check_count(count, 4, len(buf) - pos, before)
    stop = pos + 4 * count
    return tuple(one for (one,) in _ONE_INT32.iter_unpack(buf[pos:stop])), stop


def _check_count(count: int, size_min: int, left: int, before: int = 0) -> None:
    if count < 0 or count * size_min > left or count + before > ELEMENTS_MAX:
        raise wrong_count(count, left)


def _parse_fixed(buf: memoryview, version: int, pos: int) -> ParsedFetchRequest:
    end = len(buf)
    request = _new_request(ParsedFetchRequest)
    (
        request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes,
        request.isolation_level,
    ) = _REPLICA_TO_ISOLATION_V4(buf, pos)  # fmt: skip
    pos += 17
    request.session_id, request.session_epoch = 0, -1
    if version >= 7:
        request.session_id, request.session_epoch = _TWO_INT32(buf, pos)
        pos += 8
    (count,) = _INT32(buf, pos)
    pos += 4
    _check_count(count, 6, end - pos)
    request.partitions = []
    for _ in range(count):
        topic, pos = _key(buf, pos, end)
        pos = _partitions_fixed(buf, version, pos, topic, request.partitions)
    request.forgotten = []
    if version >= 7:
        (count,) = _INT32(buf, pos)
        pos += 4
        _check_count(count, 6, end - pos)
        for _ in range(count):
            topic, pos = _key(buf, pos, end)
            (inner,) = _INT32(buf, pos)
            indexes, pos = _int32s(buf, pos + 4, inner, len(request.forgotten))
            request.forgotten += [(topic, index) for index in indexes]
    request.rack_id = _key(buf, pos, end)[0].decode() if version >= 11 else ""
    return request


def _key(buf: memoryview, pos: int, end: int) -> tuple[bytes, int]:
    """Read a string as bytes; return it and the position behind it."""
    (size,) = _INT16(buf, pos)
    pos += 2
    if not 0 <= size <= end - pos:
        raise wrong_length(size, end - pos)
    return bytes(buf[pos : pos + size]), pos + size


def _partitions_fixed(
    buf: memoryview, version: int, pos: int, topic: bytes, partitions: list[FetchPartition]
) -> int:
    """Append the partitions of one topic; return the position behind the topic."""
    layout = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    count: int = _INT32(buf, pos)[0]
    pos += 4
    _check_count(count, layout.size, len(buf) - pos, len(partitions))
    stop = pos + count * layout.size
    rows = layout.iter_unpack(buf[pos:stop])
    if version >= 9:
        partitions += [
            (topic, one, epoch, offset, -1, start, size) for one, epoch, offset, start, size in rows
        ]
    elif version >= 5:
        partitions += [
            (topic, one, -1, offset, -1, start, size) for one, offset, start, size in rows
        ]
    else:
        partitions += [(topic, one, -1, offset, -1, -1, size) for one, offset, size in rows]
    return stop


_RESULT_V4: Final = Struct(">ihqqi")
_RESULT_V5: Final = Struct(">ihqqqi")
_RESULT_V12: Final = Struct(">ihqqqBi")
_RESULT_V12_ABORTED: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_INT16_PACK: Final = Struct(">h").pack
_INT32_PACK: Final = Struct(">i").pack
_TWO_INT32_PACK: Final = Struct(">ii").pack
_BODY_HEAD_V7: Final = Struct(">ihi")
_FRAME_HEAD_V0: Final = Struct(">ii")
_FRAME_HEAD_V1: Final = Struct(">iiB")
NO_READ_REPLICA: Final = -1


def fetch_response_frame(
    correlation_id: int,
    version: int,
    results: Sequence[FetchResult],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    hints: LeaderHints | None = None,
) -> list[Buffer]:
    """Write a whole response with its size and header; see `encode_fetch_response`."""
    parts = encode_fetch_response(
        version, results,
        throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id,
        hints=hints,
    )  # fmt: skip
    size = sum(map(len, parts))
    if version >= FLEXIBLE_SINCE:
        parts[0] = _FRAME_HEAD_V1.pack(size + 5, correlation_id, 0) + parts[0]
    else:
        parts[0] = _FRAME_HEAD_V0.pack(size + 4, correlation_id) + parts[0]
    return parts


def encode_fetch_response(
    version: int,
    results: Sequence[FetchResult],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    hints: LeaderHints | None = None,
) -> list[Buffer]:
    """Write the body of a response as buffers that follow each other.

    Args:
        version: API version.
        results: one per partition, in request order; neighbours with equal topics share one
            topic entry. The chunks are passed on, not copied.
        throttle_time_ms: KIP-219.
        error_code: of the whole response, from version 7 on.
        session_id: of the fetch session (KIP-227), 0 for none.
        hints: the leaders that it names; none before version 16.
    """
    topics = [(topic, list(group)) for topic, group in groupby(results, itemgetter(0))]
    if version >= 7:
        head = _BODY_HEAD_V7.pack(throttle_time_ms, error_code, session_id)
    else:
        head = _INT32_PACK(throttle_time_ms)
    if version >= FLEXIBLE_SINCE:
        return _encode_flexible(head, version, topics, hints)
    return _encode_fixed(head, version, topics)


def _encode_flexible(
    head: bytes,
    version: int,
    topics: list[tuple[bytes, list[FetchResult]]],
    hints: LeaderHints | None,
) -> list[Buffer]:
    parts: list[Buffer] = []
    before = head + encode_uvarint(len(topics) + 1)
    for topic, group in topics:
        if version < TOPIC_ID_SINCE:
            before += encode_uvarint(len(topic) + 1)
        before += topic + encode_uvarint(len(group) + 1)
        for _, index, code, high, stable, start, aborted, chunks, size in group:
            if aborted is None:
                row = _RESULT_V12.pack(index, code, high, stable, start, 0, NO_READ_REPLICA)
            else:
                row = _RESULT_V12_ABORTED.pack(index, code, high, stable, start)
                row += encode_uvarint(len(aborted) + 1)
                row += b"".join([_ABORTED.pack(*one) + b"\0" for one in aborted])
                row += _INT32_PACK(NO_READ_REPLICA)
            parts.append(before + row + encode_uvarint(size + 1))
            parts += chunks
            before = b"\0"
            if hints is not None:
                before = partition_tags(hints, topic, index, CURRENT_LEADER_TAG)
        before += b"\0"
    parts.append(before + (b"\0" if hints is None else response_tags(hints)))
    return parts


def _encode_fixed(
    head: bytes, version: int, topics: list[tuple[bytes, list[FetchResult]]]
) -> list[Buffer]:
    parts: list[Buffer] = []
    before = head + _INT32_PACK(len(topics))
    for topic, group in topics:
        before += _INT16_PACK(len(topic)) + topic + _INT32_PACK(len(group))
        for _, index, code, high, stable, start, aborted, chunks, size in group:
            count = -1 if aborted is None else len(aborted)
            if version >= 5:
                row = _RESULT_V5.pack(index, code, high, stable, start, count)
            else:
                row = _RESULT_V4.pack(index, code, high, stable, count)
            if aborted:
                row += b"".join([_ABORTED.pack(*one) for one in aborted])
            if version >= 11:
                row += _TWO_INT32_PACK(NO_READ_REPLICA, size)
            else:
                row += _INT32_PACK(size)
            parts.append(before + row)
            parts += chunks
            before = b""
    if before:
        parts.append(before)
    return parts
