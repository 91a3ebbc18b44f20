"""Produce: requests as views of their frame, responses as one buffer.

Two ways lead from a frame to its batches. `parse_produce_request` reads every request of every
version. `find_single_batch` finds the records of the commonest one, which has one batch and no
transactional id: what precedes its records is the same in all such requests of a producer, so it is
cut off unread, for the caller to look up what it was parsed to before.

Records are views of the frame, never copied here. `topic` is the name in UTF-8 up to version 12 and
the 16 bytes of the topic id from version 13 on; the response repeats it.

    response frame for one partition without a message, version 9 to 12
    size  correlation_id  tags | 2 | name+1 name | 2 | index error base_offset append_time
    log_start | no record_errors | no message | tags | tags | throttle_time_ms | tags

Rule: both ways and the compiled codec find the same batches, and responses have the bytes of the
compiled codec; tests compare them for every version.
Must not know: what a record batch looks like, why a partition failed.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from struct import Struct, error
from typing import Final, NamedTuple

from kledger.gateway.wire.codec import explain_fault
from kledger.gateway.wire.leader_hints import (
    NO_HINTS,
    LeaderHints,
    partition_tags,
    response_tags,
)
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

PartitionKey = tuple[bytes, int]
"""Topic and partition index."""

Records = Sequence[memoryview | None]
"""The records of each partition of a request, as views of its frame; None for null."""

PartitionResult = tuple[
    bytes, int, int, int, int, int, str | None, Sequence[tuple[int, str | None]]
]
"""Topic, partition index, error code, base offset, log append time, log start offset, error
message, and (batch index, message) for each rejected record."""

SingleBatch = tuple[bytes, memoryview]
"""The body of a request with one batch up to the partition's index, which says everything but the
records; and the records as a view of the frame."""

LOG_START_SINCE: Final = 5
FLEXIBLE_SINCE: Final = 9
LEADER_HINTS_SINCE: Final = 10
TOPIC_ID_SINCE: Final = 13
CURRENT_LEADER_TAG: Final = 0

_FAULTS: Final = (DecodeError, error, IndexError, UnicodeDecodeError)
_ACKS_TO_TOPICS_V3: Final = Struct(">hii").unpack_from
_ACKS_TO_TOPICS_V9: Final = Struct(">hiB").unpack_from
_INDEX_AND_SIZE_V3: Final = Struct(">ii").unpack_from
_INDEX_AND_SIZE_V9: Final = Struct(">iB").unpack_from
_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_NULL_TO_NAME_SIZE_V3: Final = Struct(">h6xih").unpack_from
_PARTITIONS_TO_SIZE_V3: Final = Struct(">i4xi").unpack_from
_NULL_TO_NAME_SIZE_V9: Final = Struct(">B6xBB").unpack_from
_PARTITIONS_TO_SIZE_V9: Final = Struct(">B4xB").unpack_from
_NO_TAGS: Final = bytes(3)
_ID_SIZE: Final = 16


class ParsedProduceRequest(NamedTuple):
    """A Produce request without its records, so that it may outlive the frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: Sequence[PartitionKey]


# Half the price of the constructor, which calls it behind a function of its own.
_new_tuple: Final = tuple.__new__


def parse_produce_request(
    buf: memoryview, version: int, pos: int = 0
) -> tuple[ParsedProduceRequest, Records]:
    """Read a Produce body of version 3 to 13.

    Args:
        buf: the frame.
        version: API version.
        pos: where the body starts.

    Returns:
        The request, and the records of its partitions in the same order.

    Raises:
        MalformedMessage: the bytes do not follow the schema.
    """
    try:
        return _parse(buf, version, pos)
    except _FAULTS as fault:
        # The compiled codec finds the same fault, and names the field.
        from kledger.gateway.wire.messages import k00_produce  # noqa: PLC0415 (for faults only)

        explain_fault(k00_produce.ProduceRequest, version, buf, pos, fault)


def _parse(buf: memoryview, version: int, pos: int) -> tuple[ParsedProduceRequest, Records]:
    end, is_flexible = len(buf), version >= FLEXIBLE_SINCE
    partitions: list[PartitionKey] = []
    records: list[memoryview | None] = []
    size, pos = _text_size(buf, pos, is_flexible)
    transactional_id = None
    if size != -1:
        if not 0 <= size <= end - pos:
            raise wrong_length(size, end - pos)
        transactional_id = str(buf[pos : pos + size], "utf-8")
        pos += size
    if is_flexible:
        acks, timeout_ms, count = _ACKS_TO_TOPICS_V9(buf, pos)
        pos += 7
        if count > 127:
            count, pos = read_uvarint(buf, pos - 1)
        count -= 1
    else:
        acks, timeout_ms, count = _ACKS_TO_TOPICS_V3(buf, pos)
        pos += 10
    if not 0 <= count * (3 if is_flexible else 6) <= end - pos:
        raise wrong_count(count, end - pos)
    for _ in range(count):
        size = _ID_SIZE
        if version < TOPIC_ID_SINCE:
            size, pos = _text_size(buf, pos, is_flexible)
        if not 0 <= size <= end - pos:
            raise wrong_length(size, end - pos)
        pos += size
        pos = _read_partitions(
            buf, pos, is_flexible,
            topic=bytes(buf[pos - size : pos]), partitions=partitions, records=records,
        )  # fmt: skip
    if is_flexible and buf[pos]:
        skip_tags(buf, pos + 1, end, buf[pos])
    fields = (transactional_id, acks, timeout_ms, partitions)
    return _new_tuple(ParsedProduceRequest, fields), records


