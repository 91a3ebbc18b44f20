"""Records by place and by offset: one record in the words of either façade.

Rule: only a record that is there has a location; what was removed, or comes later, is an error.
Must not know: links.
"""

from kledger.batches.header import read_base_offset, read_header
from kledger.native.errors import InvalidArgument
from kledger.native.seam import NO_RECORD, MessagePlace, RecordLocation
from kledger.native.served_partition import ServedPartition


async def last_record(served: ServedPartition) -> RecordLocation:
    """Find the newest record that is visible.

    Raises:
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    log = served.log
    offset = log.last_stable_offset - 1
    while offset >= log.log_start_offset:
        position, batch_index, batch_size = await log.locate(offset)
        entries = await log.managed_ledger.read_entries(position, 1, position)
        if not entries:
            break
        settled, hidden = served.screen.look(entries)
        if settled and not hidden:
            return RecordLocation(MessagePlace(position, batch_index), batch_size, offset)
        offset = read_base_offset(entries[0].buffer) - 1
    return NO_RECORD


async def record_at(served: ServedPartition, offset: int) -> RecordLocation:
    """Find the record at an offset.

    Raises:
        InvalidArgument: no record has that offset.
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    log = served.log
    start, end = log.log_start_offset, log.high_watermark
    if not start <= offset < end:
        raise InvalidArgument(f"offset {offset} of {served.name}: expected {start} to {end - 1}")
    position, batch_index, batch_size = await log.locate(offset)
    return RecordLocation(MessagePlace(position, batch_index), batch_size, offset)


async def offset_of(served: ServedPartition, place: MessagePlace) -> int:
    """Find the offset of a record; of a whole entry, that of its first record.

    Raises:
        InvalidArgument: there is no such record.
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    position, index = place.position, max(0, place.batch_index)
    entries = await served.log.managed_ledger.read_entries(position, 1, position)
    if entries:
        header = read_header(entries[0].buffer)
        offset = header.base_offset + index
        if offset <= header.last_offset and offset >= served.log.log_start_offset:
            return offset
    raise InvalidArgument(f"{served.name} has no record {index} of entry {position}")
