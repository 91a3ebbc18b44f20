"""archive, while its driver and the server are killed again and again."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.servers import KledgerServer
from tests.pipelines.commands import SMALL_BATCHES, PipelineCommand, wait_for_more
from tests.pipelines.records import create_topic, json_record, parquet_rows, send

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS, COUNT, KILLS = "orders", 3, 30_000, 10


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[KledgerServer]:
    """A server that can be killed, with the topic in it."""
    with KledgerServer(tmp_path / "server", durability="fsync") as server:
        create_topic(server.bootstrap, TOPIC, partitions=PARTITIONS)
        records = (json_record(n, partitions=PARTITIONS, step_ms=10_000) for n in range(COUNT))
        send(server.bootstrap, TOPIC, records)
        yield server


class Archive(PipelineCommand):
    """The command on one folder and one checkpoint."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.to = folder / "archive"
        super().__init__(
            folder, "archive", "--servers", servers, "--topic", TOPIC, "--to", str(self.to),
            "--checkpoint", str(folder / "checkpoint"),
        )  # fmt: skip

    def published(self) -> set[str]:
        """The files that a reader sees."""
        return {str(path) for path in self.to.glob("date=*/*.parquet")}

    def staged(self) -> set[str]:
        """The folders of batches that are being written."""
        return {str(path) for path in self.to.glob("_batches/*/*") if path.is_dir()}


def check_whole(archive: Archive) -> None:
    """Every record once, unchanged, in the folder of its day."""
    rows = parquet_rows(archive.to)
    found = sorted((row["offset"], row["partition"]) for row in rows)
    assert [(n // PARTITIONS, n % PARTITIONS) for n in range(COUNT)] == found
    for row in rows:
        sent = json_record(
            row["offset"] * PARTITIONS + row["partition"], partitions=PARTITIONS, step_ms=10_000
        )
        when = dt.datetime.fromtimestamp(sent.timestamp_ms / 1000, dt.UTC)
        got = (row["key"], row["value"], row["timestamp"].timestamp(), str(row["date"]))
        assert (sent.key, sent.value, when.timestamp(), when.date().isoformat()) == got


def no_row_twice(archive: Archive) -> None:
    """Whatever was cut, a reader sees no record twice."""
    rows = [(row["partition"], row["offset"]) for row in parquet_rows(archive.to)]
    assert len(set(rows)) == len(rows)


def test_driver_is_killed_and_the_archive_is_whole(
    durable_server: KledgerServer, tmp_path: Path
) -> None:
    archive = Archive(durable_server.bootstrap, tmp_path)
    chance = random.Random(16)
    for kill in range(KILLS):
        with archive.running(*SMALL_BATCHES) as process:
            # In turn: while a batch is being written, and while its files are being moved.
            for _ in range(chance.randrange(1, 4)):
                look = archive.staged if kill % 2 else archive.published
                wait_for_more(look, process)
        no_row_twice(archive)
    summary = archive.finish("--available-now")
    check_whole(archive)
    ends = {str(n): COUNT // PARTITIONS for n in range(PARTITIONS)}
    assert {TOPIC: ends} == summary["offsets"]


def test_server_is_killed_and_the_archive_is_whole(
    durable_server: KledgerServer, tmp_path: Path
) -> None:
    archive = Archive(durable_server.bootstrap, tmp_path)
    kills = 0
    while kills < KILLS:
        with archive.running(*SMALL_BATCHES) as process:
            while kills < KILLS and process.poll() is None:
                look = archive.staged if kills % 2 else archive.published
                wait_for_more(look, process)
                durable_server.kill()
                durable_server.start()
                kills += 1
    archive.finish("--available-now")
    check_whole(archive)
