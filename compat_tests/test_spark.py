"""Spark's built-in kafka source and sink, batch and streaming."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from compat_tests import peers
from compat_tests.conftest import MakeTopic
from compat_tests.records import FIRST_TIMESTAMP_MS, STEP_MS, Sample, samples
from compat_tests.test_confluent_kafka import consuming, receive, send_all
from compat_tests.test_two_facades import send_natively

pytestmark = [pytest.mark.peer("spark"), pytest.mark.slow]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A local session with the connector from the registry."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", peers.SPARK_CONNECTOR)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def filled(bootstrap: str, make_topic: MakeTopic) -> str:
    """A topic of two partitions with a hundred records in each, compressed by librdkafka."""
    name = make_topic(partitions=2)
    for partition in range(2):
        send_all(bootstrap, name, samples(100, seed=partition), partition, compression_type="zstd")
    return name


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """A batch over a topic."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return (
        reader.option("subscribe", topic).option("includeHeaders", "true").options(**options).load()
    )


def as_sample(row: Any) -> Sample:
    """See a row as a record that was sent."""
    return Sample(
        key=bytes(row.key) if row.key is not None else None,
        value=bytes(row.value) if row.value is not None else None,
        headers=tuple((header.key, bytes(header.value)) for header in row.headers or ()),
        timestamp_ms=round(row.timestamp_ms),
    )


def rows(frame: DataFrame) -> list[Any]:
    """Collect in the order of partitions and offsets, the timestamp in milliseconds."""
    return (
        frame.selectExpr("*", "unix_millis(timestamp) AS timestamp_ms")
        .orderBy("partition", "offset")
        .collect()
    )


@pytest.mark.feature("batch read of what was written natively")
def test_batch_reads_native_messages(
    spark: SparkSession, bootstrap: str, native_url: str, make_topic: MakeTopic
) -> None:
    name = make_topic(partitions=2)
    sent = asyncio.run(send_natively(native_url, name))
    expected = [each.sample for each in sorted(sent, key=lambda each: (each.id.partition, each.id))]
    collected = rows(read(spark, bootstrap, name))
    assert expected == [as_sample(row) for row in collected]


@pytest.mark.feature("batch read: every record, headers, timestamps")
def test_batch_reads_every_record(spark: SparkSession, bootstrap: str, filled: str) -> None:
    collected = rows(read(spark, bootstrap, filled))
    expected = samples(100, seed=0) + samples(100, seed=1)
    assert expected == [as_sample(row) for row in collected]
    assert [row.offset for row in collected] == 2 * list(range(100))


@pytest.mark.feature("batch read: a range of offsets, split into many tasks")
def test_batch_reads_a_range(spark: SparkSession, bootstrap: str, filled: str) -> None:
    start = f'{{"{filled}": {{"0": 13, "1": -2}}}}'
    end = f'{{"{filled}": {{"0": 77, "1": 50}}}}'
    frame = read(
        spark, bootstrap, filled, startingOffsets=start, endingOffsets=end, minPartitions="7"
    )
    found = [(row.partition, row.offset) for row in rows(frame)]
    assert found == [(0, n) for n in range(13, 77)] + [(1, n) for n in range(50)]


@pytest.mark.feature("batch read: starting by timestamp")
def test_batch_reads_from_a_timestamp(spark: SparkSession, bootstrap: str, filled: str) -> None:
    start = str(FIRST_TIMESTAMP_MS + 90 * STEP_MS)
    frame = read(spark, bootstrap, filled, startingTimestamp=start)
    assert [row.offset for row in rows(frame)] == 2 * list(range(90, 100))


@pytest.mark.feature("batch write: keys, values, headers")
def test_batch_writes_records(
    spark: SparkSession, bootstrap: str, filled: str, make_topic: MakeTopic, group: str
) -> None:
    target = make_topic()
    frame = read(spark, bootstrap, filled).where("partition = 0").coalesce(1)
    (
        frame.select("key", "value", "headers")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("includeHeaders", "true")
        .option("topic", target)
        .save()
    )
    with consuming(bootstrap, target, group=group) as consumer:
        received = receive(consumer, 100)
    expected = [(s.key, s.value, s.headers) for s in samples(100, seed=0)]
    assert expected == [(m.key(), m.value(), tuple(m.headers() or ())) for m in received]


@pytest.mark.feature("streaming: read and write, stopped and resumed by its checkpoint")
def test_stream_resumes_from_its_checkpoint(
    spark: SparkSession, bootstrap: str, filled: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    target = make_topic(partitions=2)
    run_stream(spark, bootstrap, filled, target, tmp_path)
    first = rows(read(spark, bootstrap, target))
    assert len(first) == 200
    send_all(bootstrap, filled, samples(50, seed=2), 1)
    run_stream(spark, bootstrap, filled, target, tmp_path)
    values = [bytes(row.value) for row in rows(read(spark, bootstrap, target)) if row.value]
    sent = samples(100, seed=0) + samples(100, seed=1) + samples(50, seed=2)
    assert sorted(values) == sorted(record.value for record in sent if record.value)


def run_stream(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    checkpoint: Path,
    **options: str,
) -> None:
    """Copy what is there from one topic to another, in batches of at most 60 records."""
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .options(**options)
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(120)


@pytest.mark.feature("batch read, read_committed: only what was committed")
def test_batch_reads_what_was_committed(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    name = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for prefix, end in (
        ("kept", producer.commit_transaction),
        ("dropped", producer.abort_transaction),
        ("later", producer.commit_transaction),
    ):
        producer.begin_transaction()
        for index in range(20):
            producer.produce(name, f"{prefix}-{index}")
        end(30)
    committed = {"kafka.isolation.level": "read_committed"}
    values = [bytes(row.value) for row in rows(read(spark, bootstrap, name, **committed))]
    assert [f"{prefix}-{i}".encode() for prefix in ("kept", "later") for i in range(20)] == values


@pytest.mark.feature("streaming: a start by timestamp, minPartitions, a group.id of one's own")
def test_stream_starts_at_a_timestamp(
    *,
    spark: SparkSession,
    bootstrap: str,
    filled: str,
    make_topic: MakeTopic,
    group: str,
    tmp_path: Path,
) -> None:
    target = make_topic()
    options = {
        "startingTimestamp": str(FIRST_TIMESTAMP_MS + 90 * STEP_MS),
        "minPartitions": "5",
        "kafka.group.id": group,
    }
    run_stream(spark, bootstrap, filled, target, tmp_path, **options)
    found = [as_sample(row) for row in rows(read(spark, bootstrap, target))]
    sent = [record for seed in (0, 1) for record in samples(100, seed=seed)[90:]]
    expected = Counter((record.key, record.value) for record in sent)
    assert expected == Counter((record.key, record.value) for record in found)


@pytest.mark.feature("streaming: failOnDataLoss, true and false, when records were deleted")
def test_stream_notices_lost_records(
    spark: SparkSession, bootstrap: str, filled: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    target = make_topic()
    run_stream(spark, bootstrap, filled, target, tmp_path)
    send_all(bootstrap, filled, samples(50, seed=2), 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(filled, 1, 120)]).values():
        deleted.result(30)
    with pytest.raises(StreamingQueryException):
        run_stream(spark, bootstrap, filled, target, tmp_path)
    run_stream(spark, bootstrap, filled, target, tmp_path, failOnDataLoss="false")
    assert 200 + 30 == read(spark, bootstrap, target).count()
