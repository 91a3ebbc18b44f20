"""Unacknowledged entries of a cursor, read without moving it: to peek and to skip records.

Rule: nothing is changed. Reads are bounded; an entry that is acknowledged meanwhile is left out.
Must not know: consumers.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from kledger.ledger import Cursor, Entry
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcessDied
from kledger.subscriptions.entry_view import index_count, kept_records, mask_of
from kledger.subscriptions.model import ALL
from kledger.subscriptions.visibility_filter import VisibilityFilter

READ_ENTRIES_MAX = 100
READ_BYTES_MAX = 1 << 20


class UnacknowledgedEntry(NamedTuple):
    """An entry, and which of its records are unacknowledged; none if it is hidden.

    A cursor that reads compacted has no records that compaction has removed, or that remove a key.
    """

    entry: Entry
    records: int
    batch_size: int


async def unacknowledged_entries(
    cursor: Cursor, visibility_filter: VisibilityFilter, compute_pool: ComputePool | None = None
) -> AsyncIterator[UnacknowledgedEntry]:
    """Yield unacknowledged entries, in order, up to the first unsettled one.

    Args:
        cursor: of the subscription.
        visibility_filter: decides which entries may be seen.
        compute_pool: looks into compacted entries; without it the event loop does.

    Raises:
        LedgerError: they cannot be read.
    """
    position = cursor.state.next_unacknowledged(cursor.mark_delete_position.successor)
    while position is not None:
        read = await cursor.read_from(position, READ_ENTRIES_MAX, READ_BYTES_MAX)
        if read.last is None:
            return
        settled, hidden = visibility_filter.visibility_of(read.entries)
        entries = read.entries[:settled]
        kept: Sequence[int] = [ALL] * len(entries)
        if read.compacted_id is not None:
            kept = await _kept(entries, compute_pool)
        for entry, records in zip(entries, kept, strict=True):
            if not cursor.state.is_acknowledged(entry.position):
                visible = 0 if entry.position in hidden else records
                yield _unacknowledged(cursor, entry, visible)
        if settled < len(read.entries):
            return
        position = cursor.state.next_unacknowledged(read.last.successor)


async def _kept(entries: Sequence[Entry], compute_pool: ComputePool | None) -> Sequence[int]:
    """Return which records of compacted entries have a value; all of them if that is unknown."""
    jobs = [(each.buffer, False) for each in entries]
    if compute_pool is None:
        return [kept_records(*job) for job in jobs]
    try:
        return await compute_pool.map(kept_records, jobs)
    except (ComputeProcessDied, PoolClosed):
        return [ALL] * len(jobs)


def _unacknowledged(cursor: Cursor, entry: Entry, visible: int) -> UnacknowledgedEntry:
    size = index_count(entry.buffer)
    left = cursor.batch_indexes(entry.position)
    records = (1 << size) - 1 if left is None else mask_of(left)
    return UnacknowledgedEntry(entry, records & visible, size)
