"""windows, deduplicate and replay, while driver and server are killed again and again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers import KledgerServer
from tests.pipelines.commands import SMALL_BATCHES, PipelineCommand, wait_for_more
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
from tests.pipelines.test_stream_pipelines import AMOUNT, MINUTE_MS, USER, expected_windows

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS, COUNT, KILLS = "orders", 3, 12_000, 3


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[KledgerServer]:
    """A server that can be killed."""
    with KledgerServer(tmp_path / "server", durability="fsync") as server:
        yield server


def run_with_kills(pipeline: PipelineCommand, server: KledgerServer) -> None:
    """Kill the driver, then the server below a driver; then run to the end.

    In turn while a micro-batch is under way, and right behind one.
    """
    for kill in range(KILLS):
        with pipeline.running(*SMALL_BATCHES) as process:
            wait_for_more(pipeline.committed, process)
            wait_for_more(pipeline.planned if kill % 2 else pipeline.committed, process)
            assert process.poll() is None, "there was a driver to kill"
    kills = 0
    while kills < KILLS:
        with pipeline.running(*SMALL_BATCHES) as process:
            while kills < KILLS and process.poll() is None:
                wait_for_more(pipeline.planned if kills % 2 else pipeline.committed, process)
                server.kill()
                server.start()
                kills += 1
    pipeline.finish("--available-now")


def test_every_window_is_there_once(durable_server: KledgerServer, tmp_path: Path) -> None:
    servers = durable_server.bootstrap
    create_topic(servers, TOPIC, partitions=PARTITIONS)
    send(servers, TOPIC, [json_record(n, partitions=PARTITIONS) for n in range(COUNT)])
    pipeline = PipelineCommand(
        tmp_path, "windows", "--servers", servers, "--topic", TOPIC, "--to", f"{tmp_path}/out",
        "--checkpoint", f"{tmp_path}/checkpoint", "--window", "5 minutes", "--late", "10 minutes",
        "--by", USER, "--value", AMOUNT,
    )  # fmt: skip
    run_with_kills(pipeline, durable_server)
    newest_ms = START_MS + (COUNT - 1) * 1000
    closed = expected_windows(range(COUNT), newest_ms - 10 * MINUTE_MS)
    found = [
        (round(row["window_start"].timestamp() * 1000), row["key"], row["count"], row["sum"])
        for row in parquet_rows(tmp_path / "out")
    ]
    assert sorted(
        (start, user, len(amounts), sum(amounts)) for (start, user), amounts in closed.items()
    ) == sorted(found)


def test_duplicates_pass_once(durable_server: KledgerServer, tmp_path: Path) -> None:
    """Each record comes twice; the second one often in another micro-batch."""
    servers = durable_server.bootstrap
    for name in (TOPIC, "once"):
        create_topic(servers, name, partitions=1)
    numbers = [n for start in range(0, COUNT, 400) for n in 2 * [*range(start, start + 400)]]
    records = [SentRecord(b"id%d" % n, b"%d" % n, START_MS + n, 0) for n in numbers]
    send(servers, TOPIC, records)
    pipeline = PipelineCommand(
        tmp_path, "deduplicate", "--servers", servers, "--topic", TOPIC, "--to", "once",
        "--checkpoint", f"{tmp_path}/checkpoint", "--by", "key", "--within", "1 hour",
    )  # fmt: skip
    run_with_kills(pipeline, durable_server)
    found = [int(record.value or b"") for record in topic_records(servers, "once")]
    assert list(range(COUNT)) == sorted(found)


def test_replay_that_is_killed_leaves_nothing_visible(
    durable_server: KledgerServer, tmp_path: Path
) -> None:
    """Nor anything for which readers wait: the next run aborts what the killed one left open."""
    servers = durable_server.bootstrap
    for name in (TOPIC, "copy"):
        create_topic(servers, name, partitions=PARTITIONS)
    send(servers, TOPIC, [json_record(n, partitions=PARTITIONS) for n in range(COUNT)])
    archive = PipelineCommand(
        tmp_path, "archive", "--servers", servers, "--topic", TOPIC, "--to", f"{tmp_path}/archive",
        "--checkpoint", f"{tmp_path}/checkpoint", "--available-now",
    )  # fmt: skip
    archive.finish()
    replay = PipelineCommand(
        tmp_path, "replay", "--servers", servers, "--topic", "copy", "--from",
        f"{tmp_path}/archive", "--keep-timestamps", "--keep-partitions",
    )  # fmt: skip
    for _ in range(KILLS):
        with replay.running() as process:
            wait_written(servers, "copy", process)
        assert [] == topic_records(servers, "copy")
    with replay.running() as process:
        wait_written(servers, "copy", process)
        durable_server.kill()
        durable_server.start()
        process.communicate(timeout=PROGRAM_S)
        is_whole = process.returncode == 0
    if not is_whole:
        summary = replay.finish()
        assert (COUNT, COUNT) == (summary["rows_in"], summary["rows_out"])
    assert topic_records(servers, TOPIC) == topic_records(servers, "copy")


def wait_written(servers: str, topic: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until there are more records in a log, committed or not."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "isolation.level": "read_uncommitted"}
    )

    def size() -> int:
        parts = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(part, WAIT_S)[1] for part in parts)

    try:
        before = size()
        wait_until(
            lambda: size() > before or process.poll() is not None, "a write", within_s=PROGRAM_S
        )
        assert process.poll() is None, "there was a driver to kill"
    finally:
        consumer.close()
