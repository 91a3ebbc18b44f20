"""format("kledger") in mode direct, whose server was killed, as a batch and as a stream."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import kledger.spark
import kledger.sync
from compat_tests.servers import KledgerServer
from pipelines import archive, snapshot
from tests.pipelines.records import START_MS, WAIT_S, create_topic, json_record, send

pytestmark = pytest.mark.slow

TOPIC, COUNT = "archived", 2000
# Single batches of fifty records, so that a ledger has a few of them.
SMALL_BATCHES = {"batch.num.messages": 50, "linger.ms": 1000}


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KledgerServer]:
    """A server with a tier, which tests stop and start."""
    folder = tmp_path_factory.mktemp("tiered")
    settings = {"offload.url": f"file://{folder}/tier"}
    with KledgerServer(folder, durability="os", settings=settings, is_native=True) as server:
        create_topic(server.bootstrap, TOPIC, partitions=2, internal_segment_bytes="16384")
        fill(server, range(COUNT))
        yield server


def fill(server: KledgerServer, numbers: range) -> None:
    """Send records and offload what is closed."""
    records = [json_record(n, partitions=2) for n in numbers]
    send(server.bootstrap, TOPIC, records, **SMALL_BATCHES)
    with kledger.sync.connect(f"kledger://{server.native_address}") as client:
        client.offload(TOPIC)


def options(server: KledgerServer, topic: str = TOPIC) -> dict[str, str]:
    return {
        "mode": "direct", "path": server.settings["offload.url"], "subscribe": topic,
        "includeHeaders": "true",
    }  # fmt: skip


def of_broker(spark: SparkSession, server: KledgerServer) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
    return reader.option("subscribe", TOPIC).option("includeHeaders", "true").load()


def test_tier_is_read_without_a_server(
    spark: SparkSession, tiered: KledgerServer, tmp_path: Path
) -> None:
    """Then a stream reads what is offloaded later, and only that."""
    kledger.spark.register(spark)
    of_broker(spark, tiered).write.parquet(str(tmp_path / "served"))
    tiered.kill()
    served = spark.read.parquet(str(tmp_path / "served"))
    direct = spark.read.format("kledger").options(**options(tiered)).load()
    found = direct.select(*served.columns)
    assert found.exceptAll(served).count() == 0
    count = found.count()
    assert COUNT // 2 < count < COUNT, "all but the open ledgers"
    assert count == found.select("partition", "offset").distinct().count()
    assert direct.where("ledger_id IS NULL OR entry_id IS NULL").count() == 0
    assert direct.select("ledger_id").distinct().count() == direct.rdd.getNumPartitions()
    later = options(tiered) | {"startingTimestamp": str(START_MS + 500_000)}
    rows = spark.read.format("kledger").options(**later).load().collect()
    assert min(row["timestamp"].timestamp() for row in rows) * 1000 == START_MS + 500_000

    def streamed() -> int:
        reader = spark.readStream.format("kledger").options(**options(tiered))
        writer = reader.option("startingOffsets", "earliest").load().writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert query.trigger(availableNow=True).start().awaitTermination(600)
        return spark.read.parquet(str(tmp_path / "out")).count()

    assert count == streamed()
    assert count == streamed()
    tiered.start()
    fill(tiered, range(COUNT, 2 * COUNT))
    tiered.kill()
    more = streamed()
    assert count < more
    assert more == spark.read.format("kledger").options(**options(tiered)).load().count()
    offsets = spark.read.parquet(str(tmp_path / "out")).select("partition", "offset")
    assert more == offsets.distinct().count()
    tiered.start()


def test_pipelines_read_a_tier_to_its_end(
    spark: SparkSession,
    tiered: KledgerServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The broker's end, which is behind the open ledgers, is not theirs; nor is it asked for.

    Each micro-batch says how far it is behind the end of the tier.
    """
    kledger.spark.register(spark)
    count = spark.read.format("kledger").options(**options(tiered)).load().count()
    chosen: dict[str, Any] = {
        "servers": tiered.bootstrap, "topic": TOPIC, "source": "kledger",
        "option": {"mode": "direct", "path": tiered.settings["offload.url"]},
    }  # fmt: skip
    tiered.kill()
    stop = threading.Event()
    guard = threading.Timer(WAIT_S, stop.set)
    guard.start()
    try:
        of_stream = {
            "available_now": True, "checkpoint": str(tmp_path / "checkpoint"),
            "max_offsets_per_trigger": 1000,
        }  # fmt: skip
        archived = archive.run(
            spark, chosen | of_stream | {"to": str(tmp_path / "archive")}, stop=stop
        )
        assert not stop.is_set(), "the run ended by itself"
    finally:
        guard.cancel()
    assert count == archived.rows_in == archived.rows_out
    lags = [int(lag) for lag in re.findall(r", (\d+) offsets behind\n", capsys.readouterr().err)]
    assert lags == sorted(lags, reverse=True)
    assert len(lags) > 1
    assert lags[0] > lags[-1] == 0
    table = snapshot.run(spark, chosen | {"to": str(tmp_path / "table")})
    assert (count, archived.offsets) == (table.rows_in, table.offsets)
    tiered.start()


def test_what_is_not_there_is_named(spark: SparkSession, tiered: KledgerServer) -> None:
    kledger.spark.register(spark)
    reader = spark.read.format("kledger")
    with pytest.raises(AnalysisException, match=r"not in the tier at file://.*: nope"):
        reader.options(**options(tiered, "nope")).load().count()
    wrong = options(tiered) | {"path": "s3://bucket/x", "storage.regoin": "x"}
    with pytest.raises(AnalysisException, match="regoin unknown for s3://"):
        reader.options(**wrong).load().count()
