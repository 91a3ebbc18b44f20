"""One record of a batch: its fields, and the zigzag varints they are written in.

Rule: every length is checked against the remaining bytes before anything is sliced.
Must not know: batches, codecs, absolute offsets (a record holds deltas only).

Layout: length, attributes (1 byte; Kafka's clients write 0 and ignore it), timestamp delta, offset
delta, key length (-1 null), key, value length (-1 null), value, header count, then per header: key
length, key, value length (-1 null), value. All numbers but the attributes are zigzag varints.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kledger.batches.buffers import Buffer
from kledger.batches.errors import CorruptBatch
from kledger.batches.pacing import STEPS_PER_PAUSE, Pause, no_pause, paced

Header = tuple[str, bytes | None]
VARINT_SIZE_MAX = 10
ATTRIBUTES_MAX = 0x7F
"""The largest that every client can skip: some read the attributes as a varint."""


class Record(NamedTuple):
    """A record as a reader sees it.

    Header names that are not UTF-8 come with their odd bytes as surrogate escapes, so that writing
    the record again gives the same bytes.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    attributes: int = 0


class RecordFields(NamedTuple):
    """Where the parts of one record lie in the uncompressed body of its batch."""

    attributes: int
    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_size: int
    end: int


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read one zigzag varint; return it and the position after it.

    Raises:
        CorruptBatch: it does not end within the data or within ten bytes.
    """
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        value = byte & 0x7F
        shift = 7
        for position_next in range(position + 1, position + VARINT_SIZE_MAX):
            byte = data[position_next]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position_next + 1
            shift += 7
    except IndexError:
        raise CorruptBatch(f"varint at byte {position} runs past the end of the records") from None
    raise CorruptBatch(f"varint at byte {position} is longer than {VARINT_SIZE_MAX} bytes")


def rest_of_varint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read on in a varint whose first byte says that it has more; for loops over short varints.

    Args:
        data: with the varint.
        position: of its second byte.
        first: its first byte.

    Returns:
        The varint as it is written, so 2n for n and 2n - 1 for -n, and the position after it.

    Raises:
        CorruptBatch, IndexError: it does not end within ten bytes, or within the data.
    """
    second = data[position]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 1
    value, end = read_varint(data, position - 1)
    return (value << 1) ^ (value >> 63), end


