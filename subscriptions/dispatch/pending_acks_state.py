"""Pending acknowledgements: which consumer has which unacknowledged records.

Rule: at most one consumer has a record. Every removal returns which consumer had which records.
Must not know: why records are removed, limits, the order of deliveries.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kledger.ledger import Position
from kledger.subscriptions.model import RecordMask


class PendingRecords(NamedTuple):
    """Records of one entry that a consumer has."""

    consumer: int
    records: int


class PendingAcks:
    """The delivered and unacknowledged records, by position."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Position, tuple[PendingRecords, ...]] = {}

    def __contains__(self, position: Position) -> bool:
        return position in self._held

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[tuple[Position, PendingRecords]]:
        for position, helds in self._held.items():
            for held in helds:
                yield position, held

    def add(self, position: Position, consumer: int, records: int) -> None:
        """Add records that no consumer has."""
        present = self._held.get(position)
        if present is None:
            self._held[position] = (PendingRecords(consumer, records),)
            return
        merged = []
        for held in present:
            assert not held.records & records, f"consumer {held.consumer} has records of {position}"
            if held.consumer == consumer:
                records |= held.records
            else:
                merged.append(held)
        self._held[position] = (*merged, PendingRecords(consumer, records))

    def remove(self, position: Position, records: int) -> tuple[PendingRecords, ...]:
        """Remove records of any consumer; return what each had of them."""
        present = self._held.get(position)
        if present is None:
            return ()
        if len(present) == 1 and not present[0].records & ~records:
            del self._held[position]
            return present
        taken = tuple(PendingRecords(c, r & records) for c, r in present if r & records)
        self._keep(
            position, tuple(PendingRecords(c, r & ~records) for c, r in present if r & ~records)
        )
        return taken

    def remove_of(self, consumer: int, position: Position, records: int) -> int:
        """Remove records of one consumer; return the mask of those that it had."""
        taken = 0
        left = []
        for held in self._held.get(position, ()):
            if held.consumer == consumer:
                taken = held.records & records
                kept = held.records & ~records
                if kept:
                    left.append(PendingRecords(consumer, kept))
            else:
                left.append(held)
        if taken:
            self._keep(position, tuple(left))
        return taken

    def masks_of(self, consumer: int) -> list[RecordMask]:
        """Return the records of a consumer, in order."""
        found = [RecordMask(at, held.records) for at, held in self if held.consumer == consumer]
        return sorted(found)

    def positions_before(self, position: Position) -> list[Position]:
        """Return the entries before a position of which consumers have records."""
        return [each for each in self._held if each < position]

    def clear(self) -> None:
        """Remove all."""
        self._held.clear()

    def _keep(self, position: Position, left: tuple[PendingRecords, ...]) -> None:
        if left:
            self._held[position] = left
        else:
            del self._held[position]
