"""Kafka Connect, standalone: the file source fills a topic, the file sink writes it out again.

Where the source stands is in a file of the worker's, where the sink stands is in its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests import programs
from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers.ports import ReservedPort
from compat_tests.test_confluent_kafka import consuming, receive

pytestmark = [pytest.mark.peer("kafka-connect"), pytest.mark.slow]

STRINGS = "org.apache.kafka.connect.storage.StringConverter"


@contextmanager
def connect(bootstrap: str, topic: str, folder: Path) -> Iterator[None]:
    """A worker with a source that reads `folder`/from and a sink that writes `folder`/to."""
    with ReservedPort() as own_port:
        files = properties_files(bootstrap, topic, folder, own_port.number)
        command = programs.java_command("org.apache.kafka.connect.cli.ConnectStandalone", *files)
        with programs.running(command, folder / "log"):
            yield


def properties_files(bootstrap: str, topic: str, folder: Path, own_port: int) -> list[str]:
    """Write what the worker and its connectors read, and give the paths."""
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{own_port}",
    }
    source = {
        "name": f"{topic}-source",
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": str(folder / "from"),
        "topic": topic,
    }
    sink = {
        "name": f"{topic}-sink",
        "connector.class": "FileStreamSink",
        "tasks.max": "1",
        "file": str(folder / "to"),
        "topics": topic,
    }
    return [
        written(folder / f"{name}.properties", properties)
        for name, properties in (("worker", worker), ("source", source), ("sink", sink))
    ]


def written(path: Path, properties: dict[str, str]) -> str:
    """Write a file of properties and give its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


@pytest.mark.feature("standalone: file source to file sink, stopped and resumed")
def test_lines_pass_from_file_to_file(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    lines = [f"line {number}" for number in range(200)]
    source, sink = tmp_path / "from", tmp_path / "to"

    def run_until_written(expected: list[str]) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in expected[source_lines() :])
        with connect(bootstrap, topic, tmp_path):
            wait_until(
                lambda: sink.exists() and len(sink.read_text().splitlines()) >= len(expected),
                f"{len(expected)} lines in the sink's file",
                within_s=PROGRAM_S,
            )
        assert expected == sink.read_text().splitlines()

    def source_lines() -> int:
        return len(source.read_text().splitlines()) if source.exists() else 0

    run_until_written(lines[:120])
    run_until_written(lines)
    with consuming(bootstrap, topic, group=group) as consumer:
        received = receive(consumer, len(lines))
    assert [line.encode() for line in lines] == [each.value() for each in received]
