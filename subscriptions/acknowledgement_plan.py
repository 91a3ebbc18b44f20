"""Acknowledgement plan: what consumers acknowledge, as the cursor and the dispatcher take it.

Rule: pure. Records that are all of their entry are the entry.
Must not know: cursors, dispatchers.
"""

from kledger.ledger import EntryPart
from kledger.subscriptions.entry_view import RECORDS_MAX
from kledger.subscriptions.errors import InvalidRequest
from kledger.subscriptions.model import ALL, Acknowledgement, RecordMask


def indexes_of(records: int) -> list[int]:
    """Return the indexes of the records in a mask, ascending."""
    digits = bin(records)[:1:-1]
    return [index for index, digit in enumerate(digits) if digit == "1"]


def entry_part(acknowledgement: Acknowledgement) -> EntryPart:
    """Return what the cursor is told.

    Raises:
        InvalidRequest: the records are not within their batch.
    """
    position, records, batch_size = acknowledgement
    if records == ALL:
        return EntryPart(position, None)
    if not 0 < batch_size <= RECORDS_MAX or not 0 <= records < 1 << batch_size:
        raise InvalidRequest(f"{position}: records beyond a batch of {batch_size}")
    if records == (1 << batch_size) - 1:
        return EntryPart(position, None)
    return EntryPart(position, indexes_of(records), batch_size)


def record_mask(acknowledgement: Acknowledgement, part: EntryPart) -> RecordMask:
    """Return what the dispatcher is told of it."""
    return RecordMask(part.position, ALL if part.indexes is None else acknowledgement.records)