def _read_partitions(
    buf: memoryview,
    pos: int,
    is_flexible: bool,
    *,
    topic: bytes,
    partitions: list[PartitionKey],
    records: list[memoryview | None],
) -> int:
    """Append the partitions of one topic and their records; return the position behind it."""
    end = len(buf)
    count, pos = _count(buf, pos, is_flexible)
    if (
        not 0 <= count * (6 if is_flexible else 8) <= end - pos
        or count + len(partitions) > ELEMENTS_MAX
    ):
        raise wrong_count(count, end - pos)
    for _ in range(count):
        if is_flexible:
            index, size = _INDEX_AND_SIZE_V9(buf, pos)
            pos += 5
            if size > 127:
                size, pos = read_uvarint(buf, pos - 1)
            size -= 1
        else:
            index, size = _INDEX_AND_SIZE_V3(buf, pos)
            pos += 8
        if not -1 <= size <= end - pos:
            raise wrong_length(size, end - pos)
        partitions.append((topic, index))
        if size == -1:
            records.append(None)
        else:
            start, pos = pos, pos + size
            records.append(buf[start:pos])
        if is_flexible:
            tags = buf[pos]
            pos += 1
            if tags:
                pos = skip_tags(buf, pos, end, tags)
    if not is_flexible:
        return pos
    tags = buf[pos]
    return skip_tags(buf, pos + 1, end, tags) if tags else pos + 1


def _text_size(buf: memoryview, pos: int, is_flexible: bool) -> tuple[int, int]:
    """Read the size of a text, -1 for null; return it and the position behind it."""
    if not is_flexible:
        return _INT16(buf, pos)[0], pos + 2
    size = buf[pos]
    if size < 128:
        return size - 1, pos + 1
    size, pos = read_uvarint(buf, pos)
    return size - 1, pos


def _count(buf: memoryview, pos: int, is_flexible: bool) -> tuple[int, int]:
    """Read the length of a list, -1 for null; return it and the position behind it."""
    if not is_flexible:
        return _INT32(buf, pos)[0], pos + 4
    count = buf[pos]
    if count < 128:
        return count - 1, pos + 1
    count, pos = read_uvarint(buf, pos)
    return count - 1, pos


def owned_records(frame: memoryview, records: memoryview, *, is_owned: bool) -> memoryview:
    """Return the records in memory that is never written again.

    Args:
        frame: the frame of their request.
        records: a view of it.
        is_owned: the frame is never written again. Records that fill it well stay there.
    """
    if is_owned and len(records) * PINNED_FRAME_FACTOR >= len(frame):
        return records
    return memoryview(bytearray(records))


def find_single_batch(buf: memoryview, version: int, pos: int) -> SingleBatch | None:
    """Find the records of a request with one batch and no transactional id; faster than parsing.

    Args:
        buf: the frame; the records become a view of it.
        version: API version.
        pos: where the body starts.

    Returns:
        None: there is a transactional id, no or more than one batch, a tagged field, or a fault.
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
    return (bytes(buf[pos:head_end]), buf[start:]) if start + size == len(buf) else None


def _single_flexible(buf: memoryview, has_ids: bool, pos: int) -> SingleBatch | None:
    null, topics, name_size = _NULL_TO_NAME_SIZE_V9(buf, pos)
    head_end = pos + (8 + _ID_SIZE if has_ids else 8 + name_size) + 5
    partitions, size = _PARTITIONS_TO_SIZE_V9(buf, head_end - 5)
    start = head_end + 1
    if (null, topics, partitions) != (0, 2, 2) or (name_size > 127 and not has_ids):
        return None
    if size > 127:
        size, start = read_uvarint(buf, head_end)
    end = start + size - 1
    is_whole = size > 0 and buf[end:] == _NO_TAGS
    return (bytes(buf[pos:head_end]), buf[start:end]) if is_whole else None


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


def hinted_produce_response_frame(
    correlation_id: int,
    version: int,
    results: Sequence[PartitionResult],
    throttle_time_ms: int,
    hints: LeaderHints,
) -> bytes:
    """Write what `produce_response_frame` does, of version 10 or later, with leader hints."""
    return _encode(correlation_id, version, results, throttle_time_ms, hints)


def _encode(
    correlation_id: int,
    version: int,
    results: Sequence[PartitionResult],
    throttle: int,
    hints: LeaderHints = NO_HINTS,
) -> bytes:
    if version >= FLEXIBLE_SINCE:
        body = _encode_flexible(version, results, throttle, hints)
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


def _encode_flexible(
    version: int, results: Sequence[PartitionResult], throttle: int, hints: LeaderHints
) -> bytes:
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
            parts.append(_compact_nullable(message))
            parts.append(partition_tags(hints, topic, index, CURRENT_LEADER_TAG))
        parts.append(b"\0")
    parts += (_INT32_PACK(throttle), response_tags(hints))
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
