"""Kafka Connect: the file source fills a topic, the file sink writes it out again.

Where the sink stands is in its group. Where the source stands is in a file of a standalone worker;
a distributed one keeps that, the configurations and the status in compacted topics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from urllib.request import Request, urlopen

import pytest

from compat_tests import programs
from compat_tests.compacted_topics import COMPACTED, read_partition
from compat_tests.conftest import create_topic
from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds, wait_until
from compat_tests.secured_server import SecuredServer, of_listeners
from compat_tests.servers.ports import ReservedPort
from compat_tests.settings import dotted
from compat_tests.test_confluent_kafka import consuming, receive

pytestmark = [pytest.mark.peer("kafka-connect"), pytest.mark.slow]

STORES = ("config", "offset", "status")
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
NOTHING: Mapping[str, str] = MappingProxyType({})


@contextmanager
def connect(
    bootstrap: str, topic: str, folder: Path, client: Mapping[str, str] = NOTHING
) -> Iterator[None]:
    """A worker with a source that reads `folder`/from and a sink that writes `folder`/to.

    Args:
        bootstrap: the address of the server.
        topic: between the source and the sink.
        folder: of all files.
        client: further settings of each client that the worker has.
    """
    with ReservedPort() as own_port:
        files = properties_files(bootstrap, topic, folder, own_port.number, client)
        command = programs.java_command("org.apache.kafka.connect.cli.ConnectStandalone", *files)
        with programs.running(command, folder / "log"):
            yield


def properties_files(
    bootstrap: str, topic: str, folder: Path, own_port: int, client: Mapping[str, str]
) -> list[str]:
    """Write what the worker and its connectors read, and give the paths."""
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{own_port}",
    }
    for prefix in ("", "producer.", "consumer."):
        worker |= {f"{prefix}{key}": value for key, value in client.items()}
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


@of_listeners
@pytest.mark.feature("standalone: SASL_SSL with SCRAM, and mTLS")
def test_worker_connects_with_tls(
    secured: SecuredServer, topic: str, listener: str, tmp_path: Path
) -> None:
    sent, sink = "".join(f"line {number}\n" for number in range(20)), tmp_path / "to"
    (tmp_path / "from").write_text(sent)
    with connect(secured.addresses[listener], topic, tmp_path, secured.java(listener)):
        wait_until(
            lambda: sink.exists() and sink.read_text() == sent,
            "the lines in the sink's file",
            within_s=PROGRAM_S,
        )
    assert b"line 0" == secured.first_value(topic)


@contextmanager
def distributed_worker(bootstrap: str, group: str, folder: Path) -> Iterator[str]:
    """A worker that keeps everything in topics, which are compacted at once; gives its address."""
    with ReservedPort() as own_port:
        address = f"http://127.0.0.1:{own_port.number}"
        worker = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.flush.interval.ms": "200",
            "scheduled.rebalance.max.delay.ms": "0",
            "listeners": address,
        }
        for kind in STORES:
            worker |= {
                f"{kind}.storage.topic": stored_in(group, kind),
                f"{kind}.storage.replication.factor": "1",
            }
            settings = dotted({key: COMPACTED[key] for key in COMPACTED if key != "cleanup_policy"})
            worker |= {f"{kind}.storage.{key}": value for key, value in settings.items()}
        worker |= dict.fromkeys(("offset.storage.partitions", "status.storage.partitions"), "1")
        file = written(folder / "worker.properties", worker)
        command = programs.java_command("org.apache.kafka.connect.cli.ConnectDistributed", file)
        with programs.running(command, folder / "log"):
            yield address


def stored_in(group: str, kind: str) -> str:
    """The name of a topic in which workers keep something."""
    return f"{group}-{kind}"


def put_config(address: str, name: str, config: dict[str, str]) -> None:
    """Configure a connector; refused while the worker starts or rebalances."""

    def is_taken() -> bool:
        request = Request(
            f"{address}/connectors/{name}/config",
            data=json.dumps(config).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            with urlopen(request, timeout=WAIT_S):
                return True
        except OSError:
            return False

    wait_until(is_taken, f"{name} is configured", within_s=PROGRAM_S)


def lost_records(bootstrap: str, topic: str) -> int:
    """How many records compaction has removed from a topic of one partition."""
    offsets = [each.offset for each in read_partition(bootstrap, topic)]
    return offsets[-1] + 1 - len(offsets) if offsets else 0


@pytest.mark.feature("distributed: config, offsets and status in compacted topics, restarted")
def test_worker_finds_everything_in_compacted_topics(
    compacting_bootstrap: str, group: str, tmp_path: Path
) -> None:
    bootstrap, topic = compacting_bootstrap, f"{group}-lines"
    create_topic(bootstrap, topic, 1, {})
    source, sink = tmp_path / "from", tmp_path / "to"
    lines: list[str] = []

    def append_lines() -> None:
        added = [f"line {len(lines) + number}" for number in range(20)]
        lines.extend(added)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in added)

    def wait_written() -> None:
        wait_until(
            lambda: sink.exists() and len(sink.read_text().splitlines()) >= len(lines),
            f"{len(lines)} lines in the sink's file",
            within_s=PROGRAM_S,
        )
        assert lines == sink.read_text().splitlines()

    read = {"connector.class": "FileStreamSource", "file": str(source), "topic": topic}
    write = {"connector.class": "FileStreamSink", "file": str(sink), "topics": topic}
    with distributed_worker(bootstrap, group, tmp_path) as address:
        put_config(address, "source", read)
        for _ in rounds("a compaction of every topic", within_s=PROGRAM_S):
            append_lines()
            put_config(address, "sink", write | {"config.number": str(len(lines))})
            wait_written()
            if all(lost_records(bootstrap, stored_in(group, kind)) for kind in STORES):
                break
    with distributed_worker(bootstrap, group, tmp_path):
        append_lines()
        wait_written()
