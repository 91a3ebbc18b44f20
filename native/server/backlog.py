"""Backlog in messages: how many records of a partition a subscription is owed; exact.

Rule: cursors count entries, offsets count records. What lies behind the mark-delete position is
counted by two offsets, and only the entries between that and the newest acknowledgement are looked
at one by one, because a cursor does not know how many records an entry has. What is held up by an
open transaction is not owed yet. The loop is not held up meanwhile.
Must not know: subscriptions, who asks.
"""

from kledger.batches.header import read_base_offset, read_header, read_record_count
from kledger.ledger import Cursor, CursorState, Entry
from kledger.runtime.clock import Clock
from kledger.topics import PartitionLog

READ_ENTRIES_MAX = 500
READ_BYTES_MAX = 4 << 20


async def count_backlog(log: PartitionLog, cursor: Cursor, clock: Clock) -> int:
    """Count the records that are not acknowledged.

    Raises:
        TopicsError, LedgerError, BatchError: the partition is gone, or cannot be read.
    """
    end_offset = log.last_stable_offset
    state = cursor.state.copy()  # acknowledgements go on meanwhile
    position, last = state.mark_delete_position.successor, state.last_acknowledged
    unacknowledged = end_offset - await log.offset_at(position)
    while position <= last:
        entries = await log.managed_ledger.read_entries(
            position, READ_ENTRIES_MAX, last, bytes_max=READ_BYTES_MAX
        )
        if not entries:
            break
        for entry in entries:
            if read_base_offset(entry.buffer) < end_offset:
                unacknowledged -= _acknowledged_of(state, entry, log.log_start_offset)
        position = entries[-1].position.successor
        await clock.sleep(0)
    return max(unacknowledged, 0)


def _acknowledged_of(state: CursorState, entry: Entry, log_start_offset: int) -> int:
    """How many records of an entry are acknowledged, of those that exist.

    Only the first entry can begin before the log start, and as a whole it would not be in a hole.
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
