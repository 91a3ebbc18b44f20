"""Batch header: reading, checking and patching the first 61 bytes of a record batch.

Rule: decisions need the header alone; the records after it stay opaque bytes. A patch of bytes that
the checksum covers computes it again, any other does not.
Must not know: records, topics, where offsets come from.

======  ====  ==========================================================================
offset  size  field
======  ====  ==========================================================================
0       8     base offset (0 from a client; outside the checksum)
8       4     length of everything after this field
12      4     leader epoch (ignored on arrival; outside the checksum)
16      1     magic, always 2
17      4     CRC-32C of byte 21 up to the end
21      2     attributes: 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 horizon
23      4     last offset delta
27      8     base timestamp (time of the delete horizon when bit 6 is set)
35      8     max timestamp (of every record under LogAppendTime)
43      8     producer id, -1 without
51      2     producer epoch
53      4     base sequence
57      4     record count
61      ...   the records, compressed as one block
======  ====  ==========================================================================
"""

from struct import Struct
from typing import NamedTuple

from kledger.batches.buffers import Buffer, WritableBuffer
from kledger.batches.checksum import crc32c
from kledger.batches.errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    UnsupportedCompression,
)

BATCH_OVERHEAD = 61
LENGTH_FIELD_END = 12
MAGIC = 2
RECORD_SIZE_MIN = 7
SIZE_UNLIMITED = 1 << 31
NO_PRODUCER_ID = -1

CODEC_MASK = 0x07
CODEC_MAX = 4
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
FLAGS_AT = 22
"""Where the byte with all these bits is."""

HEADER_STRUCT = Struct(">qiibIhiqqqhii")
_OFFSET_LENGTH_EPOCH = Struct(">qii")
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_FROM = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
_MAGIC_END = 17
_OLD_RECORD_SIZE_MIN = 14
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_INT8 = Struct(">b")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_PRODUCER = Struct(">qhi")
_RECORD_COUNT_AT = 57

_unpack = HEADER_STRUCT.unpack_from
_patch = _OFFSET_LENGTH_EPOCH.pack_into
_new_tuple = tuple.__new__  # a third of the cost of the class's own constructor


