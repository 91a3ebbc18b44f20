"""Entry: one opaque run of bytes and the position it has.

Rule: the bytes of an entry never change once it was appended.
Must not know: what the bytes mean.
"""

from typing import NamedTuple

from kledger.ledger.engine.base import Buffer
from kledger.ledger.position import Position


class Entry(NamedTuple):
    """What a read returns."""

    position: Position
    buffer: Buffer
    """The bytes as they are kept, without a copy: whoever holds one shares it with everyone."""

    @property
    def data(self) -> bytes:
        """The bytes as an object of their own; a copy unless they are kept as `bytes` anyway."""
        return bytes(self.buffer)

    @property
    def size(self) -> int:
        """Length of the data."""
        return len(self.buffer)
