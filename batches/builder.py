"""Builder: records into the bytes of one batch.

Rule: a built data batch passes `header.check`, and its records read back equal.
Must not know: logs and offsets; a batch starts at offset 0 unless the caller gives another one.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from kledger.batches.buffers import Buffer
from kledger.batches.compression import Codec, compress
from kledger.batches.header import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    HEADER_STRUCT,
    LENGTH_FIELD_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    refresh_checksum,
)
from kledger.batches.record import Header, Record, append_record

_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
ABORT, COMMIT = 0, 1
"""Kinds of markers, as in their keys."""


class NewRecord(NamedTuple):
    """A record to be written; its offset follows from its index in the batch."""

    value: Buffer | None
    key: Buffer | None = None
    timestamp: int = 0
    headers: Sequence[Header] = ()
    attributes: int = 0


RecordParts = tuple[Buffer | None, Buffer | None, int, Sequence[Header], int]
"""The fields of a `NewRecord`, which is one of these."""


class BatchProducer(NamedTuple):
    """The producer of the batch, for idempotence."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


NO_PRODUCER = BatchProducer()


def build_batch(
    records: Iterable[RecordParts],
    *,
    codec: int = Codec.NONE,
    producer: BatchProducer = NO_PRODUCER,
    base_offset: int = 0,
    leader_epoch: int = -1,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Build one batch; the first record's timestamp becomes the base timestamp.

    Args:
        records: at least one.
        codec: how the records are compressed.
        producer: id, epoch and first sequence number of an idempotent producer.
        base_offset: offset of the first record; brokers require 0.
        leader_epoch: epoch of the log; brokers ignore it.
        log_append_time_ms: if given, the time of every record.
    """
    pieces, count, base_timestamp, max_timestamp = _encode(records)
    assert count > 0, "a batch needs at least one record"
    attributes = int(codec)
    if producer.is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    return _assemble(
        pieces if codec == Codec.NONE else [compress(codec, b"".join(pieces))],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        count=count,
        timestamps=(base_timestamp, max_timestamp),
        producer=producer,
    )


def build_sparse_batch(records: Sequence[Record]) -> bytearray:
    """Build one batch of records that keep their offsets, which may leave others out.

    Args:
        records: at least one, ascending by offset.
    """
    first, last = records[0], records[-1]
    pieces: list[Buffer] = []
    for record in records:
        append_record(
            pieces,
            record.key,
            record.value,
            record.headers,
            record.timestamp - first.timestamp,
            record.offset - first.offset,
            record.attributes,
        )
    return _assemble(
        pieces,
        base_offset=first.offset,
        leader_epoch=-1,
        attributes=int(Codec.NONE),
        count=len(records),
        timestamps=(first.timestamp, max(each.timestamp for each in records)),
        producer=NO_PRODUCER,
        last_offset_delta=last.offset - first.offset,
    )


def build_control_batch(
    *,
    is_commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Build the marker that ends a transaction: one record, which takes one offset."""
    record = NewRecord(
        key=_CONTROL_KEY.pack(0, COMMIT if is_commit else ABORT),
        value=_CONTROL_VALUE.pack(0, coordinator_epoch),
        timestamp=timestamp_ms,
    )
    pieces, count, base_timestamp, max_timestamp = _encode([record])
    return _assemble(
        pieces,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        count=count,
        timestamps=(base_timestamp, max_timestamp),
        producer=BatchProducer(producer_id, producer_epoch, -1),
    )


def _encode(records: Iterable[RecordParts]) -> tuple[list[Buffer], int, int, int]:
    """Return the pieces of the body, which are joined once, and count and times of the records."""
    pieces: list[Buffer] = []
    count = 0
    base_timestamp = max_timestamp = -1
    for count, (value, key, timestamp, headers, attributes) in enumerate(records, 1):
        if count == 1:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        time_delta = timestamp - base_timestamp
        append_record(pieces, key, value, headers, time_delta, count - 1, attributes)
    return pieces, count, base_timestamp, max_timestamp


def _assemble(
    pieces: Sequence[Buffer],
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    count: int,
    timestamps: tuple[int, int],
    producer: BatchProducer,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Return a whole batch. `last_offset_delta`: None: records follow each other."""
    batch = bytearray().join([bytes(BATCH_OVERHEAD), *pieces])
    size = len(batch)
    HEADER_STRUCT.pack_into(
        batch,
        0,
        base_offset,
        size - LENGTH_FIELD_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        *timestamps,
        producer.producer_id,
        producer.epoch,
        producer.base_sequence,
        count,
    )
    refresh_checksum(batch)
    return batch
