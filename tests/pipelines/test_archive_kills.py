"""archive, while its driver and the server are killed again and again."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers import KledgerServer
from compat_tests.servers.process import die_with_parent
from tests.pipelines.records import create_topic, json_record, parquet_rows, send

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS, COUNT, KILLS = "orders", 3, 30_000, 10
# More of them than there are kills, so that every kill meets one.
SMALL_BATCHES = ("--every", "0.001", "--max-offsets-per-trigger", "500")


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[KledgerServer]:
    """A server that can be killed, with the topic in it."""
    with KledgerServer(tmp_path / "server", durability="fsync") as server:
        create_topic(server.bootstrap, TOPIC, partitions=PARTITIONS)
        records = (json_record(n, partitions=PARTITIONS, step_ms=10_000) for n in range(COUNT))
        send(server.bootstrap, TOPIC, records)
        yield server


class Archive:
    """The command, run again and again on one folder and one checkpoint."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.to, self._folder = folder / "archive", folder
        self._command = [
            sys.executable, "-m", "pipelines", "archive", "--servers", servers, "--topic", TOPIC,
            "--to", str(self.to), "--checkpoint", str(folder / "checkpoint"), "--json",
        ]  # fmt: skip

    @contextmanager
    def running(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the driver with its JVM in a group of its own, and kill that group at the end."""
        with (self._folder / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._command, *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def finish(self) -> dict[str, object]:
        """Run to the end and return the summary."""
        with self.running("--available-now") as process:
            printed, _ = process.communicate(timeout=PROGRAM_S)
            log = (self._folder / "driver.log").read_text(errors="replace")
            assert process.returncode == 0, log[-3000:]
        summary: dict[str, object] = json.loads(printed.decode().splitlines()[-1])
        return summary

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


def is_changed(
    look: Callable[[], set[str]], process: subprocess.Popen[bytes]
) -> Callable[[], bool]:
    """Return whether a set of paths got new ones, or the driver ended."""
    before = look()
    return lambda: bool(look() - before) or process.poll() is not None


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
                wait_until(is_changed(look, process), "another batch", within_s=PROGRAM_S)
        no_row_twice(archive)
    summary = archive.finish()
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
                wait_until(is_changed(look, process), "another batch", within_s=PROGRAM_S)
                durable_server.kill()
                durable_server.start()
                kills += 1
    archive.finish()
    check_whole(archive)
