"""What a cursor owes, read without moving it: for looking ahead and for counting records.

Rule: nothing is changed. Reads are bounded; an entry that is acknowledged meanwhile is left out.
Must not know: consumers.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from ledger import LATEST, Cursor, Entry, ManagedLedger
from subscriptions.entry_view import is_marker, mask_of, record_count

READ_ENTRIES_MAX = 100
READ_BYTES_MAX = 1 << 20


class OwedEntry(NamedTuple):
    """An entry, and which of its records are not acknowledged; none of a transaction's marker."""

    entry: Entry
    records: int
    batch_size: int


async def owed_entries(cursor: Cursor, ledger: ManagedLedger) -> AsyncIterator[OwedEntry]:
    """Yield what is owed, in order, up to the end of the log. Raises LedgerError."""
    place = cursor.state.next_owed(cursor.mark_delete_position.successor)
    while place is not None:
        entries = await ledger.read_entries(
            place, READ_ENTRIES_MAX, LATEST, bytes_max=READ_BYTES_MAX
        )
        if not entries:
            return
        for entry in entries:
            if not cursor.state.is_acknowledged(entry.position):
                yield _owed(cursor, entry)
        place = cursor.state.next_owed(entries[-1].position.successor)


def _owed(cursor: Cursor, entry: Entry) -> OwedEntry:
    size = record_count(entry.buffer)
    if is_marker(entry.buffer):
        return OwedEntry(entry, 0, size)
    left = cursor.batch_indexes(entry.position)
    return OwedEntry(entry, (1 << size) - 1 if left is None else mask_of(left), size)
