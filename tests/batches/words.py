"""Words to build batches with in tests: `batch("a", "b", producer=9, sequence=3)`."""

from kledger.batches.builder import NO_PRODUCER, BatchProducer, NewRecord, build_batch
from kledger.batches.header import BATCH_OVERHEAD, HEADER_STRUCT, LENGTH_FIELD_END, refresh_checksum

NOW_MS = 1_700_000_000_000
LAST_OFFSET_DELTA = 4
"""Its offset in the header, after the length."""


def records(*values: str | bytes | None, timestamp: int = NOW_MS) -> list[NewRecord]:
    """Records with these values and keys k0, k1, …; their times are a millisecond apart."""
    return [
        NewRecord(
            value.encode() if isinstance(value, str) else value,
            key=b"k%d" % index,
            timestamp=timestamp + index,
        )
        for index, value in enumerate(values)
    ]


def batch(
    *values: str | bytes | None,
    codec: int = 0,
    producer: int | None = None,
    epoch: int = 0,
    sequence: int = 0,
    timestamp: int = NOW_MS,
    transactional: bool = False,
) -> bytearray:
    """Build a batch as a client sends it; without values it holds one record."""
    who = NO_PRODUCER
    if producer is not None:
        who = BatchProducer(producer, epoch, sequence, is_transactional=transactional)
    return build_batch(records(*(values or ("v",)), timestamp=timestamp), codec=codec, producer=who)


def cleaned(base_offset: int, offset_count: int, *, is_empty: bool = False) -> bytes:
    """Build what compaction leaves of a batch: its offsets, and its first record or none."""
    data = build_batch(records("kept"), base_offset=base_offset)
    base, length, *fields, _ = HEADER_STRUCT.unpack_from(data)
    if is_empty:
        del data[BATCH_OVERHEAD:]
        length = BATCH_OVERHEAD - LENGTH_FIELD_END
    fields[LAST_OFFSET_DELTA] = offset_count - 1
    HEADER_STRUCT.pack_into(data, 0, base, length, *fields, 0 if is_empty else 1)
    refresh_checksum(data)
    return bytes(data)
