"""Entry part: what is acknowledged of one entry.

Rule: an entry as a whole, or some of its records, by their indexes.
Must not know: cursors.
"""

from collections.abc import Collection
from typing import NamedTuple

from kledger.ledger.errors import InvalidArgument
from kledger.ledger.position import Position


class EntryPart(NamedTuple):
    """What is acknowledged of one entry.

    Attributes:
        indexes: of records; None is the whole entry.
        batch_size: how many records the entry has; of no meaning for a whole entry.
    """

    position: Position
    indexes: Collection[int] | None
    batch_size: int = 0

    def check(self) -> None:
        """Raise InvalidArgument unless every index is within the batch."""
        indexes, size = self.indexes, self.batch_size
        if indexes is None or (size > 0 and all(0 <= index < size for index in indexes)):
            return
        raise InvalidArgument(f"indexes: expected 0 to {size - 1}, got {sorted(indexes)}")
