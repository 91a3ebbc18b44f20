"""archive, replay and snapshot against a server, compared with what was sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compat_tests.servers import KledgerServer
from pipelines import archive, replay, snapshot
from pipelines.batch_files import BatchFiles
from pipelines.errors import PipelineFailed, WrongCall
from pipelines.hadoop_files import HadoopFiles
from tests.pipelines.records import (
    START_MS,
    SentRecord,
    create_topic,
    json_record,
    parquet_rows,
    send,
    topic_records,
)

pytestmark = pytest.mark.slow

PARTITIONS = 3


@pytest.mark.parametrize("source", ["kafka", "kledger"])
def test_archive_and_replay_are_the_identity(
    spark: SparkSession, server: KledgerServer, tmp_path: Path, source: str
) -> None:
    """A topic, its archive in two runs, and the copy of it: keys, values, times, headers, order."""
    topic, copy, count = f"original-{source}", f"copy-{source}", 4000
    for name in (topic, copy):
        create_topic(server.bootstrap, name, partitions=PARTITIONS)
    common = {"servers": server.bootstrap, "source": source}
    options = common | {
        "topic": topic, "to": str(tmp_path / "archive"),
        "checkpoint": str(tmp_path / "checkpoint"), "available_now": True,
        "max_offsets_per_trigger": 1500,
    }  # fmt: skip
    sent = [json_record(n, partitions=PARTITIONS, step_ms=60_000) for n in range(count)]
    sent += [SentRecord(None, None, START_MS, 0), SentRecord(b"", b"", START_MS, 1)]
    rows = 0
    for part in (sent[:2500], sent[2500:]):
        send(server.bootstrap, topic, part, **{"compression.type": "zstd"})
        rows += archive.run(spark, options).rows_out
    assert len(sent) == rows == len(parquet_rows(tmp_path / "archive"))
    nothing_new = archive.run(spark, options)
    assert (0, len(sent)) == (nothing_new.rows_in, len(parquet_rows(tmp_path / "archive")))

    summary = replay.run(
        spark,
        common | {
            "topic": copy, "from": str(tmp_path / "archive"), "keep_timestamps": True,
            "keep_partitions": True,
        },
    )  # fmt: skip
    assert (len(sent), len(sent)) == (summary.rows_in, summary.rows_out)
    assert topic_records(server.bootstrap, topic) == topic_records(server.bootstrap, copy)


def test_archive_refuses_what_another_checkpoint_wrote(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    create_topic(server.bootstrap, "claimed")
    send(server.bootstrap, "claimed", [json_record(1, partitions=1)])
    options = {
        "servers": server.bootstrap, "topic": "claimed", "to": str(tmp_path / "archive"),
        "available_now": True,
    }  # fmt: skip
    archive.run(spark, options | {"checkpoint": str(tmp_path / "one")})
    with pytest.raises(WrongCall, match="what another checkpoint wrote of claimed"):
        archive.run(spark, options | {"checkpoint": str(tmp_path / "two")})


class CutFiles(HadoopFiles):
    """Files whose driver is cut off at a call that changes what readers see."""

    def __init__(self, spark: SparkSession, path: str, calls: int) -> None:
        super().__init__(spark, path)
        self.calls = calls

    def move(self, source: str, target: str) -> None:
        self._count()
        super().move(source, target)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise InterruptedError("cut")


def test_batch_that_is_cut_anywhere_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    """At every call in turn; the next run finds its own files and replaces them."""
    checkpoint, folder = tmp_path / "checkpoint", tmp_path / "files"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "12345678-query"}))
    frame = spark.range(0, 40, 1, 2).selectExpr("id", "id % 3 AS part").persist()
    for calls in range(40):
        files = BatchFiles(spark, str(folder), checkpoint=str(checkpoint), partition_by=("part",))
        files._files = cutting = CutFiles(spark, str(folder), calls)
        try:
            files.write(frame, 7, what="t")
        except InterruptedError:
            ids = [row["id"] for row in parquet_rows(folder)]
            assert len(set(ids)) == len(ids), f"cut at call {calls}"
        else:
            assert cutting.calls >= 0
            break
    assert calls > 10, "the files were moved one by one"
    assert list(range(40)) == sorted(row["id"] for row in parquet_rows(folder))


def test_file_is_written_whole_or_not_at_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed before the last step leaves no empty file that says who writes here."""
    files, path = HadoopFiles(spark, str(tmp_path)), str(tmp_path / "writer-orders")
    with monkeypatch.context() as patched:
        patched.setattr(HadoopFiles, "move", cut)
        with pytest.raises(InterruptedError):
            files.write_text(path, "query")
    assert not files.exists(path)
    files.write_text(path, "query")
    assert "query" == files.read_text(path)
    with pytest.raises(OSError, match="is there a file already"):
        files.write_text(path, "another")
    assert "query" == files.read_text(path)


