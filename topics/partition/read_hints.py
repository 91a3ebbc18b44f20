"""Read hints: where reads of a partition have ended, so that the next ones need no search.

Rule: a hint is right for as long as the log has the offset.
Must not know: entries, the storage.
"""

from kledger.ledger import Position

READ_HINTS_MAX = 256


class ReadHints:
    """Where reads before the tail have ended: the offset, and the position of its entry.

    Readers at the same offset share a hint; the oldest one is dropped when there are too many.
    """

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, Position] = {}

    def get(self, offset: int) -> Position | None:
        """The position of the batch that begins at the offset, if it is remembered."""
        return self._positions.get(offset)

    def put(self, offset: int, position: Position) -> None:
        """Remember where a read ended."""
        positions = self._positions
        if offset not in positions and len(positions) >= READ_HINTS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = position
