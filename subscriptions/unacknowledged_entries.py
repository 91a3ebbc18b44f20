"""Unacknowledged entries of a cursor, read without moving it: to peek and to skip records.

Rule: nothing is changed. Reads are bounded; an entry that is acknowledged meanwhile is left out.
Must not know: consumers.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from kledger.ledger import LATEST, Cursor, Entry, ManagedLedger
from kledger.subscriptions.entry_view import mask_of, record_count
from kledger.subscriptions.visibility_filter import VisibilityFilter

READ_ENTRIES_MAX = 100
READ_BYTES_MAX = 1 << 20


class UnacknowledgedEntry(NamedTuple):
    """An entry, and which of its records are unacknowledged; none if it is hidden."""

    entry: Entry
    records: int
    batch_size: int


async def unacknowledged_entries(
    cursor: Cursor, ledger: ManagedLedger, visibility_filter: VisibilityFilter
) -> AsyncIterator[UnacknowledgedEntry]:
    """Yield unacknowledged entries, in order, up to the first unsettled one. Raises LedgerError."""
    position = cursor.state.next_unacknowledged(cursor.mark_delete_position.successor)
    while position is not None:
        entries = await ledger.read_entries(
            position, READ_ENTRIES_MAX, LATEST, bytes_max=READ_BYTES_MAX
        )
        if not entries:
            return
        settled, hidden = visibility_filter.visibility_of(entries)
        for entry in entries[:settled]:
            if not cursor.state.is_acknowledged(entry.position):
                yield _unacknowledged(cursor, entry, is_hidden=entry.position in hidden)
        if settled < len(entries):
            return
        position = cursor.state.next_unacknowledged(entries[-1].position.successor)


def _unacknowledged(cursor: Cursor, entry: Entry, *, is_hidden: bool) -> UnacknowledgedEntry:
    size = record_count(entry.buffer)
    if is_hidden:
        return UnacknowledgedEntry(entry, 0, size)
    left = cursor.batch_indexes(entry.position)
    return UnacknowledgedEntry(entry, (1 << size) - 1 if left is None else mask_of(left), size)
