"""format("kledger") beside Spark's own kafka source, and its sink, against a server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kledger.spark
from compat_tests.servers import KledgerServer
from tests.pipelines.records import (
    START_MS,
    WAIT_S,
    SentRecord,
    create_topic,
    json_record,
    send,
    topic_records,
)

pytestmark = pytest.mark.slow

TOPIC, EMPTY, COUNT = "queried", "queried-empty", 3000
Query = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def filled(server: KledgerServer) -> str:
    """A topic of three partitions: all compressions, headers, nulls, transactions of both ends."""
    create_topic(server.bootstrap, TOPIC, partitions=3)
    create_topic(server.bootstrap, EMPTY, partitions=1)
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for number, codec in enumerate(codecs):
        part = range(number * COUNT // 5, (number + 1) * COUNT // 5)
        records = [json_record(n, partitions=3) for n in part]
        send(server.bootstrap, TOPIC, records, **{"compression.type": codec})
    odd = [SentRecord(None, None, START_MS, 0), SentRecord(b"", b"", START_MS, 1)]
    send(server.bootstrap, TOPIC, odd)
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
    producer.init_transactions(WAIT_S)
    for text, end in (
        (b"kept", producer.commit_transaction),
        (b"dropped", producer.abort_transaction),
        (b"later", producer.commit_transaction),
    ):
        producer.begin_transaction()
        for number in range(30):
            producer.produce(TOPIC, text, b"%d" % number, number % 3, timestamp=START_MS)
        end(WAIT_S)
    return TOPIC


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The session, which knows the format."""
    kledger.spark.register(spark)
    return spark


def load(
    session: SparkSession, server: KledgerServer, source: str, options: dict[str, str]
) -> DataFrame:
    """Load with nothing changed but the format."""
    reader = session.read.format(source).option("kafka.bootstrap.servers", server.bootstrap)
    reader = reader.option("kafka.isolation.level", "read_committed").options(**options)
    if not {"assign", "subscribePattern"} & options.keys():
        reader = reader.option("subscribe", TOPIC)
    return reader.load()


