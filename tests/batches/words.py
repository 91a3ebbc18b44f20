"""Words to build batches with in tests: `batch("a", "b", producer=9, sequence=3)`."""

from batches.builder import NO_PRODUCER, BatchProducer, NewRecord, build_batch

NOW_MS = 1_700_000_000_000


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
