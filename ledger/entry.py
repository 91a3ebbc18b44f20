"""Entry: opaque bytes and their position.

Rule: the bytes of an entry never change after the append.
Must not know: what the bytes mean.
"""

from typing import NamedTuple

from kledger.ledger.engine.base import Buffer
from kledger.ledger.position import Position


class Entry(NamedTuple):
    """One entry, as returned by reads."""

    position: Position
    buffer: Buffer
    """The bytes as they are stored in memory, not a copy: all readers share them."""

    @property
    def data(self) -> bytes:
        """The bytes as `bytes`; a copy unless the buffer is `bytes`."""
        return bytes(self.buffer)

    @property
    def size(self) -> int:
        """Length of the data."""
        return len(self.buffer)
