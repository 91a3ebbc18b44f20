"""Backlog in records: how many records of a partition a cursor has not acknowledged; exact.

Rule: cursors count entries, offsets count records. The records behind the mark-delete position are
counted by two offsets, and only the entries between that and the newest acknowledgement are read,
because a cursor does not know how many records an entry has. Records behind the last stable offset
do not count. The event loop runs other work between two reads.
Must not know: subscriptions.
"""

from kledger.batches.header import read_base_offset, read_header, read_record_count
from kledger.ledger import Cursor, CursorState, Entry
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
    unacknowledged = end_offset - await log.offset_at(position)
    async for entries in log.managed_ledger.read_in_chunks(
        position, last, count=READ_ENTRIES_MAX, bytes_max=READ_BYTES_MAX
    ):
        for entry in entries:
            if read_base_offset(entry.buffer) < end_offset:
                unacknowledged -= _acknowledged_of(state, entry, log.log_start_offset)
        await clock.sleep(0)
    return max(unacknowledged, 0)


def _acknowledged_of(state: CursorState, entry: Entry, log_start_offset: int) -> int:
    """Count the acknowledged records of an entry that are not before the log start.

    Only the first entry can begin before the log start; it is then not fully acknowledged.
    """
    position, buffer = entry
    if state.is_in_hole(position):
        return read_record_count(buffer)
    unacknowledged = state.batch_indexes(position)
    if unacknowledged is None:
        return 0
    header = read_header(buffer)
    first = max(log_start_offset - header.base_offset, 0)
    return header.record_count - first - sum(index >= first for index in unacknowledged)
