"""Record locations: from a seek target, an offset or a position to one record of a log.

Rule: only a record between the log start and the end has a location. A seek target always leads
somewhere: to its record, to the next one that exists, or to the end. A time becomes an offset by
the rule of Kafka's ListOffsets. The end is taken before the log is read, so that a record which is
appended meanwhile is not passed over; LATEST is the last stable offset, before every open
transaction.
Must not know: clients.
"""

from contextlib import suppress

from kledger.batches.header import read_base_offset, read_header, read_offset_count
from kledger.delivery.errors import RecordNotFound
from kledger.delivery.model import LATEST, NO_RECORD, RecordLocation, RecordPosition, SeekTarget
from kledger.ledger import EARLIEST as EARLIEST_POSITION
from kledger.ledger import LATEST as LATEST_POSITION
from kledger.ledger import CompactedLedgerReplaced, Position
from kledger.subscriptions.model import StartPosition
from kledger.subscriptions.visibility_filter import VisibilityFilter
from kledger.topics import PartitionLog
from kledger.topics.partition.compacted_log import CompactedLog


async def find_start(
    log: PartitionLog, target: SeekTarget, *, is_inclusive: bool = True
) -> StartPosition:
    """Find the first record of a target, or the position behind the last record.

    Args:
        log: where to look.
        target: a valid one.
        is_inclusive: whether a record that is named comes first itself, or the one behind it.

    Raises:
        TopicsError: the partition is deleted, or cannot be read.
        LedgerError, BatchError: an entry cannot be read.
    """
    end_offset, stable_offset = log.high_watermark, log.last_stable_offset
    if target == LATEST and stable_offset == end_offset:
        return StartPosition(LATEST_POSITION)
    match target:
        case RecordPosition():
            offset = await _start_offset(log, target, end_offset, is_inclusive=is_inclusive)
        case int():
            found = await log.offset_for_timestamp(target)
            offset = end_offset if found is None else found.offset
        case _ if target == LATEST:
            offset = stable_offset
        case _:
            offset = log.log_start_offset
    return StartPosition(*await log.locate(offset))


async def find_compacted_start(
    log: PartitionLog, target: SeekTarget, *, is_inclusive: bool = True
) -> StartPosition:
    """Do the same for a cursor that reads compacted: find the first record that was kept.

    Raises as `find_start`.
    """
    while target != LATEST and (compacted := log.compaction.compacted) is not None:
        deleted_before = log.deleted_before_offset
        if deleted_before >= compacted.end_offset:
            break
        with suppress(CompactedLedgerReplaced):
            start = await _find_kept(compacted, target, deleted_before, is_inclusive=is_inclusive)
            if start is None:  # it is behind the horizon
                break
            if deleted_before:
                start = max(start, StartPosition(*await compacted.locate(deleted_before)))
            return start
    return await find_start(log, target, is_inclusive=is_inclusive)


async def _find_kept(
    compacted: CompactedLog, target: SeekTarget, start_offset: int, *, is_inclusive: bool
) -> StartPosition | None:
    """Find a target in a compacted log; None if it is not in there, but may be behind it."""
    match target:
        case RecordPosition(position, batch_index):
            if position > compacted.compacted.horizon:
                return None
            kept = await compacted.batch_from(position)
            if kept is None or kept.position != position:
                return StartPosition(position)  # the next one that was kept
            count = read_offset_count(kept.batch)
            if batch_index < 0:
                skipped = 0 if is_inclusive else count
            else:
                skipped = batch_index if is_inclusive else batch_index + 1
            return StartPosition(position, min(skipped, count), count)
        case int():
            found = await compacted.locate_time(target, start_offset)
            return None if found is None else StartPosition(*found)
        case _:
            return StartPosition(EARLIEST_POSITION)


async def last_record(log: PartitionLog, visibility_filter: VisibilityFilter) -> RecordLocation:
    """Return the newest visible record, or `NO_RECORD`.

    Raises:
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    offset = log.last_stable_offset - 1
    while offset >= log.log_start_offset:
        position, batch_index, batch_size = await log.locate(offset)
        entries = await log.managed_ledger.read_entries(position, 1, position)
        if not entries:
            break
        settled, hidden = visibility_filter.visibility_of(entries)
        if settled and not hidden:
            return RecordLocation(RecordPosition(position, batch_index), batch_size, offset)
        offset = read_base_offset(entries[0].buffer) - 1
    return NO_RECORD


async def committed_end(log: PartitionLog) -> Position:
    """Return the position behind the last entry before the last stable offset.

    Raises:
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    last, stable_offset = log.managed_ledger.last_confirmed_entry, log.last_stable_offset
    if stable_offset == log.high_watermark:
        return last.successor
    return (await log.locate(stable_offset)).position


async def record_at(log: PartitionLog, offset: int) -> RecordLocation:
    """Return the record with an offset.

    Raises:
        RecordNotFound: no record has that offset.
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    start, end = log.log_start_offset, log.high_watermark
    if not start <= offset < end:
        raise RecordNotFound(f"offset {offset} of {log.unit_name}: expected {start} to {end - 1}")
    position, batch_index, batch_size = await log.locate(offset)
    return RecordLocation(RecordPosition(position, batch_index), batch_size, offset)


async def offset_of(log: PartitionLog, record_position: RecordPosition) -> int:
    """Return the offset of a record; of a whole entry, that of its first record.

    Raises:
        RecordNotFound: there is no such record.
        TopicsError, LedgerError, BatchError: the log cannot be read.
    """
    position, index = record_position.position, max(0, record_position.batch_index)
    entries = await log.managed_ledger.read_entries(position, 1, position)
    if entries:
        header = read_header(entries[0].buffer)
        offset = header.base_offset + index
        if offset <= header.last_offset and offset >= log.log_start_offset:
            return offset
    raise RecordNotFound(f"{log.unit_name} has no record {index} of entry {position}")


async def _start_offset(
    log: PartitionLog, record_position: RecordPosition, end_offset: int, *, is_inclusive: bool
) -> int:
    """Return the offset of a record or of the one behind it; the next one's if it was removed."""
    entries = await log.managed_ledger.read_entries(record_position.position, 1)
    if not entries:
        return end_offset
    position, buffer = entries[0]
    header = read_header(buffer)
    if position != record_position.position:
        return header.base_offset
    count = header.last_offset_delta + 1
    if record_position.batch_index < 0:
        skipped = 0 if is_inclusive else count
    else:
        skipped = record_position.batch_index if is_inclusive else record_position.batch_index + 1
    return header.base_offset + min(skipped, count)
