"""windows and deduplicate against a server, compared with what plain Python computes."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from compat_tests.servers import KledgerServer
from pipelines import archive, deduplicate, windows
from pipelines.errors import WrongCall
from tests.pipelines.commands import PipelineCommand
from tests.pipelines.records import (
    START_MS,
    WAIT_S,
    SentRecord,
    create_topic,
    json_record,
    parquet_rows,
    send,
    topic_records,
)

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000
AMOUNT = "get_json_object(value, '$.amount')"
USER = "get_json_object(value, '$.user')"


def stream_options(server: KledgerServer, folder: Path, topic: str, **more: Any) -> dict[str, Any]:
    return {
        "servers": server.bootstrap,
        "topic": topic,
        "checkpoint": str(folder / "checkpoint"),
        "available_now": True,
        **more,
    }


def expected_windows(numbers: range, closed_before_ms: int) -> dict[tuple[int, str], list[int]]:
    """Amounts by start of the window and user, of windows that are closed."""
    found = defaultdict(list)
    for number in numbers:
        time_ms = START_MS + number * 1000
        start = time_ms // (5 * MINUTE_MS) * 5 * MINUTE_MS
        if start + 5 * MINUTE_MS <= closed_before_ms:
            found[start, f"u{number % 50}"].append(number)
    return dict(found)


def nearest_rank(values: list[int], percent: int) -> int:
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


@pytest.mark.parametrize("source", ["kafka", "kledger"])
def test_windows_are_what_python_computes(
    spark: SparkSession,
    server: KledgerServer,
    tmp_path: Path,
    source: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In two runs, with records that are no JSON or have no number among the others."""
    topic, count = f"windows-{source}", 3000
    create_topic(server.bootstrap, topic, partitions=2)
    options = stream_options(
        server, tmp_path, topic, source=source, to=str(tmp_path / "out"), window="5 minutes",
        late="10 minutes", by=USER, value=AMOUNT, bad_records=str(tmp_path / "bad"),
        metrics=str(tmp_path / "metrics.prom"),
    )  # fmt: skip
    halves = (range(count // 2), range(count // 2, count))
    bad = [
        SentRecord(b"k", b"no json", START_MS, 0),
        SentRecord(b"k", b'{"user": "u", "amount": "many"}', START_MS, 1),
    ]
    summaries = []
    for numbers in halves:
        send(server.bootstrap, topic, [json_record(n, partitions=2) for n in numbers])
        send(server.bootstrap, topic, bad)
        summaries.append(windows.run(spark, options))

    rows = parquet_rows(tmp_path / "out")
    newest_ms = START_MS + (count - 1) * 1000
    expected = {
        (start, user, len(amounts), sum(amounts), min(amounts), max(amounts),
         *(nearest_rank(amounts, percent) for percent in (50, 90, 99)))
        for (start, user), amounts in expected_windows(
            range(count), newest_ms - 10 * MINUTE_MS
        ).items()
    }  # fmt: skip
    found = {
        (round(row["window_start"].timestamp() * 1000), row["key"], row["count"], row["sum"],
         row["min"], row["max"], row["p50"], row["p90"], row["p99"])
        for row in rows
    }  # fmt: skip
    assert expected == found
    assert len(found) == len(rows)
    assert sum(each.rows_in for each in summaries) == count + 4
    assert sum(each.rows_out for each in summaries) == len(rows)
    assert [2, 2] == [each.bad_records for each in summaries]
    kept = parquet_rows(tmp_path / "bad")
    assert {("not JSON: no json", b"no json"), (
        'expected a number, got {"user": "u", "amount": "many"}', bad[1].value
    )} == {(row["reason"], row["value"]) for row in kept}  # fmt: skip
    assert 4 == len({(row["partition"], row["offset"]) for row in kept})
    assert {topic: {"0": count // 2 + 2, "1": count // 2 + 2}} == summaries[-1].offsets
    assert ", 0 offsets behind\n" in capsys.readouterr().err
    assert "kledger_pipeline_bad_records_total" in (tmp_path / "metrics.prom").read_text()


def test_windows_go_into_a_topic_as_json(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    """A record that comes late, in a window that is closed, changes none, and gives no other."""
    create_topic(server.bootstrap, "counted", partitions=1)
    create_topic(server.bootstrap, "counts", partitions=2)
    times = (0, 1, 61_000, 600_000)
    records = [SentRecord(b"a", b"5", START_MS + each) for each in times]
    send(server.bootstrap, "counted", records)
    options = stream_options(
        server, tmp_path, "counted", to="counts", window="1 minute", late="1 minute"
    )
    summary = windows.run(spark, options)
    found = [json.loads(each.value or b"") for each in topic_records(server.bootstrap, "counts")]
    # The two windows may be of two tasks, and these write side by side.
    assert [("a", 1, 5.0, 5.0), ("a", 2, 10.0, 5.0)] == sorted(
        (each["key"], each["count"], each["sum"], each["p99"]) for each in found
    )
    assert (4, 2, 0) == (summary.rows_in, summary.rows_out, summary.bad_records)
    send(server.bootstrap, "counted", [SentRecord(b"a", b"7", START_MS + 2)])
    summary = windows.run(spark, options)
    assert (1, 0, 0) == (summary.rows_in, summary.rows_out, summary.bad_records)
    assert len(found) == len(topic_records(server.bootstrap, "counts"))


def test_wrong_expressions_are_wrong_calls(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    create_topic(server.bootstrap, "unread", partitions=1)
    options = stream_options(server, tmp_path, "unread", to="x", window="1 minute", late="1 minute")
    for wrong in ("no_such_column", "sum(", "key +"):
        with pytest.raises(WrongCall, match="option 'by'"):
            windows.run(spark, options | {"by": wrong})


def test_run_ends_where_all_records_were_deleted(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    """There is never a micro-batch that could say how far the run is."""
    create_topic(server.bootstrap, "deleted")
    send(server.bootstrap, "deleted", [json_record(n, partitions=1) for n in range(10)])
    end = [TopicPartition("deleted", 0, 10)]
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_records(end)[end[0]].result(WAIT_S)
    options = stream_options(server, tmp_path, "deleted", to=str(tmp_path / "to"), source="kledger")
    stop = threading.Event()
    guard = threading.Timer(WAIT_S, stop.set)
    guard.start()
    try:
        assert 0 == archive.run(spark, options, stop=stop).rows_in
        assert not stop.is_set(), "the run ended by itself"
    finally:
        guard.cancel()


def expected_passing(records: list[SentRecord], horizon_ms: int) -> list[SentRecord]:
    """Records in the order of their offsets, without those that come too soon behind another."""
    passed: dict[bytes | None, list[int]] = defaultdict(list)
    passing = []
    for record in records:
        times_ms = passed[record.key]
        if all(abs(record.timestamp_ms - each) > horizon_ms for each in times_ms):
            times_ms.append(record.timestamp_ms)
            passing.append(record)
    return passing


def test_duplicates_are_dropped_across_restarts(
    spark: SparkSession, server: KledgerServer, tmp_path: Path
) -> None:
    """Three runs; ids come again within the horizon of one hour, and behind it."""
    for name in ("orders-twice", "orders-left"):
        create_topic(server.bootstrap, name, partitions=1)
    records = [
        SentRecord(b"id%d" % (n % 40), b"%d" % n, START_MS + n * 100_000, 0, (("n", b"%d" % n),))
        for n in range(150)
    ]
    # Forty records are 4,000 s: a bit more than the horizon. Each is sent again a little later.
    sent = [each for record in records for each in (
        record, record._replace(timestamp_ms=record.timestamp_ms + 50_000)
    )]  # fmt: skip
    options = stream_options(
        server, tmp_path, "orders-twice", to="orders-left", by="key", within="1 hour",
        max_offsets_per_trigger=70,
    )  # fmt: skip
    rows_out = 0
    for start in range(0, len(sent), 100):
        send(server.bootstrap, "orders-twice", sent[start : start + 100])
        rows_out += deduplicate.run(spark, options).rows_out
    found = topic_records(server.bootstrap, "orders-left")
    expected = expected_passing(sent, 3_600_000)
    assert len(expected) == len(found)
    assert {(record.value, record.timestamp_ms, record.headers) for record in expected} == {
        (each.value, each.timestamp_ms, each.headers) for each in found
    }
    assert rows_out == len(expected)
    assert len(records) == len(expected)


def test_duplicates_are_dropped_by_another_driver(server: KledgerServer, tmp_path: Path) -> None:
    """By our source; the second driver has nothing but the checkpoint. Keys are any bytes."""
    for name in ("taken-twice", "taken-once"):
        create_topic(server.bootstrap, name)
    sent = [
        SentRecord(b"\xff%d" % (n % 40), b"%d" % n, START_MS + n * 1000, 0, (("n", b"%d" % n),))
        for n in range(90)
    ]
    command = PipelineCommand(
        tmp_path, "deduplicate", "--source", "kledger", "--servers", server.bootstrap,
        "--topic", "taken-twice", "--to", "taken-once", "--checkpoint", f"{tmp_path}/checkpoint",
        "--by", "key", "--within", "1 hour", "--available-now", "--max-offsets-per-trigger", "20",
    )  # fmt: skip
    summaries = []
    for part in (sent[:30], sent[30:]):
        send(server.bootstrap, "taken-twice", part)
        summaries.append(command.finish())
    assert [(30, 30), (60, 10)] == [(each["rows_in"], each["rows_out"]) for each in summaries]
    assert {"taken-twice": {"0": 90}} == summaries[-1]["offsets"]
    found = topic_records(server.bootstrap, "taken-once")
    assert expected_passing(sent, 3_600_000) == sorted(found, key=lambda each: each.timestamp_ms)


def test_duplicates_are_found_among_many_expressions(
    spark: SparkSession,
    server: KledgerServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark 4.0 reads what has arrived of a value, so one that is longer fails now and then."""
    monkeypatch.setattr(deduplicate, "_BUCKETS", 1)
    for name in ("many-twice", "many-once"):
        create_topic(server.bootstrap, name)
    sent = [SentRecord(b"%d " % (n // 2) + b"k" * 2000, b"%d" % n) for n in range(20_000)]
    send(server.bootstrap, "many-twice", sent)
    options = stream_options(
        server, tmp_path, "many-twice", to="many-once", by="key", within="1 hour"
    )
    options |= {"max_offsets_per_trigger": 9_999}
    summary = deduplicate.run(spark, options)
    assert (len(sent), len(sent) // 2) == (summary.rows_in, summary.rows_out)
    found = {each.value for each in topic_records(server.bootstrap, "many-once")}
    assert {b"%d" % n for n in range(0, len(sent), 2)} == found
