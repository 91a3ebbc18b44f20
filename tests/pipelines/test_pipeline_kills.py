"""windows, deduplicate and replay, while driver and server are killed again and again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers import KledgerServer
from tests.pipelines.commands import PipelineCommand, wait_for_more
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

TOPIC, PARTITIONS, COUNT, KILLS = "orders", 3, 12_000, 10
# Each kill meets a micro-batch, and each growth of a log is a part of a replay.
TINY_BATCHES = ("--every", "0.001", "--max-offsets-per-trigger", "150")
TEXT = b"x" * 1000
MARKERS = PARTITIONS
"""What the next run adds to a log: it aborts what a killed one left open."""


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[KledgerServer]:
    """A server that can be killed."""
    with KledgerServer(tmp_path / "server", durability="fsync") as server:
        yield server


def kill_drivers(pipeline: PipelineCommand, server: KledgerServer) -> None:
    """Kill driver after driver, in turn while a micro-batch is under way and right behind one."""
    for kill in range(KILLS):
        with pipeline.running(*TINY_BATCHES) as process:
            wait_for_more(pipeline.committed, process)
            wait_for_more(pipeline.planned if kill % 2 else pipeline.committed, process)
            assert process.poll() is None, "there was a driver to kill"


def kill_servers(pipeline: PipelineCommand, server: KledgerServer) -> None:
    """Kill the server at the same points, below one driver as long as that goes on."""
    kills = 0
    while kills < KILLS:
        with pipeline.running(*TINY_BATCHES) as process:
            while kills < KILLS:
                wait_for_more(pipeline.planned if kills % 2 else pipeline.committed, process)
                if process.poll() is not None:
                    break
                server.kill()
                server.start()
                kills += 1


Kill = Callable[[PipelineCommand, KledgerServer], None]
KILLED = pytest.mark.parametrize("kill", [kill_drivers, kill_servers])


@KILLED
def test_every_window_is_there_once(
    durable_server: KledgerServer, tmp_path: Path, kill: Kill
) -> None:
    servers = durable_server.bootstrap
    create_topic(servers, TOPIC, partitions=PARTITIONS)
    send(servers, TOPIC, [json_record(n, partitions=PARTITIONS) for n in range(COUNT)])
    pipeline = PipelineCommand(
        tmp_path, "windows", "--servers", servers, "--topic", TOPIC, "--to", f"{tmp_path}/out",
        "--checkpoint", f"{tmp_path}/checkpoint", "--window", "5 minutes", "--late", "10 minutes",
        "--by", USER, "--value", AMOUNT,
    )  # fmt: skip
    kill(pipeline, durable_server)
    pipeline.finish("--available-now")
    newest_ms = START_MS + (COUNT - 1) * 1000
    closed = expected_windows(range(COUNT), newest_ms - 10 * MINUTE_MS)
    found = [
        (round(row["window_start"].timestamp() * 1000), row["key"], row["count"], row["sum"])
        for row in parquet_rows(tmp_path / "out")
    ]
    assert sorted(
        (start, user, len(amounts), sum(amounts)) for (start, user), amounts in closed.items()
    ) == sorted(found)


@KILLED
def test_duplicates_pass_once(durable_server: KledgerServer, tmp_path: Path, kill: Kill) -> None:
    """Each record comes twice; the second one often in another micro-batch."""
    distinct, at_once = COUNT // 2, 100
    servers = durable_server.bootstrap
    for name in (TOPIC, "once"):
        create_topic(servers, name, partitions=1)
    starts = range(0, distinct, at_once)
    numbers = [n for start in starts for n in 2 * [*range(start, start + at_once)]]
    records = [SentRecord(b"id%d" % n, b"%d" % n, START_MS + n, 0) for n in numbers]
    send(servers, TOPIC, records)
    pipeline = PipelineCommand(
        tmp_path, "deduplicate", "--servers", servers, "--topic", TOPIC, "--to", "once",
        "--checkpoint", f"{tmp_path}/checkpoint", "--by", "key", "--within", "1 hour",
    )  # fmt: skip
    kill(pipeline, durable_server)
    pipeline.finish("--available-now")
    found = [int(record.value or b"") for record in topic_records(servers, "once")]
    assert list(range(distinct)) == sorted(found)


class Replay(PipelineCommand):
    """The command, from an archive of a topic into one copy of it after the other.

    The next copy is begun when a replay was whole, which a kill may come too late for.
    """

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers, self._copies = servers, 0
        archive = PipelineCommand(
            folder, "archive", "--servers", servers, "--topic", TOPIC, "--to", f"{folder}/archive",
            "--checkpoint", f"{folder}/checkpoint", "--available-now",
        )  # fmt: skip
        archive.finish()
        super().__init__(
            folder, "replay", "--servers", servers, "--from", f"{folder}/archive",
            "--keep-timestamps", "--keep-partitions",
        )  # fmt: skip
        self._into_next()

    @property
    def into(self) -> tuple[str, str]:
        """The flag of the copy."""
        return ("--topic", self._copy)

    def check_nothing_or_all(self) -> None:
        """Check what readers see of the copy, which is the next one if they see something."""
        found = topic_records(self._servers, self._copy)
        if found:
            assert topic_records(self._servers, TOPIC) == found
            self._into_next()

    def finish_whole(self) -> None:
        """Run to the end, and compare the copy."""
        summary = self.finish(*self.into)
        assert (COUNT, COUNT) == (summary["rows_in"], summary["rows_out"])
        assert topic_records(self._servers, TOPIC) == topic_records(self._servers, self._copy)

    def size(self) -> int:
        """Count the records in the log of the copy, committed or not."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "g"})
        parts = [TopicPartition(self._copy, partition) for partition in range(PARTITIONS)]
        try:
            return sum(consumer.get_watermark_offsets(part, WAIT_S)[1] for part in parts)
        finally:
            consumer.close()

    def wait_written(self, process: subprocess.Popen[bytes], *, records: int) -> None:
        """Wait until so many more records are in the log, or the driver ended."""
        wanted = self.size() + records
        wait_until(
            lambda: self.size() >= wanted or process.poll() is not None,
            f"{records} more records",
            within_s=PROGRAM_S,
        )

    def _into_next(self) -> None:
        self._copies += 1
        self._copy = f"copy-{self._copies}"
        create_topic(self._servers, self._copy, partitions=PARTITIONS)


