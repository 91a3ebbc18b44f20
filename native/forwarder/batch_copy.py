"""A stored batch as it is sent somewhere else.

Rule: key, value, headers, time and attributes of every record that is owed stay as they are, and so
does the codec. What belongs to the log it comes from (offsets, epochs, producers, transactions)
does not go along.
Must not know: where it goes.
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
    """Return a batch of the records that are owed, for a log of its own; None when it has none.

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
    """Tell whether what the header says of its records is lost in a log with other settings."""
    has_gaps = header.last_offset_delta + 1 != header.record_count
    return header.is_log_append_time or has_gaps or bool(header.attributes & DELETE_HORIZON_BIT)


def _rebuilt(data: Buffer, header: BatchHeader, unacknowledged: int) -> bytearray:
    records = [
        NewRecord(record.value, record.key, record.timestamp, record.headers, record.attributes)
        for index, record in enumerate(iterate_records(data))
        if unacknowledged >> index & 1
    ]
    return build_batch(records, codec=header.codec)
