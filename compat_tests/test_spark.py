"""Spark's built-in kafka source and sink, batch and streaming."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

import kledger.spark
from compat_tests import peers
from compat_tests.compacted_topics import TICK, compact, create_compacted, read_partition
from compat_tests.conftest import MakeTopic, create_topic
from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds, wait_until
from compat_tests.records import FIRST_TIMESTAMP_MS, STEP_MS, Sample, samples
from compat_tests.secured_server import SecuredServer, of_listeners
from compat_tests.test_confluent_kafka import consuming, receive, send_all
from compat_tests.test_crash import crash_server
from compat_tests.test_two_facades import send_natively

pytestmark = [pytest.mark.peer("spark"), pytest.mark.slow]

POLL_TIMEOUT_MS = "20000"
OLD_OFFSET_FETCHING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A local session with the connector from the registry."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
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


def delete_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Move the start of a log."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(WAIT_S)


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


@pytest.mark.feature("batch write and read of a topic of another namespace")
def test_batch_uses_a_topic_of_a_namespace(
    spark: SparkSession, bootstrap: str, namespaced_topic: str
) -> None:
    create_topic(bootstrap, namespaced_topic, 1, {})
    frame = spark.createDataFrame([("a", "one"), ("b", "two")], "key string, value string")
    writer = frame.coalesce(1).write.format("kafka").option("topic", namespaced_topic)
    writer.option("kafka.bootstrap.servers", bootstrap).save()
    collected = rows(read(spark, bootstrap, namespaced_topic))
    assert [(b"a", b"one"), (b"b", b"two")] == [(bytes(r.key), bytes(r.value)) for r in collected]
    assert {namespaced_topic} == {row.topic for row in collected}


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


@pytest.mark.feature("batch read: starting by a timestamp after the last record")
def test_batch_finds_nothing_after_the_last_timestamp(
    spark: SparkSession, bootstrap: str, filled: str
) -> None:
    start = str(FIRST_TIMESTAMP_MS + 100 * STEP_MS)
    with pytest.raises(Exception, match="No offset matched from request"):
        read(spark, bootstrap, filled, startingTimestamp=start).count()
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert 0 == read(spark, bootstrap, filled, startingTimestamp=start, **latest).count()


@pytest.mark.feature("batch read: topics by pattern, partitions assigned")
def test_batch_reads_what_is_chosen(spark: SparkSession, bootstrap: str, filled: str) -> None:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    by_pattern = reader.option("subscribePattern", f"{filled}|no-such-topic").load()
    assert {(filled, 0), (filled, 1)} == {
        (row.topic, row.partition) for row in by_pattern.collect()
    }
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    assigned = reader.option("assign", f'{{"{filled}": [1]}}').load()
    assert 100 * [1] == [row.partition for row in assigned.collect()]


@pytest.mark.feature("batch read: offsets below the log's start, failOnDataLoss true and false")
def test_batch_notices_lost_records(spark: SparkSession, bootstrap: str, filled: str) -> None:
    delete_records(bootstrap, filled, 0, 40)
    lost = {
        "startingOffsets": f'{{"{filled}": {{"0": 10, "1": -2}}}}',
        "kafkaConsumer.pollTimeoutMs": POLL_TIMEOUT_MS,
    }
    with pytest.raises(Exception, match=r"(?i)data.?loss|out of range"):
        read(spark, bootstrap, filled, **lost).count()
    kept = rows(read(spark, bootstrap, filled, failOnDataLoss="false", **lost))
    assert [*range(40, 100), *range(100)] == [row.offset for row in kept]


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
    few = options | {"maxOffsetsPerTrigger": "60"}
    stream = copying(spark, bootstrap, source, target, checkpoint, **few)
    assert stream.trigger(availableNow=True).start().awaitTermination(PROGRAM_S)


def copying(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    checkpoint: Path,
    **options: str,
) -> DataStreamWriter:
    """A stream from one topic to another, not started."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
    )


