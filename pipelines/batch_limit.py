"""How many offsets a micro-batch reads: as many as have about BYTES_PER_TRIGGER.

Rule: the size of records is sampled when a run starts, at the beginning, in the middle and at the
end of partitions. The record batch with the largest ones decides, so a micro-batch may have less,
and more only by records that no sample met. Must not know: Spark, what a pipeline does.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kledger.batches.reader import iterate_batches, open_body
from kledger.broker_client.broker_connections import KafkaFailed
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition

BYTES_PER_TRIGGER: Final = 256 << 20
OFFSETS_DEFAULT: Final = 500_000
"""Of a topic that has nothing to sample yet, and of a source that is not sampled."""
OFFSETS_MAX: Final = 5_000_000
SAMPLE_BYTES: Final = 128 << 10
PARTITIONS_MAX: Final = 16
"""Partitions that are sampled."""


class Sample(NamedTuple):
    """A record batch: its records, and the uncompressed bytes of these."""

    records: int
    size: int


def offsets_per_trigger(samples: Iterable[Sample]) -> int:
    """Return how many offsets a micro-batch should have, OFFSETS_DEFAULT without samples."""
    largest = max((each.size / each.records for each in samples if each.records), default=0)
    if not largest:
        return OFFSETS_DEFAULT
    return max(1, min(OFFSETS_MAX, int(BYTES_PER_TRIGGER / largest)))


def sample_topic(client: KafkaClient, topic: str) -> Iterator[Sample]:
    """Read a little of a topic.

    Raises:
        KafkaFailed, ConnectionLost: the topic does not exist, or there is no server.
    """
    count = client.topics([topic])[topic]
    step = -(-count // PARTITIONS_MAX)
    partitions = [KafkaPartition(topic, number) for number in range(0, count, step)]
    starts, ends = (
        client.offsets(dict.fromkeys(partitions, where), is_committed=True)
        for where in (EARLIEST, LATEST)
    )
    for where in partitions:
        start, end = starts[where], ends[where]
        for offset in sorted({start, (start + end) // 2, end - 1}):
            if start <= offset < end:
                yield from _samples(client, where, offset)


def _samples(client: KafkaClient, where: KafkaPartition, offset: int) -> list[Sample]:
    def attempt() -> list[Sample]:
        client.send_fetch(where, offset, is_committed=True, bytes_max=SAMPLE_BYTES)
        found = client.receive_fetch(where)
        batches = () if found is None else iterate_batches(found.records or b"")
        return [
            Sample(header.record_count, len(open_body(batch, header)))
            for header, batch in batches
            if not header.is_control
        ]

    try:
        return client.retried(attempt)
    except KafkaFailed:  # for example cut off by retention meanwhile: a sample can be missing
        return []
