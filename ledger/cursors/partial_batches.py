"""Partial batches: the entries of which some records are acknowledged, and what is left of each.

Rule: a batch that is here has at least one record that is acknowledged and one that is not. The
bitmap of a batch is replaced, never changed, so copies share them.
Must not know: the mark-delete position, ledgers. Library: Roaring bitmaps (pyroaring).
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator

from pyroaring import BitMap

from kledger.ledger.position import Position


class PartialBatches:
    """By position the records that are not acknowledged yet."""

    __slots__ = ("_left", "_order")

    def __init__(self) -> None:
        self._left: dict[Position, BitMap] = {}
        self._order: list[Position] = []

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Position]:
        return iter(self._order)

    def get(self, position: Position) -> BitMap | None:
        """Return what is left of a batch, which must not be changed; None if it is not here."""
        return self._left.get(position)

    @property
    def last(self) -> tuple[Position, ...]:
        """The newest batch, if there is any."""
        return tuple(self._order[-1:])

    def set(self, position: Position, left: BitMap) -> None:
        """Note what is left of a batch from now on."""
        if position not in self._left:
            insort(self._order, position)
        self._left[position] = left

    def remove(self, position: Position) -> None:
        """Forget a batch; nothing if it is not here."""
        if self._left.pop(position, None) is not None:
            self._order.remove(position)

    def remove_upto(self, position: Position) -> None:
        """Forget everything up to a position, with it."""
        if not self._order:
            return
        end = bisect_right(self._order, position)
        for each in self._order[:end]:
            del self._left[each]
        del self._order[:end]

    def copy(self) -> "PartialBatches":
        """Return an independent object that is equal to this one."""
        copied = PartialBatches()
        copied._left, copied._order = self._left.copy(), self._order.copy()
        return copied

    def dump(self, count_max: int) -> list[tuple[Position, bytes]]:
        """Return so many batches, the lowest, with their bitmaps in Roaring's portable format."""
        left = self._left
        return [(position, left[position].serialize()) for position in self._order[:count_max]]

    @classmethod
    def load(cls, dumped: Iterable[tuple[Position, bytes]]) -> "PartialBatches":
        """Return what `dump` gave; the bytes must be whole."""
        loaded = cls()
        loaded._left = {position: BitMap.deserialize(bitmap) for position, bitmap in dumped}
        loaded._order = sorted(loaded._left)
        return loaded