@of_listeners
@pytest.mark.feature("batch and streaming, read and write: SASL_SSL with SCRAM, and mTLS")
def test_reads_and_writes_with_tls(
    spark: SparkSession, secured: SecuredServer, topic: str, listener: str, tmp_path: Path
) -> None:
    source, target = f"{topic}-source", f"{topic}-target"
    for name in (source, target):
        create_topic(secured.open_address, name, 1, {})
    address = secured.addresses[listener]
    client = {f"kafka.{key}": value for key, value in secured.java(listener).items()}
    everything = client | {"kafka.bootstrap.servers": address}
    frame = spark.createDataFrame([("a", "one"), ("b", "two")], "key string, value string")
    writer = frame.coalesce(1).write.format("kafka").options(**everything)
    writer.option("topic", source).save()
    stream = (
        spark.readStream.format("kafka")
        .options(**everything, subscribe=source, startingOffsets="earliest")
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .options(**everything, topic=target, checkpointLocation=str(tmp_path))
    )
    assert stream.trigger(availableNow=True).start().awaitTermination(PROGRAM_S)
    collected = rows(read(spark, address, target, **client))
    assert [(b"a", b"one"), (b"b", b"two")] == [(bytes(r.key), bytes(r.value)) for r in collected]


@of_listeners
@pytest.mark.feature(
    "SASL_SSL with SCRAM, and mTLS: the same options for formats kafka and kledger"
)
def test_formats_take_the_same_options_of_security(
    spark: SparkSession, secured: SecuredServer, topic: str, listener: str
) -> None:
    kledger.spark.register(spark)
    create_topic(secured.open_address, topic, 2, {})
    options = {f"kafka.{key}": value for key, value in secured.java(listener).items()}
    options["kafka.bootstrap.servers"] = secured.addresses[listener]
    formats = ("kafka", "kledger")
    for name in formats:
        sent = spark.range(10).selectExpr(f"concat('{name} ', id) AS value")
        sent.write.format(name).mode("append").options(**options, topic=topic).save()
    expected = sorted(f"{name} {number}" for name in formats for number in range(10))
    for name in formats:
        found = spark.read.format(name).options(**options, subscribe=topic).load().collect()
        assert expected == sorted(bytes(row.value).decode() for row in found)


@pytest.mark.feature("streaming, {trigger}: follows new records, stopped and resumed")
@pytest.mark.parametrize("trigger", ["processingTime", "continuous"])
def test_stream_follows_new_records(
    *,
    spark: SparkSession,
    bootstrap: str,
    filled: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    trigger: str,
) -> None:
    target, expected = make_topic(partitions=2), Counter(values_of(0) + values_of(1))
    for seed in (2, 3):
        stream = copying(spark, bootstrap, filled, target, tmp_path)
        query = stream.trigger(**{trigger: "500 milliseconds"}).start()
        try:
            wait_for_copies(bootstrap, target, expected)
            send_all(bootstrap, filled, samples(100, seed=seed), 1)
            expected += Counter(values_of(seed))
            wait_for_copies(bootstrap, target, expected)
        finally:
            query.stop()


def values_of(seed: int) -> list[bytes | None]:
    """The values of a hundred records."""
    return [record.value for record in samples(100, seed=seed)]


def wait_for_copies(bootstrap: str, topic: str, expected: Counter[bytes | None]) -> None:
    """Wait until each value was copied; a stream may copy one more than once."""
    with consuming(bootstrap, topic) as consumer:
        found: Counter[bytes | None] = Counter()
        for _ in rounds(f"{expected.total()} records copied", within_s=PROGRAM_S):
            messages = consumer.consume(500, timeout=0.5)
            found.update(each.value() for each in messages if each.error() is None)
            if expected <= found:
                return


