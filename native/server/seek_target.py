"""Targets: from where a client wants to go to the record that comes first there.

Rule: every target becomes an offset, by the rule that Kafka's ListOffsets has for times, and then
the entry and record at that offset or the next there is; what lies before the log start does not
exist. The end is taken before looking, so that nothing that comes meanwhile is passed over; the
newest that can be seen is before every transaction that is open.
Must not know: subscriptions; only the words in which they take a place.
"""

from kledger.batches.header import read_header
from kledger.ledger import LATEST as LATEST_POSITION
from kledger.ledger import Position
from kledger.native.broker import EARLIEST, LATEST, NUMBER_MAX, RecordPosition, SeekTarget
from kledger.native.errors import InvalidArgument
from kledger.subscriptions.model import StartPosition
from kledger.topics import PartitionLog

INT32_MAX = (1 << 31) - 1


def check_target(target: SeekTarget) -> None:
    """Refuse what is no target; who asks may be a program of anybody.

    Raises:
        InvalidArgument: says what was expected.
    """
    match target:
        case str():
            is_good = target in (EARLIEST, LATEST)
        case RecordPosition(Position(ledger_id, entry_id), batch_index):
            is_good = (
                _is_within(ledger_id, -1, NUMBER_MAX)
                and _is_within(entry_id, -1, NUMBER_MAX)
                and _is_within(batch_index, -1, INT32_MAX)
            )
        case int():
            is_good = _is_within(target, 0, NUMBER_MAX)
        case _:
            is_good = False
    if not is_good:
        raise InvalidArgument(
            f"target: expected a message, a time in ms, {EARLIEST!r} or {LATEST!r}, got {target!r}"
        )


async def find_start(
    log: PartitionLog, target: SeekTarget, *, is_inclusive: bool = True
) -> StartPosition:
    """Find the first record of a target that was checked, or the place behind the last record.

    Args:
        log: where to look.
        target: where to go.
        is_inclusive: whether a record that is named comes first itself, or the one behind it.

    Raises:
        TopicsError: the partition is gone, or cannot be read.
        LedgerError, BatchError: an entry cannot be read.
    """
    end_offset, stable_offset = log.high_watermark, log.last_stable_offset
    if target == LATEST and stable_offset == end_offset:
        return StartPosition(LATEST_POSITION)
    match target:
        case RecordPosition():
            offset = await _offset_of(log, target, end_offset, is_inclusive=is_inclusive)
        case int():
            found = await log.offset_for_timestamp(target)
            offset = end_offset if found is None else found.offset
        case _ if target == LATEST:
            offset = stable_offset
        case _:
            offset = log.log_start_offset
    return StartPosition(*await log.locate(offset))


async def _offset_of(
    log: PartitionLog, record_position: RecordPosition, end_offset: int, *, is_inclusive: bool
) -> int:
    """Offset at which to begin; of a record that is gone, that of the next there is."""
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


def _is_within(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
