"""A micro-batch has about as many bytes, whatever the size of the records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kledger.broker_client.broker_connections import KafkaFailed
from kledger.spark.kafka_client import KafkaClient
from kledger.testing import FaultyServer
from pipelines.batch_limit import (
    BYTES_PER_TRIGGER,
    OFFSETS_DEFAULT,
    OFFSETS_MAX,
    PARTITIONS_MAX,
    Sample,
    offsets_per_trigger,
    sample_topic,
)

WAIT_S = 60


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A server in memory."""
    with FaultyServer() as running:
        yield running


def create(server: FaultyServer, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka_address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)


def send(server: FaultyServer, topic: str, sizes: list[int], partitions: int = 1) -> None:
    """Send compressible records of some sizes, ten of each in a batch of their own."""
    producer = Producer({"bootstrap.servers": server.kafka_address, "compression.type": "zstd"})
    for size in sizes:
        for number in range(10):
            producer.produce(topic, b"x" * size, partition=number % partitions)
        assert producer.flush(WAIT_S) == 0


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], OFFSETS_DEFAULT),
        ([Sample(0, 0)], OFFSETS_DEFAULT),
        ([Sample(1, 1)], OFFSETS_MAX),
        ([Sample(100, 100 * 1024)], BYTES_PER_TRIGGER // 1024),
        ([Sample(100, 100), Sample(2, 4096), Sample(0, 0)], BYTES_PER_TRIGGER // 2048),
        ([Sample(1, 2 * BYTES_PER_TRIGGER)], 1),
    ],
)
def test_largest_records_decide(samples: list[Sample], expected: int) -> None:
    assert expected == offsets_per_trigger(samples)


@pytest.mark.parametrize("sizes", [[20_000, 10, 10], [10, 20_000, 10], [10, 10, 20_000]])
def test_large_records_are_met_wherever_they_are(server: FaultyServer, sizes: list[int]) -> None:
    """Their uncompressed size counts, which is what Spark handles."""
    create(server, "orders", 1)
    send(server, "orders", sizes)
    with KafkaClient(server.kafka_address) as client:
        limit = offsets_per_trigger(sample_topic(client, "orders"))
    assert BYTES_PER_TRIGGER // 20_100 < limit < BYTES_PER_TRIGGER // 20_000


def test_a_few_partitions_stand_for_many(server: FaultyServer) -> None:
    """One record in each of them."""
    count = 3 * PARTITIONS_MAX + 1
    create(server, "wide", count)
    producer = Producer({"bootstrap.servers": server.kafka_address})
    for number in range(count):
        producer.produce("wide", b"x", partition=number)
    assert producer.flush(WAIT_S) == 0
    with KafkaClient(server.kafka_address) as client:
        samples = list(sample_topic(client, "wide"))
    assert -(-count // 4) == len(samples) <= PARTITIONS_MAX


def test_topic_without_records_has_no_samples(server: FaultyServer) -> None:
    create(server, "empty", 2)
    with KafkaClient(server.kafka_address) as client:
        assert [] == list(sample_topic(client, "empty"))
        with pytest.raises(KafkaFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
            list(sample_topic(client, "no-such-topic"))