@pytest.mark.feature("batch read, read_committed: only what was committed")
def test_batch_reads_what_was_committed(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    name = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    for prefix, end in (
        ("kept", producer.commit_transaction),
        ("dropped", producer.abort_transaction),
        ("later", producer.commit_transaction),
        ("dropped at the end", producer.abort_transaction),
    ):
        send_transaction(producer, name, prefix)
        end(WAIT_S)
    kept = [f"{prefix}-{i}".encode() for prefix in ("kept", "later") for i in range(20)]
    assert kept == committed_values(spark, bootstrap, name)
    send_transaction(producer, name, "open")
    assert kept == committed_values(spark, bootstrap, name), "a range ends before what is open"
    producer.commit_transaction(WAIT_S)
    assert kept + [f"open-{i}".encode() for i in range(20)] == committed_values(
        spark, bootstrap, name
    )


def send_transaction(producer: Producer, topic: str, prefix: str) -> None:
    """Send twenty records in a transaction that stays open."""
    producer.begin_transaction()
    for index in range(20):
        producer.produce(topic, f"{prefix}-{index}")
    assert 0 == producer.flush(WAIT_S)


def committed_values(spark: SparkSession, bootstrap: str, topic: str) -> list[bytes]:
    """Read what is committed; a task that waits for what is not there fails early."""
    options = {
        "kafka.isolation.level": "read_committed",
        "kafkaConsumer.pollTimeoutMs": POLL_TIMEOUT_MS,
    }
    return [bytes(row.value) for row in rows(read(spark, bootstrap, topic, **options))]


@pytest.mark.feature("streaming, read_committed: what is open comes when it is committed")
def test_stream_copies_what_was_committed(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    name, target = make_topic(), make_topic()
    committed = {"kafka.isolation.level": "read_committed"}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    send_transaction(producer, name, "dropped")
    producer.abort_transaction(WAIT_S)
    send_transaction(producer, name, "kept")
    run_stream(spark, bootstrap, name, target, tmp_path, **committed)
    assert 0 == read(spark, bootstrap, target).count()
    producer.commit_transaction(WAIT_S)
    run_stream(spark, bootstrap, name, target, tmp_path, **committed)
    values = [bytes(row.value) for row in rows(read(spark, bootstrap, target))]
    assert sorted(values) == sorted(f"kept-{index}".encode() for index in range(20))


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


@pytest.mark.feature("streaming: offsets by a consumer in a group of one's own")
def test_stream_asks_for_offsets_in_a_group(
    *,
    spark: SparkSession,
    bootstrap: str,
    filled: str,
    make_topic: MakeTopic,
    group: str,
    tmp_path: Path,
) -> None:
    target, options = make_topic(), {"kafka.group.id": group}
    spark.conf.set(OLD_OFFSET_FETCHING, "true")
    query = copying(spark, bootstrap, filled, target, tmp_path, **options).start()
    try:
        wait_until(lambda: group in group_ids(bootstrap), f"a member of {group}")
        wait_for_copies(bootstrap, target, Counter(values_of(0) + values_of(1)))
    finally:
        query.stop()
        spark.conf.unset(OLD_OFFSET_FETCHING)


def group_ids(bootstrap: str) -> set[str]:
    """The groups that there are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {one.group_id for one in admin.list_consumer_groups().result(WAIT_S).valid}


@pytest.mark.feature("streaming: resumed after the server was killed, nothing lost")
def test_stream_resumes_after_a_kill_of_the_server(
    spark: SparkSession, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    with crash_server(pytestconfig, tmp_path / "server", "fsync") as server:
        for name in ("source", "target"):
            create_topic(server.bootstrap, name, 2, {})
        sent: list[bytes | None] = []
        for seed in (1, 2):
            send_all(server.bootstrap, "source", samples(100, seed=seed), seed - 1)
            sent += values_of(seed)
            run_stream(spark, server.bootstrap, "source", "target", tmp_path / "checkpoint")
            server.kill()
            server.start()
            copied = rows(read(spark, server.bootstrap, "target"))
            assert Counter(sent) == Counter(as_sample(row).value for row in copied)


@pytest.mark.feature("streaming: failOnDataLoss, when a topic was deleted and made anew")
def test_stream_notices_a_new_topic(
    spark: SparkSession, bootstrap: str, filled: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    target = make_topic()
    run_stream(spark, bootstrap, filled, target, tmp_path)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([filled])[filled].result(WAIT_S)
    wait_until(lambda: is_created(bootstrap, filled), f"{filled} is made anew")
    send_all(bootstrap, filled, samples(50, seed=2), 1)
    with pytest.raises(StreamingQueryException):
        run_stream(spark, bootstrap, filled, target, tmp_path)


def is_created(bootstrap: str, topic: str) -> bool:
    """Create a topic, unless the old one is still being deleted."""
    try:
        create_topic(bootstrap, topic, 2, {})
    except KafkaException:
        return False
    return True


@pytest.mark.feature("streaming: failOnDataLoss, true and false, when records were deleted")
def test_stream_notices_lost_records(
    spark: SparkSession, bootstrap: str, filled: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    target = make_topic()
    run_stream(spark, bootstrap, filled, target, tmp_path)
    send_all(bootstrap, filled, samples(50, seed=2), 1)
    delete_records(bootstrap, filled, 1, 120)
    with pytest.raises(StreamingQueryException):
        run_stream(spark, bootstrap, filled, target, tmp_path)
    run_stream(spark, bootstrap, filled, target, tmp_path, failOnDataLoss="false")
    assert 200 + 30 == read(spark, bootstrap, target).count()


@pytest.mark.feature("batch read of a compacted topic, failOnDataLoss: what is left of each key")
def test_batch_reads_a_compacted_topic(
    spark: SparkSession, compacting_bootstrap: str, topic: str
) -> None:
    bootstrap = compacting_bootstrap
    create_compacted(bootstrap, topic, 2)
    left: list[tuple[int, int, bytes | None, bytes | None]] = []
    for partition in range(2):
        send_all(bootstrap, topic, keyed_samples(partition, seed=1), partition)
        left += [
            (partition, one.offset, one.key, one.value)
            for one in compact(bootstrap, topic, partition=partition)
        ]
    for minimum in ("1", "7"):
        options = {"failOnDataLoss": "true", "minPartitions": minimum}
        collected = rows(read(spark, bootstrap, topic, **options))
        found = [(row.partition, row.offset, as_sample(row)) for row in collected]
        assert left == [
            (partition, offset, one.key, one.value)
            for partition, offset, one in found
            if one.key != TICK
        ]


def keyed_samples(partition: int, *, seed: int) -> list[Sample]:
    """Records with keys that no other partition has."""
    return [
        replace(one, key=b"%d-%s" % (partition, one.key))
        for one in samples(100, seed=seed)
        if one.key is not None
    ]


@pytest.mark.feature("streaming of a compacted topic, failOnDataLoss: restarted in compactions")
def test_stream_is_restarted_in_compactions(
    spark: SparkSession, compacting_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    bootstrap, target = compacting_bootstrap, f"{topic}-target"
    create_compacted(bootstrap, topic, 2)
    create_topic(bootstrap, target, 2, {})

    def write(seed: int) -> None:
        for partition in range(2):
            send_all(bootstrap, topic, keyed_samples(partition, seed=seed), partition)
            compact(bootstrap, topic, partition=partition)

    with ThreadPoolExecutor(1) as pool:
        write(0)
        for seed in (1, 2, 3):
            writing = pool.submit(write, seed)
            run_stream(spark, bootstrap, topic, target, tmp_path, failOnDataLoss="true")
            writing.result()
    run_stream(spark, bootstrap, topic, target, tmp_path, failOnDataLoss="true")
    assert latest_values(bootstrap, topic) == latest_values(bootstrap, target)


def latest_values(bootstrap: str, topic: str) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    return {
        one.key: one.value
        for partition in range(2)
        for one in read_partition(bootstrap, topic, partition=partition)
    }


STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def configured(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Set one of the session's settings for the length of a block."""
    before = str(spark.conf.get(key))
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before)


def reading(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """A stream over a topic from its beginning on."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )


@pytest.mark.feature("streaming: state in RocksDB, resumed by its checkpoint")
def test_stream_keeps_its_state_in_rocksdb(
    spark: SparkSession, bootstrap: str, filled: str, tmp_path: Path
) -> None:
    counted: dict[int, int] = {}

    def keep(batch: DataFrame, _: int) -> None:
        counted.update({row["partition"]: row["count"] for row in batch.collect()})

    def run() -> None:
        counts = reading(spark, bootstrap, filled, maxOffsetsPerTrigger="60")
        writer = counts.groupBy("partition").count().writeStream.outputMode("update")
        writer = writer.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(PROGRAM_S)

    with configured(spark, STATE_STORE, ROCKSDB_STATE):
        run()
        assert {0: 100, 1: 100} == counted
        send_all(bootstrap, filled, samples(50, seed=2), 1)
        run()
    assert {0: 100, 1: 150} == counted
    assert any(tmp_path.rglob("*.zip")), "RocksDB wrote its snapshots"


@pytest.mark.feature("streaming: two topics joined, with watermarks")
def test_streams_are_joined(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    names = [make_topic(partitions=2) for _ in range(2)]
    for name in names:
        for partition in range(2):
            send_all(bootstrap, name, samples(60, seed=partition), partition)
    joined: list[tuple[int, int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        joined.extend((row["partition"], row["offset"]) for row in batch.collect())

    left, right = (
        reading(spark, bootstrap, name, maxOffsetsPerTrigger="50")
        .select("partition", "offset", "timestamp")
        .withWatermark("timestamp", "1 hour")
        .alias(side)
        for name, side in zip(names, ("a", "b"), strict=True)
    )
    same = "a.partition = b.partition AND a.offset = b.offset AND a.timestamp = b.timestamp"
    both = left.join(right, f.expr(same)).select("a.partition", "a.offset")
    writer = both.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(PROGRAM_S)
    assert [(partition, n) for partition in range(2) for n in range(60)] == sorted(joined)


@pytest.mark.feature("streaming: trigger once, and foreachBatch that writes to two topics")
def test_batches_of_a_stream_are_written_twice(
    spark: SparkSession, bootstrap: str, filled: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    targets = [make_topic() for _ in range(2)]

    def write(batch: DataFrame, _: int) -> None:
        batch.persist()
        for target in targets:
            writer = batch.select("key", "value").write.format("kafka")
            writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target).save()
        batch.unpersist()

    writer = reading(spark, bootstrap, filled).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(once=True)
    assert writer.start().awaitTermination(PROGRAM_S)
    expected = Counter(values_of(0) + values_of(1))
    for target in targets:
        assert expected == Counter(
            as_sample(row).value for row in rows(read(spark, bootstrap, target))
        )


@pytest.mark.feature("batch read: pandas API on Spark")
def test_pandas_api_reads_a_topic(spark: SparkSession, bootstrap: str, filled: str) -> None:
    with configured(spark, "spark.sql.ansi.enabled", "false"):  # as the API demands
        frame = read(spark, bootstrap, filled).select("partition", "offset").pandas_api()
        means = frame.groupby("partition")["offset"].mean().to_pandas().to_dict()
    assert {0: 49.5, 1: 49.5} == means


@pytest.mark.feature("Spark Connect: batch read and write, formats kafka and kledger")
def test_connect_client_reads_and_writes(
    spark: SparkSession, bootstrap: str, filled: str, make_topic: MakeTopic
) -> None:
    target = make_topic()
    done = subprocess.run(
        [sys.executable, "-m", "compat_tests.spark_connect_app", bootstrap, filled, target],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
        cwd=peers.ROOT,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"counts": {"kafka": [100, 100], "kledger": [100, 100]}, "is_remote": True} == found
    twice = Counter(values_of(0) + values_of(0))
    assert twice == Counter(as_sample(row).value for row in rows(read(spark, bootstrap, target)))


KLEDGER_QUERIES: dict[str, dict[str, str]] = {
    "whole": {},
    "headers": {"includeHeaders": "true"},
    "many tasks": {"minPartitions": "7"},
    "committed": {"kafka.isolation.level": "read_committed"},
    "uncommitted": {"kafka.isolation.level": "read_uncommitted"},
    "from offsets": {"startingOffsets": '{"TOPIC": {"0": 13, "1": -2}}'},
    "between offsets": {
        "startingOffsets": '{"TOPIC": {"0": 13, "1": -2}}',
        "endingOffsets": '{"TOPIC": {"0": 77, "1": 50}}',
        "minPartitions": "5",
    },
    "from a time": {"startingTimestamp": str(FIRST_TIMESTAMP_MS + 90 * STEP_MS)},
    "until a time": {"endingTimestamp": str(FIRST_TIMESTAMP_MS + 90 * STEP_MS)},
    "by times": {
        "startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {FIRST_TIMESTAMP_MS}, "1":'
        f" {FIRST_TIMESTAMP_MS + 50 * STEP_MS}}}}}"
    },
}


@pytest.mark.feature("the same 20 queries by format kafka and by format kledger")
def test_formats_give_the_same_rows(spark: SparkSession, bootstrap: str, filled: str) -> None:
    """Ten sets of options, each as it is and aggregated."""
    kledger.spark.register(spark)
    for name, options in KLEDGER_QUERIES.items():
        chosen = {key: value.replace("TOPIC", filled) for key, value in options.items()}
        frames = []
        for source in ("kafka", "kledger"):
            reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
            frames.append(reader.option("subscribe", filled).options(**chosen).load())
        expected, found = frames
        frames = [expected, found.select(*expected.columns)]
        assert expected.schema == frames[1].schema, name
        for query in (whole, aggregated):
            both = [Counter(map(str, query(frame).collect())) for frame in frames]
            assert both[0] == both[1], name
            assert both[0], name


def whole(records: DataFrame) -> DataFrame:
    """Every row."""
    return records


def aggregated(records: DataFrame) -> DataFrame:
    """The last offset by partition and length of the value."""
    return records.groupBy("partition", f.length("value")).agg(f.max("offset"))


@pytest.mark.feature("format kledger, continuous trigger: refused by Spark, as all Python sources")
def test_continuous_trigger_is_refused_for_python_sources(
    spark: SparkSession, bootstrap: str, filled: str, tmp_path: Path
) -> None:
    kledger.spark.register(spark)
    reader = spark.readStream.format("kledger").option("servers", bootstrap)
    stream = reader.option("subscribe", filled).load().writeStream.format("console")
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(continuous="1 second")
    with pytest.raises(UnsupportedOperationException, match="continuous processing"):
        stream.start()
