"""AcknowledgementsState: the acknowledgements of the next group.

Rule: records of one entry become one acknowledgement; a fully acknowledged entry is acknowledged as
a whole; a repeated record counts once. Most acknowledgements add one record to the last entry, so
all that is not needed for that is done once, in `take`.
Must not know: links, callers.
"""

from kledger.ledger import Position
from kledger.subscriptions.model import ALL, Acknowledgement


class AcknowledgementsState:
    """The records of one group, by entry."""

    __slots__ = ("_records", "_upto")

    def __init__(self) -> None:
        self._records: dict[Position, tuple[int, int]] = {}
        self._upto: Acknowledgement | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self._records and self._upto is None

    def add(self, acknowledgement: Acknowledgement) -> None:
        """Add records of one entry."""
        position, records, batch_size = acknowledgement
        known = self._records.get(position)
        if known is not None:
            records |= known[0]
            batch_size = max(batch_size, known[1])
        self._records[position] = records, batch_size

    def add_upto(self, acknowledgement: Acknowledgement) -> None:
        """Add these records and all before them; only the largest position is kept."""
        known = self._upto
        if known is None or acknowledgement.position > known.position:
            self._upto = acknowledgement
        elif acknowledgement.position == known.position:
            self._upto = known._replace(
                records=known.records | acknowledgement.records,
                batch_size=max(known.batch_size, acknowledgement.batch_size),
            )

    def take(self) -> tuple[Acknowledgement | None, list[Acknowledgement]]:
        """Return the cumulative and the individual acknowledgements, by position; start anew."""
        upto, self._upto = self._upto, None
        records, self._records = self._records, {}
        return upto, [
            Acknowledgement(position, ALL if _is_whole(mask, size) else mask, size)
            for position, (mask, size) in sorted(records.items())
        ]


def _is_whole(records: int, batch_size: int) -> bool:
    return batch_size > 0 and records == (1 << batch_size) - 1