def cut(files: HadoopFiles, source: str, target: str) -> None:
    raise InterruptedError


def test_snapshot_replaces_its_own_files_only(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    create_topic(server.bootstrap, "tabled")
    send(server.bootstrap, "tabled", [json_record(n, partitions=1) for n in range(100)])
    options = {"servers": server.bootstrap, "topic": "tabled", "to": str(tmp_path / "table")}
    left = tmp_path / "table" / "_table" / "of-a-run-that-was-killed"
    left.mkdir(parents=True)
    for _ in range(2):
        assert 50 == snapshot.run(spark, options).rows_out
        assert 50 == len(parquet_rows(tmp_path / "table"))
    assert not left.exists()
    foreign = tmp_path / "table" / "part-0.parquet"
    foreign.write_bytes(b"of someone else")
    with pytest.raises(WrongCall, match=r"'part-0\.parquet', expected nothing but the files of a"):
        snapshot.run(spark, options)
    assert foreign.exists()


def test_replay_without_partitions_goes_by_key(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    create_topic(server.bootstrap, "wide", partitions=5)
    rows = [(b"k%d" % (n % 7), b"%d" % n) for n in range(100)]
    spark.createDataFrame(rows, "key binary, value binary").coalesce(1).write.parquet(
        str(tmp_path / "rows")
    )
    options = {"servers": server.bootstrap, "topic": "wide", "from": str(tmp_path / "rows")}
    assert 100 == replay.run(spark, options).rows_out
    found = topic_records(server.bootstrap, "wide")
    assert 7 == len({(each.key, each.partition) for each in found})
    for key in {key for key, _ in rows}:
        expected = [value for each, value in rows if each == key]
        assert expected == [each.value for each in found if each.key == key]


def test_replay_refuses_what_it_cannot_write(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    create_topic(server.bootstrap, "narrow", partitions=1)
    spark.createDataFrame([(b"v", 3)], "value binary, partition int").write.parquet(
        str(tmp_path / "rows")
    )
    options: dict[str, Any] = {
        "servers": server.bootstrap, "topic": "narrow", "from": str(tmp_path / "rows")
    }  # fmt: skip
    for wrong, message in (
        ({"keep_partitions": True}, "records are of 4 partitions, narrow has 1"),
        ({"keep_timestamps": True}, "has no column 'timestamp'"),
        ({"from": str(tmp_path / "none")}, "option 'from'"),
    ):
        with pytest.raises(WrongCall, match=message):
            replay.run(spark, options | wrong)
    with pytest.raises(PipelineFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
        replay.run(spark, options | {"topic": "no-such-topic"})


def test_snapshot_is_the_last_value_of_each_key(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    """Now, at offsets, and at a time; with removed keys, and records without a key."""
    create_topic(server.bootstrap, "states", partitions=2)
    records = [
        SentRecord(b"k%d" % (n % 9), None if n % 10 == 3 else b"%d" % n, START_MS + n, n % 9 % 2)
        for n in range(200)
    ]
    records.append(SentRecord(None, b"no key", START_MS + 500, 0))
    send(server.bootstrap, "states", records)
    options: dict[str, Any] = {
        "servers": server.bootstrap, "topic": "states", "to": str(tmp_path / "table"),
        "bad_records": str(tmp_path / "bad"),
    }  # fmt: skip

    def taken(**more: Any) -> dict[bytes, bytes]:
        summary = snapshot.run(spark, options | more)
        rows = parquet_rows(tmp_path / "table")
        assert summary.rows_out == len(rows)
        return {row["key"]: row["value"] for row in rows}

    def folded(chosen: list[SentRecord]) -> dict[bytes, bytes]:
        table = {record.key: record.value for record in chosen if record.key is not None}
        return {key: value for key, value in table.items() if value is not None}

    assert folded(records) == taken()
    assert [("no key", b"no key")] == [
        (row["reason"], row["value"]) for row in parquet_rows(tmp_path / "bad")
    ]
    assert folded(records[:101]) == taken(at_time=START_MS + 100)
    first = [record for record in records if record.partition == 0][:30]
    second = [record for record in records if record.partition == 1]
    assert folded(first + second) == taken(at=json.dumps({"states": {"0": 30, "1": -1}}))
    with pytest.raises(WrongCall, match="ending offsets name 1 partitions"):
        taken(at=json.dumps({"states": {"0": 30}}))
    with pytest.raises(WrongCall, match="exclude each other"):
        taken(at="{}", at_time=5)
