"""Copies a stored batch for another log.

Rule: key, value, headers, timestamp and attributes of every unacknowledged record are kept, and so
is the codec. Fields that belong to the source's log (offsets, epochs, producers, transactions) are
not copied.
Must not know: the target.
"""

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import (
    DELETE_HORIZON_BIT,
    NO_PRODUCER_ID,
    BatchHeader,
    patch_base_offset,
    read_header,
    set_producer,
)
from kledger.batches.reader import iterate_records
from kledger.ledger import Buffer
from kledger.native.forwarder.forwarder_state import SourceEntry


def copy_batch(entry: SourceEntry) -> bytearray | None:
    """Return a batch of the unacknowledged records; None if there are none.

    Raises:
        CorruptBatch: the entry is no batch.
    """
    header = read_header(entry.data)
    if header.is_control:
        return None
    every_record = (1 << header.record_count) - 1
    unacknowledged = entry.records & every_record
    if not unacknowledged:
        return None
    if unacknowledged != every_record or _needs_rebuilding(header):
        return _rebuilt(entry.data, header, unacknowledged)
    batch = bytearray(memoryview(entry.data)[: header.size])
    patch_base_offset(batch, 0, -1, batch_length=header.batch_length)
    set_producer(batch, NO_PRODUCER_ID, -1, -1)
    return batch


def _needs_rebuilding(header: BatchHeader) -> bool:
    """Return whether the header holds facts that the target's log would not keep."""
    has_gaps = header.last_offset_delta + 1 != header.record_count
    return header.is_log_append_time or has_gaps or bool(header.attributes & DELETE_HORIZON_BIT)


def _rebuilt(data: Buffer, header: BatchHeader, unacknowledged: int) -> bytearray:
    records = [
        NewRecord(record.value, record.key, record.timestamp, record.headers, record.attributes)
        for index, record in enumerate(iterate_records(data))
        if unacknowledged >> index & 1
    ]
    return build_batch(records, codec=header.codec)