@pytest.fixture
def replay(durable_server: KledgerServer, tmp_path: Path) -> Replay:
    """A replay of records that are some twenty requests."""
    create_topic(durable_server.bootstrap, TOPIC, partitions=PARTITIONS)
    records = (json_record(n, partitions=PARTITIONS) for n in range(COUNT))
    send(durable_server.bootstrap, TOPIC, (each._replace(key=TEXT) for each in records))
    return Replay(durable_server.bootstrap, tmp_path)


def test_replay_whose_driver_is_killed_leaves_nothing_visible(replay: Replay) -> None:
    """Nor anything for which readers wait: the next run aborts what the killed one left open."""
    for kill in range(KILLS):
        with replay.running(*replay.into) as process:
            replay.wait_written(process, records=MARKERS + 1 + kill * COUNT // (2 * KILLS))
        replay.check_nothing_or_all()
    replay.finish_whole()


def test_replay_whose_server_is_killed_is_whole_or_leaves_nothing_visible(
    durable_server: KledgerServer, replay: Replay
) -> None:
    kills = 0
    while kills < KILLS:
        with replay.running(*replay.into) as process:
            while kills < KILLS:
                replay.wait_written(process, records=MARKERS + 1)
                if process.poll() is not None:
                    break
                durable_server.kill()
                durable_server.start()
                kills += 1
            process.communicate(timeout=PROGRAM_S)
        replay.check_nothing_or_all()
    replay.finish_whole()
