"""Records by place and by offset: one record in the words of either façade.

Rule: only a record that is there has a location; what was removed, or comes later, is an error.
Must not know: links.
"""

from kledger.batches.header import read_base_offset, read_header
from kledger.native.broker import NO_RECORD, RecordLocation, RecordPosition
from kledger.native.errors import InvalidArgument
from kledger.native.server.subscribed_partition import SubscribedPartition


async def last_record(opened: SubscribedPartition) -> RecordLocation:
    """Find the newest record that is visible.

    Raises:
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    log = opened.log
    offset = log.last_stable_offset - 1
    while offset >= log.log_start_offset:
        position, batch_index, batch_size = await log.locate(offset)
        entries = await log.managed_ledger.read_entries(position, 1, position)
        if not entries:
            break
        settled, hidden = opened.visibility_filter.visibility_of(entries)
        if settled and not hidden:
            return RecordLocation(RecordPosition(position, batch_index), batch_size, offset)
        offset = read_base_offset(entries[0].buffer) - 1
    return NO_RECORD


async def record_at(opened: SubscribedPartition, offset: int) -> RecordLocation:
    """Find the record at an offset.

    Raises:
        InvalidArgument: no record has that offset.
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    log = opened.log
    start, end = log.log_start_offset, log.high_watermark
    if not start <= offset < end:
        raise InvalidArgument(f"offset {offset} of {opened.name}: expected {start} to {end - 1}")
    position, batch_index, batch_size = await log.locate(offset)
    return RecordLocation(RecordPosition(position, batch_index), batch_size, offset)


async def offset_of(opened: SubscribedPartition, record_position: RecordPosition) -> int:
    """Find the offset of a record; of a whole entry, that of its first record.

    Raises:
        InvalidArgument: there is no such record.
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    position, index = record_position.position, max(0, record_position.batch_index)
    entries = await opened.log.managed_ledger.read_entries(position, 1, position)
    if entries:
        header = read_header(entries[0].buffer)
        offset = header.base_offset + index
        if offset <= header.last_offset and offset >= opened.log.log_start_offset:
            return offset
    raise InvalidArgument(f"{opened.name} has no record {index} of entry {position}")
