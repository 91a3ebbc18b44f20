"""Produce by hand: the request as places in the frame, the response in one pack.

The request is read down to (topic, partition index, start, length) per partition; records are
not touched and nothing of their size is copied. `topic` is the name in UTF-8 up to version 12
and the 16 bytes of the topic id from version 13 on; it goes into the response as it came.

Most requests hold one batch of no transaction. What lies before its records is the same from one
request of a producer to the next; `find_single_batch` cuts it off without looking at what it says.

    response frame for one partition without a message, version 9 to 12
    size  correlation_id  tags | 2 | name+1 name | 2 | index error base_offset append_time
    log_start | no record_errors | no message | tags | tags | throttle_time_ms | tags

Rule: gives the same bytes and values as the compiled codec; a test compares them per version.
Must not know: what a record batch looks like, why a partition failed.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from struct import Struct, error
from typing import Final, NamedTuple, NoReturn

from kledger.gateway.wire.codec import explain_fault
from kledger.gateway.wire.primitives import (
    ELEMENTS_MAX,
    DecodeError,
    encode_uvarint,
    read_uvarint,
    skip_tags,
    wrong_count,
    wrong_length,
)

PINNED_FRAME_FACTOR = 8
"""A batch may keep a frame of at most so many times its size in memory."""

PartitionRecords = tuple[bytes, int, int, int]
"""Topic, partition index, where the records start in the buffer, their length; -1 for null."""

PartitionResult = tuple[
    bytes, int, int, int, int, int, str | None, Sequence[tuple[int, str | None]]
]
"""Topic, partition index, error code, base offset, log append time, log start offset, error
message, and (batch index, message) per refused record."""

SingleBatch = tuple[bytes, int, int]
"""The head of a request with one batch, which is its body up to the partition's index and says
everything but the records; where the records start in the buffer, and their length."""

LOG_START_SINCE: Final = 5
FLEXIBLE_SINCE: Final = 9
TOPIC_ID_SINCE: Final = 13

_FAULTS: Final = (DecodeError, error, IndexError, UnicodeDecodeError)
_ACKS_TO_TOPICS_V3: Final = Struct(">hii").unpack_from
_ACKS_TO_TOPICS_V9: Final = Struct(">hiB").unpack_from
_INDEX_AND_SIZE_V3: Final = Struct(">ii").unpack_from
_INDEX_AND_SIZE_V9: Final = Struct(">iB").unpack_from
_NULL_TO_NAME_SIZE_V3: Final = Struct(">h6xih").unpack_from
_PARTITIONS_TO_SIZE_V3: Final = Struct(">i4xi").unpack_from
_NULL_TO_NAME_SIZE_V9: Final = Struct(">B6xBB").unpack_from
_PARTITIONS_TO_SIZE_V9: Final = Struct(">B4xB").unpack_from
_NO_TAGS: Final = bytes(3)
_ID_SIZE: Final = 16
_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from


class ParsedProduceRequest:
    """A Produce request whose records are still in the frame."""

    __slots__ = ("acks", "partitions", "timeout_ms", "transactional_id")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        partitions: list[PartitionRecords],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.partitions = partitions

    def with_records(self, start: int, length: int) -> "ParsedProduceRequest":
        """Return a request like this one, of one partition, whose records are elsewhere."""
        other = _new_request(ParsedProduceRequest)
        other.transactional_id = self.transactional_id
        other.acks = self.acks
        other.timeout_ms = self.timeout_ms
        topic, index, _, _ = self.partitions[0]
        other.partitions = [(topic, index, start, length)]
        return other


# Filling slots costs half of what a constructor does.
_new_request: Final = object.__new__


def parse_produce_request(buf: memoryview, version: int, pos: int = 0) -> ParsedProduceRequest:
    """Find the records of each partition in a Produce body of version 3 to 13.

    Args:
        buf: the frame; the positions in the result count from its start.
        version: API version.
        pos: where the body starts.

    Raises:
        MalformedMessage: the bytes do not follow the schema.
    """
    try:
        if version < FLEXIBLE_SINCE:
            return _parse_fixed(buf, pos)
        return _parse_flexible(buf, version >= TOPIC_ID_SINCE, pos)
    except _FAULTS as fault:
        _explain(buf, version, pos, fault)


def _explain(buf: memoryview, version: int, pos: int, fault: Exception) -> NoReturn:
    """Let the compiled codec find the same fault and name the field."""
    from kledger.gateway.wire.messages import k00_produce  # noqa: PLC0415 (if it fails)

    explain_fault(k00_produce.ProduceRequest, version, buf, pos, fault)


def _parse_flexible(buf: memoryview, has_ids: bool, pos: int) -> ParsedProduceRequest:
    end = len(buf)
    request = _new_request(ParsedProduceRequest)
    request.transactional_id = None
    size = buf[pos]
    pos += 1
    if size:
        request.transactional_id, pos = _compact_text(buf, pos, end, size)
    request.acks, request.timeout_ms, count = _ACKS_TO_TOPICS_V9(buf, pos)
    pos += 7
    if count > 127:
        count, pos = read_uvarint(buf, pos - 1)
    if not 0 <= (count - 1) * 3 <= end - pos:
        raise wrong_count(count - 1, end - pos)
    partitions: list[PartitionRecords] = []
    request.partitions = partitions
    for _ in range(count - 1):
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
        pos = _partitions_flexible(buf, stop, end, bytes(buf[pos:stop]), partitions)
    if buf[pos]:
        skip_tags(buf, pos + 1, end, buf[pos])
    return request


def _partitions_flexible(
    buf: memoryview, pos: int, end: int, topic: bytes, partitions: list[PartitionRecords]
) -> int:
    """Append the partitions of one topic; return the position behind the topic."""
    count = buf[pos]
    pos += 1
    if count > 127:
        count, pos = read_uvarint(buf, pos - 1)
    count -= 1
    if not 0 <= count * 6 <= end - pos or count + len(partitions) > ELEMENTS_MAX:
        raise wrong_count(count, end - pos)
    for _ in range(count):
        index, size = _INDEX_AND_SIZE_V9(buf, pos)
        pos += 5
        if size > 127:
            size, pos = read_uvarint(buf, pos - 1)
        stop = pos + size - 1 if size else pos
        if stop > end:
            raise wrong_length(stop - pos, end - pos)
        partitions.append((topic, index, pos, size - 1))
        tags = buf[stop]
        pos = stop + 1
        if tags:
            pos = skip_tags(buf, pos, end, tags)
    tags = buf[pos]
    pos += 1
    return skip_tags(buf, pos, end, tags) if tags else pos


def _compact_text(buf: memoryview, pos: int, end: int, size: int) -> tuple[str, int]:
    if size > 127:
        size, pos = read_uvarint(buf, pos - 1)
    stop = pos + size - 1
    if not pos <= stop <= end:
        raise wrong_length(stop - pos, end - pos)
    return str(buf[pos:stop], "utf-8"), stop


def _parse_fixed(buf: memoryview, pos: int) -> ParsedProduceRequest:
    end = len(buf)
    request = _new_request(ParsedProduceRequest)
    request.transactional_id = None
    (size,) = _INT16(buf, pos)
    pos += 2
    if size != -1:
        if not 0 <= size <= end - pos:
            raise wrong_length(size, end - pos)
        request.transactional_id = str(buf[pos : pos + size], "utf-8")
        pos += size
    request.acks, request.timeout_ms, topic_count = _ACKS_TO_TOPICS_V3(buf, pos)
    pos += 10
    if not 0 <= topic_count * 6 <= end - pos:
        raise wrong_count(topic_count, end - pos)
    partitions: list[PartitionRecords] = []
    request.partitions = partitions
    for _ in range(topic_count):
        (size,) = _INT16(buf, pos)
        pos += 2
        if not 0 <= size <= end - pos:
            raise wrong_length(size, end - pos)
        topic = bytes(buf[pos : pos + size])
        pos += size
        (count,) = _INT32(buf, pos)
        pos += 4
        if not 0 <= count * 8 <= end - pos or count + len(partitions) > ELEMENTS_MAX:
            raise wrong_count(count, end - pos)
        for _ in range(count):
            index, size = _INDEX_AND_SIZE_V3(buf, pos)
            pos += 8
            if not -1 <= size <= end - pos:
                raise wrong_length(size, end - pos)
            partitions.append((topic, index, pos, size))
            if size > 0:
                pos += size
    return request


def owned_records(frame: memoryview, records: PartitionRecords, *, is_owned: bool) -> memoryview:
    """Return the memory of a batch that nobody else will write to."""
    _, _, start, length = records
    batch = frame[start : start + length]
    if is_owned and length * PINNED_FRAME_FACTOR >= len(frame):
        return batch
    return memoryview(bytearray(batch))


def find_single_batch(buf: memoryview, version: int, pos: int) -> SingleBatch | None:
    """Find the records of a request of the commonest shape; faster than to parse it.

    Args:
        buf: the frame; the positions in the result count from its start.
        version: API version.
        pos: where the body starts.

    Returns:
        None: there is a transactional id, more or less than one batch, or a fault.
    """
    try:
        if version < FLEXIBLE_SINCE:
            return _single_fixed(buf, pos)
        return _single_flexible(buf, version >= TOPIC_ID_SINCE, pos)
    except _FAULTS:
        return None


def _single_fixed(buf: memoryview, pos: int) -> SingleBatch | None:
    null, topics, name_size = _NULL_TO_NAME_SIZE_V3(buf, pos)
    head_end = pos + 22 + name_size
    partitions, size = _PARTITIONS_TO_SIZE_V3(buf, head_end - 8)
    start = head_end + 4
    if (null, topics, partitions) != (-1, 1, 1) or name_size < 0 or size < 0:
        return None
    return (bytes(buf[pos:head_end]), start, size) if start + size == len(buf) else None


def _single_flexible(buf: memoryview, has_ids: bool, pos: int) -> SingleBatch | None:
    null, topics, name_size = _NULL_TO_NAME_SIZE_V9(buf, pos)
    head_end = pos + (8 + _ID_SIZE if has_ids else 8 + name_size) + 5
    partitions, size = _PARTITIONS_TO_SIZE_V9(buf, head_end - 5)
    start = head_end + 1
    if (null, topics, partitions) != (0, 2, 2) or (name_size > 127 and not has_ids):
        return None
    if size > 127:
        size, start = read_uvarint(buf, head_end)
    is_whole = size > 0 and buf[start + size - 1 :] == _NO_TAGS
    return (bytes(buf[pos:head_end]), start, size - 1) if is_whole else None


def encode_produce_response(
    version: int, results: Sequence[PartitionResult], throttle_time_ms: int = 0
) -> bytes:
    """Write the body of a response; see `produce_response_frame`."""
    head = 9 if version >= FLEXIBLE_SINCE else 8
    return produce_response_frame(0, version, results, throttle_time_ms)[head:]


def produce_response_frame(
    correlation_id: int,
    version: int,
    results: Sequence[PartitionResult],
    throttle_time_ms: int = 0,
) -> bytes:
    """Write a whole response with its size and header.

    Args:
        correlation_id: of the request.
        version: API version.
        results: one per partition, in request order; neighbours with equal topics share one
            topic entry.
        throttle_time_ms: KIP-219.
    """
    if len(results) == 1 and version >= LOG_START_SINCE:
        topic, index, code, base, append_time, log_start, message, refused = results[0]
        if message is None and not refused:
            pack, size, before, behind, gap = _one_partition(version, len(topic))
            return pack(
                size, correlation_id, before, topic, behind, index, code, base, append_time,
                log_start, gap, throttle_time_ms,
            )  # fmt: skip
    return _encode(correlation_id, version, results, throttle_time_ms)


def _encode(
    correlation_id: int, version: int, results: Sequence[PartitionResult], throttle: int
) -> bytes:
    if version >= FLEXIBLE_SINCE:
        body = _encode_flexible(version, results, throttle)
        return _PREFIX_V1.pack(len(body) + 5, correlation_id, 0) + body
    body = _encode_fixed(version, results, throttle)
    return _PREFIX_V0.pack(len(body) + 4, correlation_id) + body


_PREFIX_V0: Final = Struct(">ii")
_PREFIX_V1: Final = Struct(">iiB")


class _OnePartition(NamedTuple):
    """The frame of a response with one partition and no error message, which one pack writes.

    It depends on the length of the topic alone: nothing is kept of topics and partitions.

    Attributes:
        size: of the frame, as it is written.
        before_topic: what stands between correlation id and topic.
        behind_topic: what stands between topic and partition index.
        gap: what stands between log start offset and throttle time.
    """

    pack: Callable[..., bytes]
    size: bytes
    before_topic: bytes
    behind_topic: bytes
    gap: bytes


@lru_cache(maxsize=2048)
def _one_partition(version: int, topic_size: int) -> _OnePartition:
    """Return the form of the responses for topics of that length."""
    is_flexible = version >= FLEXIBLE_SINCE
    sample = _encode(0, version, [(bytes(topic_size), 0, 0, 0, 0, 0, None, ())], 0)
    # Behind the log start are an empty list of errors, no message, the throttle time, and tags.
    before, behind = (4, 1) if is_flexible else (6 if version >= 8 else 0, 0)
    offsets_at = len(sample) - behind - 4 - before - 24
    index_at = offsets_at - 6
    count_at = index_at - (1 if is_flexible else 4)
    topic_at = count_at - topic_size
    form = f">4si{topic_at - 8}s{topic_size}s{index_at - count_at}sihqqq{before}si{behind}x"
    gap_at = offsets_at + 24
    return _OnePartition(
        Struct(form).pack,
        sample[:4],
        sample[8:topic_at],
        sample[count_at:index_at],
        sample[gap_at : gap_at + before],
    )


def _by_topic(results: Sequence[PartitionResult]) -> list[tuple[bytes, list[PartitionResult]]]:
    """Group neighbours that have equal topics."""
    return [(topic, list(group)) for topic, group in groupby(results, itemgetter(0))]


def _encode_flexible(version: int, results: Sequence[PartitionResult], throttle: int) -> bytes:
    topics = _by_topic(results)
    parts = [encode_uvarint(len(topics) + 1)]
    for topic, group in topics:
        if version < TOPIC_ID_SINCE:
            parts.append(encode_uvarint(len(topic) + 1))
        parts += (topic, encode_uvarint(len(group) + 1))
        for _, index, code, base, append_time, log_start, message, refused in group:
            parts.append(_RESULT_V5.pack(index, code, base, append_time, log_start))
            parts.append(encode_uvarint(len(refused) + 1))
            for at, reason in refused:
                parts += (_INT32_PACK(at), _compact_nullable(reason), b"\0")
            parts += (_compact_nullable(message), b"\0")
        parts.append(b"\0")
    parts += (_INT32_PACK(throttle), b"\0")
    return b"".join(parts)


def _encode_fixed(version: int, results: Sequence[PartitionResult], throttle: int) -> bytes:
    topics = _by_topic(results)
    parts = [_INT32_PACK(len(topics))]
    for topic, group in topics:
        parts += (_INT16_PACK(len(topic)), topic, _INT32_PACK(len(group)))
        for _, index, code, base, append_time, log_start, message, refused in group:
            if version < LOG_START_SINCE:
                parts.append(_RESULT_V3.pack(index, code, base, append_time))
                continue
            parts.append(_RESULT_V5.pack(index, code, base, append_time, log_start))
            if version >= 8:
                parts.append(_INT32_PACK(len(refused)))
                for at, reason in refused:
                    parts += (_INT32_PACK(at), _nullable(reason))
                parts.append(_nullable(message))
    parts.append(_INT32_PACK(throttle))
    return b"".join(parts)


_RESULT_V3: Final = Struct(">ihqq")
_RESULT_V5: Final = Struct(">ihqqq")
_INT16_PACK: Final = Struct(">h").pack
_INT32_PACK: Final = Struct(">i").pack


def _compact_nullable(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data


def _nullable(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _INT16_PACK(len(data)) + data
