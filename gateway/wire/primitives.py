"""Primitives that the compiled codecs fall back on: varints, tagged fields, UUIDs.

Rule: a length is compared with what is left before anything is allocated for it.
Must not know: messages, versions.

The compiled functions read a one-byte varint themselves; what is here serves the long ones.
"""

from typing import Final, NoReturn
from uuid import UUID

Buffer = bytes | bytearray | memoryview

UVARINT_BYTES_MAX: Final = 5
UVARLONG_BYTES_MAX: Final = 10
STRING_BYTES_MAX: Final = 0x7FFF
ELEMENTS_MAX: Final = 1_000_000
"""Array elements in one message, all arrays together: an element of one byte on the wire may
cost a hundred in memory, so the size of the frame alone would not bound it."""

ZERO_UUID: Final = UUID(int=0)

UVARINTS: Final = tuple(bytes((value,)) for value in range(128))
"""The one-byte varints, by value."""

_new_uuid = UUID.__new__
_set = object.__setattr__
_SAFETY: Final = ZERO_UUID.is_safe


class DecodeError(Exception):
    """Raised inside compiled functions only; they turn it into a MalformedMessage."""

    def __init__(self, got: str, expected: str | None = None) -> None:
        super().__init__(got)
        self.got = got
        self.expected = expected


def read_uvarint(buf: Buffer, pos: int, bytes_max: int = UVARINT_BYTES_MAX) -> tuple[int, int]:
    """Read an unsigned varint; return it and the position behind it.

    Raises:
        DecodeError: it is longer than `bytes_max` or holds more than 32 (64) bits.
        IndexError: the buffer ends inside it.
    """
    first = buf[pos]
    if first < 0x80:
        return first, pos + 1
    second = buf[pos + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, pos + 2
    third = buf[pos + 2]
    if third < 0x80:
        return first & 0x7F | (second & 0x7F) << 7 | third << 14, pos + 3
    return _read_long_uvarint(buf, pos, bytes_max)


def _read_long_uvarint(buf: Buffer, pos: int, bytes_max: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(pos, pos + bytes_max):
        byte = buf[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            bits = 32 if bytes_max == UVARINT_BYTES_MAX else 64
            if value >> bits:
                raise DecodeError(f"a value of more than {bits} bits", "a varint")
            return value, at + 1
        shift += 7
    raise DecodeError(f"more than {bytes_max} bytes", "a varint")


def encode_uvarint(value: int) -> bytes:
    """Write an unsigned varint in as few bytes as it takes."""
    if value < 0x80:
        return UVARINTS[value] if value >= 0 else _refuse_negative(value)
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + encode_uvarint(value >> 7)


def _refuse_negative(value: int) -> NoReturn:
    raise ValueError(f"{value} as an unsigned varint")


def skip_tags(buf: Buffer, pos: int, end: int, first: int) -> int:
    """Step over a tagged-field section whose first byte, just before `pos`, is `first`.

    Returns:
        The position behind the section.
    """
    count = first
    if first > 0x7F:
        count, pos = read_uvarint(buf, pos - 1)
    check_tag_count(count, end - pos)
    for _ in range(count):
        _, pos, stop = read_tag(buf, pos, end)
        pos = stop
    return pos


def check_tag_count(count: int, left: int) -> None:
    """Refuse more tagged fields than the bytes left can hold (each takes two at least)."""
    if count * 2 > left:
        raise DecodeError(f"{count} tagged fields with {left} bytes left", "tagged fields")


def read_tag(buf: Buffer, pos: int, end: int) -> tuple[int, int, int]:
    """Read the head of one tagged field.

    Returns:
        Its tag, the position of its data and the position behind its data.
    """
    tag, pos = read_uvarint(buf, pos)
    size, pos = read_uvarint(buf, pos)
    stop = pos + size
    if stop > end:
        raise DecodeError(f"{size} bytes of tag {tag} with {end - pos} bytes left", "tagged fields")
    return tag, pos, stop


def wrong_length(size: int, left: int) -> DecodeError:
    """Make the refusal of a length that is negative or more than what is left."""
    return DecodeError("null" if size == -1 else f"a length of {size} with {left} bytes left")


def wrong_count(count: int, left: int) -> DecodeError:
    """Make the refusal of a count that is negative or more than what is left can hold."""
    return DecodeError("null" if count == -1 else f"a count of {count} with {left} bytes left")


def uuid_from_bytes(raw: bytes) -> UUID:
    """Make a UUID from 16 bytes; three times faster than its constructor, which checks more."""
    uuid = _new_uuid(UUID)
    _set(uuid, "int", int.from_bytes(raw, "big"))
    _set(uuid, "is_safe", _SAFETY)
    return uuid