class BatchHeader(NamedTuple):
    """The fields of the head, in their order on the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_FIELD_END

    @property
    def last_offset(self) -> int:
        """Offset of the last record, also when compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Number of the compression codec."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the max timestamp holds for every record."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker of a transaction."""
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: Buffer, start: int = 0) -> BatchHeader:
    """Read the head of a stored batch without judging it.

    Raises:
        CorruptBatch: fewer than 61 bytes are left.
    """
    if len(buffer) - start < BATCH_OVERHEAD:
        raise CorruptBatch(f"batch of {len(buffer) - start} bytes, expected at least 61")
    return _new_tuple(BatchHeader, _unpack(buffer, start))


def read_record_count(buffer: Buffer) -> int:
    """Read the record count of a stored batch; a fraction of the cost of `read_header`.

    Raises:
        CorruptBatch: fewer than 61 bytes are there.
    """
    if len(buffer) < BATCH_OVERHEAD:
        raise CorruptBatch(f"batch of {len(buffer)} bytes, expected at least 61")
    count: int = _INT32.unpack_from(buffer, _RECORD_COUNT_AT)[0]
    return count


def read_offset_count(buffer: Buffer) -> int:
    """Read how many offsets a stored batch has: one a record, of those too that are compacted.

    Raises:
        CorruptBatch: fewer than 61 bytes are there.
    """
    if len(buffer) < BATCH_OVERHEAD:
        raise CorruptBatch(f"batch of {len(buffer)} bytes, expected at least 61")
    delta: int = _INT32.unpack_from(buffer, _CRC_FROM + 2)[0]
    return delta + 1


def read_base_offset(buffer: Buffer) -> int:
    """Read the first offset of a stored batch.

    Raises:
        CorruptBatch: fewer than 61 bytes are there.
    """
    if len(buffer) < BATCH_OVERHEAD:
        raise CorruptBatch(f"batch of {len(buffer)} bytes, expected at least 61")
    base_offset: int = _INT64.unpack_from(buffer)[0]
    return base_offset


def check(buffer: Buffer, size_max: int = SIZE_UNLIMITED) -> BatchHeader:
    """Check a produced batch by its header and its checksum.

    The batch is the first `size` bytes of the buffer; trailing bytes that hold no further batch are
    tolerated, as Apache Kafka does, and the caller cuts them off.

    Args:
        buffer: the records field of one partition in a produce request.
        size_max: limit for the batch as it is on the wire, header included.

    Raises:
        CorruptBatch, InvalidBatch, BatchTooLarge, UnsupportedCompression: see docs of the classes.
    """
    size = len(buffer)
    if size >= BATCH_OVERHEAD:
        fields = _unpack(buffer)
        # Layout order; spelled out because unpacking a tuple is cheaper than thirteen look-ups.
        base, length, _, magic, crc, attributes, delta, _, _, producer, _, sequence, count = fields
        if (
            length + LENGTH_FIELD_END == size <= size_max
            and magic == MAGIC
            and base == 0
            and attributes & CONTROL_BIT == 0
            and attributes & CODEC_MASK <= CODEC_MAX
            and delta + 1 == count > 0
            and (sequence >= 0 if producer >= 0 else attributes & TRANSACTIONAL_BIT == 0)
            and (attributes & CODEC_MASK or count * RECORD_SIZE_MIN <= size - BATCH_OVERHEAD)
            and crc32c(memoryview(buffer)[_CRC_FROM:]) == crc
        ):
            return _new_tuple(BatchHeader, fields)
    return _check_slowly(buffer, size_max)


def _check_slowly(buffer: Buffer, size_max: int) -> BatchHeader:
    """Find out what is wrong, in the order in which Apache Kafka looks; or cut and accept."""
    size = _first_size(buffer)
    if size is None:
        raise InvalidBatch(f"records of {len(buffer)} bytes hold no complete batch, expected one")
    magic = buffer[_MAGIC_AT]
    if magic != MAGIC:
        raise InvalidBatch(f"Invalid magic found in record: {magic}, expected {MAGIC}")
    rest = memoryview(buffer)[size:]
    if _first_size(rest) is not None:
        raise InvalidBatch("records hold more than one batch, expected exactly one")
    if size < BATCH_OVERHEAD:
        raise CorruptBatch(f"batch of {size} bytes, expected at least {BATCH_OVERHEAD}")
    header = BatchHeader._make(_unpack(buffer))
    if header.base_offset != 0:
        raise InvalidBatch(f"base offset {header.base_offset}, expected 0 from a client")
    if size > size_max:
        raise BatchTooLarge(f"batch of {size} bytes, expected at most {size_max}")
    verify_checksum(memoryview(buffer)[:size], header)
    problem = _problem(header)
    if problem is not None:
        raise problem
    return header


def _first_size(buffer: Buffer) -> int | None:
    """Size of the batch at the start, or None when no whole batch is there.

    Even an incomplete batch must begin like one; if it does not, the bytes are damaged.
    """
    if len(buffer) < LENGTH_FIELD_END:
        return None
    length: int = _INT32.unpack_from(buffer, 8)[0]
    if length < _OLD_RECORD_SIZE_MIN:
        raise CorruptBatch(f"batch length {length}, expected at least {_OLD_RECORD_SIZE_MIN}")
    if len(buffer) < _MAGIC_END:
        return None
    magic = _INT8.unpack_from(buffer, _MAGIC_AT)[0]
    if not 0 <= magic <= MAGIC:
        raise CorruptBatch(f"Invalid magic found in record: {magic}, expected {MAGIC}")
    size = length + LENGTH_FIELD_END
    return size if size <= len(buffer) else None


def _problem(header: BatchHeader) -> BatchError | None:
    """What is wrong with the meaning of a whole header."""
    count = header.record_count
    if count <= 0:
        return InvalidBatch(f"record count {count}, expected at least 1")
    if header.last_offset_delta != count - 1:
        return InvalidBatch(
            f"last offset delta {header.last_offset_delta}, expected {count - 1}"
            f" for {count} records"
        )
    if header.codec > CODEC_MAX:
        return UnsupportedCompression(f"compression codec {header.codec}, expected 0 to 4")
    if header.is_control:
        return InvalidBatch("control batch from a client, expected data")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return InvalidBatch(
            f"base sequence {header.base_sequence} of producer {header.producer_id}, expected >= 0"
        )
    if header.producer_id < 0 and header.is_transactional:
        return InvalidBatch("transactional batch without a producer id")
    body_size = header.size - BATCH_OVERHEAD
    if header.codec == 0 and count * RECORD_SIZE_MIN > body_size:
        return InvalidBatch(f"record count {count} does not fit into {body_size} bytes")
    return None


def verify_checksum(batch: Buffer, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the checksum of the batch is right; `batch` is exactly one."""
    crc = crc32c(memoryview(batch)[_CRC_FROM:])
    if crc != header.crc:
        raise CorruptBatch(f"checksum {header.crc:#010x} in the batch, expected {crc:#010x}")


def patch_base_offset(
    batch: WritableBuffer, base_offset: int, leader_epoch: int, *, batch_length: int
) -> None:
    """Write what the log decides; outside the checksum, so this costs one store.

    Args:
        batch: exactly one batch.
        base_offset: offset of its first record.
        leader_epoch: epoch of the log.
        batch_length: the length field as read; it lies between the two and is written back.
    """
    _patch(batch, 0, base_offset, batch_length, leader_epoch)


def set_log_append_time(batch: WritableBuffer, timestamp_ms: int) -> None:
    """Make the time of the append the time of every record; base and deltas stay as they are."""
    attributes: int = _ATTRIBUTES.unpack_from(batch, _CRC_FROM)[0]
    _ATTRIBUTES.pack_into(batch, _CRC_FROM, attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    refresh_checksum(batch)


def clear_timestamp_type(batch: WritableBuffer) -> None:
    """Make the records' own timestamps count, whatever the producer claimed."""
    attributes: int = _ATTRIBUTES.unpack_from(batch, _CRC_FROM)[0]
    _ATTRIBUTES.pack_into(batch, _CRC_FROM, attributes & ~LOG_APPEND_TIME_BIT)
    refresh_checksum(batch)


def set_max_timestamp(batch: WritableBuffer, timestamp_ms: int) -> None:
    """Correct a max timestamp that a producer stated wrongly."""
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    refresh_checksum(batch)


def set_producer(batch: WritableBuffer, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Write another producer into the header, outside of any transaction."""
    attributes: int = _ATTRIBUTES.unpack_from(batch, _CRC_FROM)[0]
    _ATTRIBUTES.pack_into(batch, _CRC_FROM, attributes & ~TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, base_sequence)
    refresh_checksum(batch)


def refresh_checksum(batch: WritableBuffer) -> None:
    """Write the checksum that fits the bytes as they are now."""
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