PER_PARTITION = json.dumps({TOPIC: {"0": 100, "1": -2, "2": 250}})
UNTIL = json.dumps({TOPIC: {"0": 500, "1": -1, "2": 251}})
BY_TIME = json.dumps({TOPIC: {str(n): START_MS + 600_000 for n in range(3)}})
HEADERS = {"includeHeaders": "true"}
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
QUERIES: list[tuple[str, dict[str, str], Query]] = [
    ("every row", HEADERS, lambda t: t.select(*COLUMNS, "headers")),
    ("count", {}, lambda t: t.agg(f.count("*"))),
    ("rows of a partition", {}, lambda t: t.select(*COLUMNS).where("partition = 1")),
    ("range of offsets", {"startingOffsets": PER_PARTITION}, lambda t: t.select("offset")),
    ("until offsets", {"endingOffsets": UNTIL}, lambda t: t.select("partition", "offset")),
    (
        "between offsets, many tasks",
        {"startingOffsets": PER_PARTITION, "endingOffsets": UNTIL, "minPartitions": "7"},
        lambda t: t.select(*COLUMNS),
    ),
    ("many tasks", {"minPartitions": "11"} | HEADERS, lambda t: t.select(*COLUMNS, "headers")),
    (
        "from a time",
        {"startingTimestamp": str(START_MS + 900_000)},
        lambda t: t.select("partition", "offset"),
    ),
    (
        "until a time",
        {"endingTimestamp": str(START_MS + 900_000)},
        lambda t: t.select("partition", "offset"),
    ),
    ("by times", {"startingOffsetsByTimestamp": BY_TIME}, lambda t: t.select("value")),
    (
        "behind the last time",
        {
            "startingTimestamp": str(START_MS * 2),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        lambda t: t.select("value"),
    ),
    ("assigned", {"assign": json.dumps({TOPIC: [2]})}, lambda t: t.select(*COLUMNS)),
    ("by pattern", {"subscribePattern": "queried.*"}, lambda t: t.select(*COLUMNS)),
    (
        "uncommitted",
        {"kafka.isolation.level": "read_uncommitted"},
        lambda t: t.select(*COLUMNS),
    ),
    ("texts", {}, lambda t: t.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")),
    (
        "sum over JSON",
        {},
        lambda t: t.agg(f.sum(f.get_json_object(f.col("value").cast("string"), "$.amount"))),
    ),
    ("groups", {}, lambda t: t.groupBy("key").agg(f.count("*"), f.max("offset"))),
    ("headers, one row each", HEADERS, lambda t: t.select("offset", f.explode_outer("headers"))),
    (
        "windows",
        {},
        lambda t: t.groupBy(f.window("timestamp", "10 minutes"), "topic").count(),
    ),
    (
        "joined with itself",
        {},
        lambda t: t.alias("a").join(t.alias("b"), ["partition", "offset"]).selectExpr("a.value"),
    ),
    ("nulls", {}, lambda t: t.where("value IS NULL OR key IS NULL").select(*COLUMNS)),
    ("distinct", {}, lambda t: t.select("partition", "timestampType").distinct()),
]


@pytest.mark.parametrize(
    ("options", "query"), [each[1:] for each in QUERIES], ids=[each[0] for each in QUERIES]
)
def test_query_gives_what_sparks_kafka_source_gives(
    *,
    session: SparkSession,
    server: KledgerServer,
    filled: str,
    options: dict[str, str],
    query: Query,
) -> None:
    expected, found = (
        query(load(session, server, source, options)) for source in ("kafka", "kledger")
    )
    assert expected.schema == found.schema
    assert sorted(map(repr, expected.collect())) == sorted(map(repr, found.collect()))


def test_position_of_a_record_in_its_batch(
    session: SparkSession, server: KledgerServer, filled: str
) -> None:
    rows = load(session, server, "kledger", {}).where("partition = 0").collect()
    assert {0, 1, 2} <= {row["batch_index"] for row in rows}
    assert {(None, None)} == {(row["ledger_id"], row["entry_id"]) for row in rows}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset'; the known ones are"),
        ({"startingOffsets": "latest"}, "expected earliest or offsets in a batch"),
        ({"maxOffsetsPerTrigger": "5"}, "is for streams"),
        ({"startingOffsets": '{"queried": {"0": 5}}'}, "starting offsets name 1 partitions"),
        ({"assign": '{"queried": [9]}'}, "queried-9 does not exist"),
        ({"startingTimestamp": "9999999999999"}, "No offset matched"),
        ({"assign": '{"no-such-topic": [0]}'}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_wrong_options_are_refused_by_name(
    *,
    session: SparkSession,
    server: KledgerServer,
    filled: str,
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises((AnalysisException, PythonException), match=message):
        load(session, server, "kledger", options).count()


def test_lost_records_are_noticed(session: SparkSession, server: KledgerServer) -> None:
    create_topic(server.bootstrap, "cut")
    send(server.bootstrap, "cut", [json_record(n, partitions=1) for n in range(50)])
    cut = [TopicPartition("cut", 0, 20)]
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_records(cut)[cut[0]].result(WAIT_S)
    options = {"assign": '{"cut": [0]}', "startingOffsets": '{"cut": {"0": 10}}'}
    with pytest.raises(AnalysisException, match="cut-0 begins at offset 20, expected 10"):
        load(session, server, "kledger", options).count()
    kept = load(session, server, "kledger", options | {"failOnDataLoss": "false"})
    assert list(range(20, 50)) == sorted(row["offset"] for row in kept.collect())


def write(frame: DataFrame, server: KledgerServer, topic: str, **options: str) -> None:
    writer = frame.write.format("kledger").mode("append").option("servers", server.bootstrap)
    writer.option("topic", topic).options(**options).save()


def test_rows_become_records(session: SparkSession, server: KledgerServer) -> None:
    create_topic(server.bootstrap, "written", partitions=2)
    frame = session.sql(
        "SELECT 'k' AS key, CAST('v' AS BINARY) AS value, 1 AS partition,"
        f" timestamp_millis({START_MS}) AS timestamp,"
        " array(struct('h' AS key, CAST('x' AS BINARY) AS value)) AS headers"
    )
    write(frame, server, "written", includeHeaders="true", **{"kafka.compression.type": "zstd"})
    write(frame.select("key", "value", "partition", "timestamp"), server, "written")
    expected = SentRecord(b"k", b"v", START_MS, 1, (("h", b"x"),))
    assert [expected, expected._replace(headers=())] == topic_records(server.bootstrap, "written")


def test_keys_go_where_kafka_clients_send_them(
    session: SparkSession, server: KledgerServer
) -> None:
    keys = [b"key-%d" % n for n in range(60)]
    for name in ("by-spark", "by-client"):
        create_topic(server.bootstrap, name, partitions=4)
    send(
        server.bootstrap, "by-client", [SentRecord(key, b"") for key in keys],
        partitioner="murmur2_random",
    )  # fmt: skip
    write(session.createDataFrame([(k, b"") for k in keys], "key binary, value binary"),
          server, "by-spark")  # fmt: skip
    placed = [
        {(each.key, each.partition) for each in topic_records(server.bootstrap, name)}
        for name in ("by-spark", "by-client")
    ]
    assert placed[0] == placed[1]


def test_rows_of_a_failed_write_are_never_visible(
    session: SparkSession, server: KledgerServer
) -> None:
    """Tasks that are done, one that fails, and ones that write before it fails."""
    create_topic(server.bootstrap, "failed")
    failing = f.udf(lambda n: str(n) if n != 2_500 else str(1 // 0))
    padded = f.concat(failing("id"), f.repeat(f.lit("x"), 1_000)).alias("value")
    with pytest.raises(PythonException):
        write(session.range(0, 3_000, 1, 3).select(padded), server, "failed")
    write(session.sql("SELECT 'whole' AS value"), server, "failed")
    assert [b"whole"] == [each.value for each in topic_records(server.bootstrap, "failed")]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {}, "column 'value' is missing"),
        ("id AS value", {}, "column 'value': expected string or binary, got bigint"),
        ("'v' AS value", {"topics": "x"}, "unknown option 'topics'; the known ones are"),
        ("'v' AS value", {"kafka.compression.type": "rar"}, "expected one of none, gzip"),
        ("'v' AS value, 7 AS partition", {}, "partition 7 of written, expected 0 to 1"),
    ],
)
def test_wrong_writes_are_refused(
    *,
    session: SparkSession,
    server: KledgerServer,
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises((AnalysisException, PythonException), match=message):
        write(session.range(1).selectExpr(columns.split(", ")), server, "written", **options)


def copy_stream(
    session: SparkSession, server: KledgerServer, checkpoint: Path, limit: int
) -> dict[str, Any]:
    """Copy what is there, at most `limit` records; return the last progress."""
    query = (
        session.readStream.format("kledger")
        .option("servers", server.bootstrap)
        .option("subscribe", "streamed")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(limit))
        .load()
        .select("key", "value", "timestamp")
        .writeStream.format("kledger")
        .option("servers", server.bootstrap)
        .option("topic", "copied")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    progress: dict[str, Any] = query.lastProgress or {}
    return progress


def test_stream_is_exactly_once_when_a_driver_dies_before_its_checkpoint(
    session: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    """Spark notes a batch as done behind the commit; here that note is lost, each time."""
    for name in ("streamed", "copied"):
        create_topic(server.bootstrap, name, partitions=2)
    sent = [json_record(n, partitions=2) for n in range(100)]
    send(server.bootstrap, "streamed", sent)
    for batch, reached in enumerate((20, 40, 50)):
        progress = copy_stream(session, server, tmp_path, limit=40)
        ends = {"streamed": {"0": reached, "1": reached}}
        assert ends == json.loads(progress["sources"][0]["endOffset"])
        (tmp_path / "commits" / str(batch)).unlink()
        (tmp_path / "commits" / f".{batch}.crc").unlink()
        again = copy_stream(session, server, tmp_path, limit=40)
        assert ends == json.loads(again["sources"][0]["endOffset"])
    copied = [each.value for each in topic_records(server.bootstrap, "copied")]
    assert sorted(each.value or b"" for each in sent) == sorted(each or b"" for each in copied)
    shutil.rmtree(tmp_path)