def write_varint(out: bytearray, value: int) -> None:
    """Append `value` as a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def locate_fields(body: Buffer, position: int) -> RecordFields:
    """Read the head of the record at `position`, up to its key.

    Raises:
        CorruptBatch: the record does not fit into the body, or its key not into the record.
    """
    size, start = read_varint(body, position)
    end = start + size
    if size < 0 or end > len(body):
        raise CorruptBatch(f"record of {size} bytes at byte {position}, {len(body) - start} left")
    timestamp_delta, position = read_varint(body, start + 1)
    offset_delta, position = read_varint(body, position)
    key_size, position = read_varint(body, position)
    if position + max(key_size, 0) > end:
        raise CorruptBatch(f"key of {key_size} bytes at byte {position}, record ends at {end}")
    return RecordFields(body[start], timestamp_delta, offset_delta, position, key_size, end)


def read_rest(
    body: Buffer, fields: RecordFields, pause: Pause = no_pause
) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
    """Read key, value and headers of a located record.

    Raises:
        CorruptBatch: the parts do not fill the record exactly.
    """
    end = fields.end
    key, position = _slice(body, fields.key_start, fields.key_size, end)
    size, position = read_varint(body, position)
    value, position = _slice(body, position, size, end)
    return key, value, read_headers(body, position, end, pause)


def read_headers(
    body: Buffer, position: int, end: int, pause: Pause = no_pause
) -> tuple[Header, ...]:
    """Read the headers of a record, from their count up to the end of the record.

    Raises:
        CorruptBatch: they do not fill the record exactly.
    """
    count, position = read_varint(body, position)
    if count == 0 and position == end:
        return ()
    if not 0 <= count <= end - position:
        raise CorruptBatch(f"header count {count} at byte {position}, record ends at {end}")
    headers = []
    for _ in range(count) if count <= STEPS_PER_PAUSE else paced(count, pause):
        size, position = read_varint(body, position)
        name, position = _slice(body, position, size, end)
        if name is None:
            raise CorruptBatch(f"header without a name at byte {position}")
        size, position = read_varint(body, position)
        header_value, position = _slice(body, position, size, end)
        headers.append((name.decode("utf-8", "surrogateescape"), header_value))
    if position != end:
        raise CorruptBatch(f"record ends at byte {end}, its fields at byte {position}")
    return tuple(headers)


def check_rest(body: Buffer, fields: RecordFields, pause: Pause = no_pause) -> None:
    """Check what `read_rest` would read without keeping it: a record may be all headers.

    Raises:
        CorruptBatch: as `read_rest`.
    """
    end = fields.end
    position = _behind(fields.key_start, fields.key_size, end)
    size, position = read_varint(body, position)
    check_headers(body, _behind(position, size, end), end, pause)


def check_headers(body: Buffer, position: int, end: int, pause: Pause = no_pause) -> None:
    """Check what `read_headers` would read, likewise."""
    count, position = read_varint(body, position)
    if count == 0 and position == end:
        return
    if not 0 <= count <= end - position:
        raise CorruptBatch(f"header count {count} at byte {position}, record ends at {end}")
    for _ in paced(count, pause):
        size, position = read_varint(body, position)
        if size < 0:
            raise CorruptBatch(f"header without a name at byte {position}")
        position = _behind(position, size, end)
        size, position = read_varint(body, position)
        position = _behind(position, size, end)
    if position != end:
        raise CorruptBatch(f"record ends at byte {end}, its fields at byte {position}")


def headers_start(body: Buffer, fields: RecordFields) -> int:
    """Return where the headers of a located record begin, with their count.

    Raises:
        CorruptBatch: key or value are longer than the record.
    """
    position = _behind(fields.key_start, fields.key_size, fields.end)
    size, position = read_varint(body, position)
    return _behind(position, size, fields.end)


def read_header_values(
    body: Buffer, fields: RecordFields, name: bytes, pause: Pause = no_pause
) -> list[bytes | None]:
    """Return the values of the headers of that name, without reading the others.

    Raises:
        CorruptBatch: as `read_rest`.
    """
    check_rest(body, fields, pause)
    values = []
    count, position = read_varint(body, headers_start(body, fields))
    for _ in paced(count, pause):
        size, position = read_varint(body, position)
        is_wanted = size == len(name) and body[position : position + size] == name
        size, position = read_varint(body, position + size)
        value, position = _slice(body, position, size if is_wanted else -1, fields.end)
        if is_wanted:
            values.append(value)
        else:
            position += max(size, 0)
    return values


def _behind(position: int, size: int, end: int) -> int:
    """Return the end of a field of that size, which must be inside of the record."""
    stop = position + max(size, 0)
    if stop > end:
        raise CorruptBatch(f"field of {size} bytes at byte {position}, record ends at {end}")
    return stop


def _slice(body: Buffer, position: int, size: int, end: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise CorruptBatch(f"field of {size} bytes at byte {position}, record ends at {end}")
    return bytes(body[position:stop]), stop


def append_record(  # noqa: PLR0917 - called for every record, and faster without names
    out: list[Buffer],
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[Header],
    timestamp_delta: int,
    offset_delta: int,
    attributes: int,
) -> None:
    """Append the pieces of one record in its uncompressed form; the value is not copied."""
    head = b"%c%b%b" % (attributes, varint(timestamp_delta), varint(offset_delta))
    head += _NULL if key is None else varint(len(key)) + key
    if value is None:
        head += _NULL
        value = b""
    else:
        head += varint(len(value))
    tail = _encoded_headers(headers) if headers else _NO_HEADERS
    out += (varint(len(head) + len(value) + len(tail)), head, value, tail)


def varint(value: int) -> bytes:
    """Return `value` as a zigzag varint; small numbers, by far the most, from a table."""
    if 0 <= value < _VARINTS_KNOWN:
        return _VARINTS[value]
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def _varints() -> Iterator[bytes]:
    for value in range(_VARINTS_KNOWN):
        out = bytearray()
        write_varint(out, value)
        yield bytes(out)


_VARINTS_KNOWN = 2048
_VARINTS = tuple(_varints())
_NULL, _NO_HEADERS = b"\x01", b"\x00"
"""The zigzag forms of -1 and 0."""


def _encoded_headers(headers: Sequence[Header]) -> bytearray:
    out = bytearray(varint(len(headers)))
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        out += varint(len(encoded))
        out += encoded
        if value is None:
            out += _NULL
        else:
            out += varint(len(value))
            out += value
    return out
