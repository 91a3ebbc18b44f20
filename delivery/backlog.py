"""Backlog in records: how many records of a partition a cursor has not acknowledged; exact.

Rule: cursors count entries, offsets count records. The records behind the mark-delete position are
counted by two offsets, and only the entries between that and the newest acknowledgement are read,
because a cursor does not know how many records an entry has. Records behind the last stable offset
do not count. The event loop runs other work between two reads.

A cursor that reads compacted does not know which records compaction has removed before it has read
them; until then they count.
Must not know: subscriptions.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from kledger.batches.header import read_base_offset, read_header, read_offset_count
from kledger.ledger import CompactedLedgerReplaced, Cursor, CursorState, Entry, Position
from kledger.runtime.clock import Clock
from kledger.topics import PartitionLog

READ_ENTRIES_MAX = 500
READ_BYTES_MAX = 4 << 20


async def count_backlog(log: PartitionLog, cursor: Cursor, clock: Clock) -> int:
    """Count the unacknowledged records.

    Raises:
        TopicsError, LedgerError, BatchError: the partition is deleted, or cannot be read.
    """
    end_offset = log.last_stable_offset
    state = cursor.state.copy()  # acknowledgements continue meanwhile
    position, last = state.mark_delete_position.successor, state.last_acknowledged
    start_offset = log.deleted_before_offset if cursor.reads_compacted else log.log_start_offset
    first_offset = await _first_offset(log, cursor, position)
    unacknowledged = end_offset - max(first_offset, start_offset)
    async for entries in _entries_between(cursor, position, last):
        for entry in entries:
            if read_base_offset(entry.buffer) < end_offset:
                unacknowledged -= _acknowledged_of(state, entry, start_offset)
        await clock.sleep(0)
    return max(unacknowledged, 0)


async def _first_offset(log: PartitionLog, cursor: Cursor, position: Position) -> int:
    """Return the first offset at or after a position, in what the cursor reads."""
    while cursor.reads_compacted and (compacted := log.compaction.compacted) is not None:
        if position > compacted.compacted.horizon:
            break
        with suppress(CompactedLedgerReplaced):
            kept = await compacted.batch_from(position)
            return compacted.end_offset if kept is None else read_base_offset(kept.batch)
    return await log.offset_at(position)


async def _entries_between(
    cursor: Cursor, first: Position, last: Position
) -> AsyncIterator[Sequence[Entry]]:
    position = first
    while position <= last:
        read = await cursor.read_from(position, READ_ENTRIES_MAX, READ_BYTES_MAX)
        if read.last is None:
            return
        yield [each for each in read.entries if each.position <= last]
        position = read.last.successor


def _acknowledged_of(state: CursorState, entry: Entry, start_offset: int) -> int:
    """Count the acknowledged records of an entry, removed ones too, that are not before the start.

    Only the first entry can begin before the start; it is then not fully acknowledged.
    """
    position, buffer = entry
    if state.is_in_hole(position):
        return read_offset_count(buffer)
    unacknowledged = state.batch_indexes(position)
    if unacknowledged is None:
        return 0
    header = read_header(buffer)
    first = max(start_offset - header.base_offset, 0)
    count = header.last_offset_delta + 1
    return count - first - sum(index >= first for index in unacknowledged)
