"""Records for the tests of pipelines: made from their number, sent, and read back from Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

START_MS = 1_700_000_000_000
WAIT_S = 120


class SentRecord(NamedTuple):
    """A record as it is sent; without a partition the client partitions by key."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = START_MS
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def json_record(number: int, *, partitions: int, step_ms: int = 1000) -> SentRecord:
    """Return the record of a number; fifty keys, times that rise by `step_ms`."""
    value = {"user": f"u{number % 50}", "amount": number}
    return SentRecord(
        key=b"k%d" % (number % 50),
        value=json.dumps(value).encode(),
        timestamp_ms=START_MS + number * step_ms,
        partition=number % partitions,
        headers=(("number", b"%d" % number),) if number % 2 else (),
    )


def create_topic(servers: str, topic: str, *, partitions: int = 1, **configs: str) -> None:
    """Create a topic that keeps old records; underscores in keys of configs stand for dots."""
    config = {"retention.ms": "-1"} | {
        key.replace("_", "."): value for key, value in configs.items()
    }
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([new])[topic].result(WAIT_S)


def send(servers: str, topic: str, records: Iterable[SentRecord], **settings: Any) -> None:
    """Send records and wait until all of them are acknowledged."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, **settings})
    for record in records:
        where: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            **where,
        )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    """Read every Parquet file below a folder as a reader without Spark's log does."""
    if not any(folder.rglob("*.parquet")):
        return []
    dataset = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    return list(dataset.to_table().to_pylist())


def topic_records(servers: str, topic: str) -> list[SentRecord]:
    """Read what is committed in a topic, in the order of partitions and offsets."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    )
    try:
        count = len(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)
        found: list[SentRecord] = []
        for partition in range(count):
            consumer.assign([TopicPartition(topic, partition, 0)])
            found += iter(partial(next_record, consumer, partition), None)
        return found
    finally:
        consumer.close()


def next_record(consumer: Consumer, partition: int) -> SentRecord | None:
    """Return the next record, None at the end of the partition."""
    message = consumer.poll(WAIT_S)
    assert message is not None, f"nothing within {WAIT_S} s"
    error = message.error()
    if error is not None:
        assert error.code() == KafkaError._PARTITION_EOF, error
        return None
    headers: Any = message.headers() or ()
    time_ms = message.timestamp()[1]
    return SentRecord(message.key(), message.value(), time_ms, partition, tuple(headers))
