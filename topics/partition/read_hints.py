"""Read hints: where the readers that are behind the tail will go on.

Rule: a hint is the position of the entry that begins at an offset; it is right for as long as the
log has that offset. The oldest goes when there are too many.
Must not know: readers; two of them at the same offset share a hint.
"""

from kledger.ledger import Position

HINTS_MAX = 256


class ReadHints:
    """Offset to position, for the ends of recent reads."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, Position] = {}

    def get(self, offset: int) -> Position | None:
        """The position of the batch that begins at the offset, if it is remembered."""
        return self._positions.get(offset)

    def put(self, offset: int, position: Position) -> None:
        """Remember where a read ended."""
        positions = self._positions
        if offset not in positions and len(positions) >= HINTS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = position
