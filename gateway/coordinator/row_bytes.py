"""Row bytes: texts, byte strings and numbers of group rows, one after the other.

Rule: what is written first is read first; every text and byte string is preceded by its length
(i32, -1 = null).
Must not know: what the rows mean.
"""

import struct
from typing import Final

COUNT: Final = struct.Struct(">I")
LENGTH: Final = struct.Struct(">i")


class UnknownGroupRowVersion(ValueError):
    """A row was written by a newer program."""


def put_text(parts: list[bytes], text: str | None) -> None:
    """Add a text, or null."""
    put_bytes(parts, None if text is None else text.encode())


def put_bytes(parts: list[bytes], content: bytes | None) -> None:
    """Add a byte string, or null."""
    if content is None:
        parts.append(LENGTH.pack(-1))
    else:
        parts += (LENGTH.pack(len(content)), content)


class RowReader:
    """A row being read from front to back."""

    __slots__ = ("_position", "_value")

    def __init__(self, value: bytes, position: int) -> None:
        self._value = value
        self._position = position

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return the numbers of a layout."""
        values = layout.unpack_from(self._value, self._position)
        self._position += layout.size
        return values

    def raw(self, size: int) -> bytes:
        """Return so many bytes."""
        start = self._position
        self._position = start + size
        return self._value[start : self._position]

    def content(self) -> bytes | None:
        """Return a byte string, or None for null."""
        (length,) = self.take(LENGTH)
        return None if length < 0 else self.raw(length)

    def text(self) -> str | None:
        """Return a text, or None for null."""
        content = self.content()
        return None if content is None else content.decode()
