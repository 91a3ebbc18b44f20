"""Validation: the checks of a produced batch that need its records.

Rule: runs only for callers that need it (compacted topics, full validation); `header.check` has
checked everything in the header before.
Must not know: topics; `RecordRules` says what to check.
"""

from typing import NamedTuple

from kledger.batches.buffers import Buffer
from kledger.batches.compression import OUTPUT_SIZE_MAX
from kledger.batches.errors import BatchError, CorruptBatch, InvalidBatch, TimestampNotAllowed
from kledger.batches.header import BatchHeader
from kledger.batches.pacing import Pause, no_pause
from kledger.batches.reader import iterate_fields, opened_body
from kledger.batches.record import check_rest

NO_TIMESTAMP = -1
RECORD_ERRORS_MAX = 100


class RecordRules(NamedTuple):
    """The rules for every record.

    Attributes:
        is_key_required: the topic is compacted.
        timestamp_min, timestamp_max: allowed times in milliseconds, both inclusive.
        size_max: bytes that the records may take when uncompressed.
    """

    is_key_required: bool = False
    timestamp_min: int = -(1 << 63)
    timestamp_max: int = (1 << 63) - 1
    size_max: int = OUTPUT_SIZE_MAX


class RecordFaults:
    """The records that break one rule: all are counted, the first hundred are named."""

    __slots__ = ("count", "named")

    def __init__(self) -> None:
        self.count = 0
        self.named: list[tuple[int, str]] = []

    @property
    def is_full(self) -> bool:
        """Whether the next one is only counted."""
        return self.count >= RECORD_ERRORS_MAX

    def add(self, index: int, message: str) -> None:
        """Count a record at fault."""
        if not self.is_full:
            self.named.append((index, message))
        self.count += 1


def check_records(
    batch: Buffer, header: BatchHeader, rules: RecordRules, pause: Pause = no_pause
) -> int:
    """Walk all records of a produced batch.

    Returns:
        The largest timestamp found; the header's may differ from it.

    Raises:
        CorruptBatch: the codec finds the block damaged, or too large.
        InvalidBatch: count, offsets or keys are wrong.
        TimestampNotAllowed: a record's time lies outside the range.
    """
    with opened_body(batch, header, rules.size_max, pause) as body:
        return _check_body(body, header, rules, pause)


def _check_body(body: Buffer, header: BatchHeader, rules: RecordRules, pause: Pause) -> int:
    keyless, untimely = RecordFaults(), RecordFaults()
    is_key_required, earliest, latest, _ = rules
    timestamp_largest = NO_TIMESTAMP
    index = 0
    try:
        for index, fields in enumerate(iterate_fields(body, header.record_count, pause)):
            if fields.offset_delta != index:
                raise InvalidBatch(f"offset delta {fields.offset_delta}, expected {index}")
            check_rest(body, fields, pause)
            if is_key_required and fields.key_size < 0:
                keyless.add(index, "Compacted topic cannot accept message without key")
            timestamp = header.base_timestamp + fields.timestamp_delta
            timestamp_largest = max(timestamp_largest, timestamp)
            if not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                untimely.add(index, "" if untimely.is_full else _time_message(timestamp, rules))
    except CorruptBatch as error:
        raise InvalidBatch(f"record {index} cannot be read: {error}") from None
    problem = _first_problem(keyless, untimely)
    if problem is not None:
        raise problem
    return timestamp_largest


def _first_problem(keyless: RecordFaults, untimely: RecordFaults) -> BatchError | None:
    """Return the error for the records at fault."""
    if keyless.count:
        message = (
            "One or more records have been rejected: Compacted topic cannot accept message without "
            f"key ({keyless.count} records)"
        )
        return InvalidBatch(message, tuple(keyless.named))
    if untimely.count:
        message = (
            "One or more records have been rejected due to invalid timestamp: "
            f"{untimely.count} records, the first: {untimely.named[0][1]}"
        )
        return TimestampNotAllowed(message, tuple(untimely.named))
    return None


def _time_message(timestamp: int, rules: RecordRules) -> str:
    return (
        f"Timestamp {timestamp} is out of range, "
        f"expected {rules.timestamp_min} to {rules.timestamp_max}"
    )
