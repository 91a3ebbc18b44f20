"""Name set: which managed ledgers a store has, in a few buffers instead of an object for each.

Rule: a name takes its bytes and one more. There are many more managed ledgers than are in use, and
a string that stays among the objects of one that was opened and closed keeps a whole arena of the
interpreter's memory (1 MiB) from going back to the system.
Must not know: what a name stands for.
"""

from collections.abc import Iterable, Iterator

BUFFERS = 512
"""So many buffers share the names by their hash. 100,000 names are 200 in a buffer, 12 KB, which is
searched in ten microseconds; 10,000 make each too large for the arenas of the interpreter."""
_END = b"\xff"
"""Stands behind every name; no text in UTF-8 has this byte."""


class NameSet:
    """A set of names; adding, removing and asking look into one buffer each."""

    __slots__ = ("_buffers",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        # Each begins with an end, so that every name stands between two of them.
        self._buffers = [bytearray(_END) for _ in range(BUFFERS)]
        for name in set(names):
            buffer = self._buffer_of(name)
            buffer += _enclosed(name)[1:]

    def __contains__(self, name: str) -> bool:
        return _enclosed(name) in self._buffer_of(name)

    def __iter__(self) -> Iterator[str]:
        for buffer in self._buffers:
            for name in bytes(buffer).split(_END)[1:-1]:
                yield name.decode("utf-8", "surrogatepass")

    def add(self, name: str) -> None:
        """Add a name; nothing if it is there."""
        buffer, enclosed = self._buffer_of(name), _enclosed(name)
        if enclosed not in buffer:
            buffer += enclosed[1:]

    def discard(self, name: str) -> None:
        """Remove a name; nothing if it is not there."""
        buffer, enclosed = self._buffer_of(name), _enclosed(name)
        at = buffer.find(enclosed)
        if at >= 0:
            del buffer[at + 1 : at + len(enclosed)]

    def _buffer_of(self, name: str) -> bytearray:
        return self._buffers[hash(name) % BUFFERS]


def _enclosed(name: str) -> bytes:
    return _END + name.encode("utf-8", "surrogatepass") + _END
