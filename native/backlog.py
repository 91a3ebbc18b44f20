"""Backlog in messages: how many records of a partition a subscription is owed; exact.

Rule: cursors count entries, offsets count records. What lies behind the mark-delete position is
counted by two offsets, and only the entries between that and the newest acknowledgement are looked
at one by one, because a cursor does not know how many records an entry has.
Must not know: subscriptions, who asks.
"""

from batches.header import BatchHeader, read_header
from ledger import Cursor, CursorState, Position
from topics import PartitionLog

PIECE_ENTRIES = 1_000
PIECE_BYTES = 4 << 20


async def count_backlog(log: PartitionLog, cursor: Cursor) -> int:
    """Count the records that are not acknowledged.

    Raises:
        TopicsError, LedgerError, BatchError: the partition is gone, or cannot be read.
    """
    end_offset = log.high_watermark
    state = cursor.state.copy()  # acknowledgements go on meanwhile
    position, last = state.mark_delete_position.successor, state.last_acknowledged
    owed = end_offset - await log.offset_at(position)
    while position <= last:
        entries = await log.managed_ledger.read_entries(
            position, PIECE_ENTRIES, last, bytes_max=PIECE_BYTES
        )
        if not entries:
            break
        for each, buffer in entries:
            owed -= _acknowledged_of(state, each, read_header(buffer), log.log_start_offset)
        position = entries[-1].position.successor
    return max(owed, 0)


def _acknowledged_of(
    state: CursorState, position: Position, header: BatchHeader, log_start_offset: int
) -> int:
    """How many records of an entry are acknowledged, of those that the log still begins with."""
    if state.is_in_hole(position):
        return max(0, header.last_offset + 1 - max(header.base_offset, log_start_offset))
    owed = state.batch_indexes(position)
    return 0 if owed is None else header.last_offset_delta + 1 - len(owed)
