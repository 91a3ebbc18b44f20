"""The checks of a produced batch that need its records.

Rule: runs only where the caller wants it (compacted topics, full validation); everything the
header shows was checked before, by `header.check`.
Must not know: topics; it is told what to demand.
"""

from typing import NamedTuple

from batches.buffers import Buffer
from batches.compression import OUTPUT_SIZE_MAX
from batches.errors import BatchError, CorruptBatch, InvalidBatch, InvalidTimestamp
from batches.header import BatchHeader
from batches.reader import iterate_fields, open_body
from batches.record import read_rest

NO_TIMESTAMP = -1
RECORD_ERRORS_MAX = 100


class RecordRules(NamedTuple):
    """What every record must keep.

    Attributes:
        is_key_required: the topic is compacted.
        timestamp_min, timestamp_max: allowed times in milliseconds, both inclusive.
        size_max: bytes that the records may take when uncompressed.
    """

    is_key_required: bool = False
    timestamp_min: int = -(1 << 63)
    timestamp_max: int = (1 << 63) - 1
    size_max: int = OUTPUT_SIZE_MAX


def check_records(batch: Buffer, header: BatchHeader, rules: RecordRules) -> int:
    """Walk all records of a produced batch.

    Returns:
        The largest timestamp found; the header's may differ from it.

    Raises:
        CorruptBatch: the codec finds the block damaged, or too large.
        InvalidBatch: count, offsets or keys are wrong.
        InvalidTimestamp: a record's time lies outside the range.
    """
    body = open_body(batch, header, rules.size_max)
    key_errors: list[tuple[int, str]] = []
    time_errors: list[tuple[int, str]] = []
    timestamp_largest = NO_TIMESTAMP
    index = 0
    try:
        for index, fields in enumerate(iterate_fields(body, header.record_count)):
            if fields.offset_delta != index:
                raise InvalidBatch(f"offset delta {fields.offset_delta}, expected {index}")
            read_rest(body, fields)
            if rules.is_key_required and fields.key_size < 0:
                key_errors.append((index, "record without a key in a compacted topic"))
            timestamp = header.base_timestamp + fields.timestamp_delta
            timestamp_largest = max(timestamp_largest, timestamp)
            is_in_range = rules.timestamp_min <= timestamp <= rules.timestamp_max
            if not is_in_range and timestamp != NO_TIMESTAMP:
                time_errors.append((index, _time_message(timestamp, rules)))
    except CorruptBatch as error:
        raise InvalidBatch(f"record {index} cannot be read: {error}") from None
    problem = _first_problem(key_errors, time_errors)
    if problem is not None:
        raise problem
    return timestamp_largest


def _first_problem(
    key_errors: list[tuple[int, str]], time_errors: list[tuple[int, str]]
) -> BatchError | None:
    """The kind of answer for the records at fault; one answer names at most a hundred."""
    if key_errors:
        count = len(key_errors)
        kept = tuple(key_errors[:RECORD_ERRORS_MAX])
        return InvalidBatch(f"{count} records without a key in a compacted topic", kept)
    if time_errors:
        kept = tuple(time_errors[:RECORD_ERRORS_MAX])
        first = time_errors[0][1]
        return InvalidTimestamp(f"{len(time_errors)} times out of range, the first: {first}", kept)
    return None


def _time_message(timestamp: int, rules: RecordRules) -> str:
    return f"timestamp {timestamp}, expected {rules.timestamp_min} to {rules.timestamp_max}"
