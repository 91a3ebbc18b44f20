"""Consume, transform, produce: killed on both sides at random, the output equals the input, once.

The program is started again whenever it has ended: killed by the test, or by itself when its client
gave up while the server was away. What counts is what a reader of committed records finds.
"""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from compat_tests.conftest import create_topic
from compat_tests.deadlines import rounds
from compat_tests.exactly_once_app import PREFIX
from compat_tests.servers import ServerProcess
from compat_tests.test_crash import crash_seed, crash_server

LOG = logging.getLogger("exactly-once")
PARTITIONS = 2
GROUP = "exactly-once"
SOURCE, TARGET = "eos-in", "eos-out"
PAUSE_S_MIN, PAUSE_S_MAX = 0.2, 2.0
RECORDS_PER_KILL = 200
CLIENTS = [
    pytest.param("confluent-kafka", marks=pytest.mark.peer("confluent-kafka")),
    pytest.param("aiokafka", marks=pytest.mark.peer("aiokafka")),
]


@pytest.mark.feature("exactly once: 4 kills of program and server")
@pytest.mark.parametrize("client", CLIENTS)
def test_few_kills_leave_each_record_once(
    pytestconfig: pytest.Config, tmp_path: Path, client: str
) -> None:
    server = crash_server(pytestconfig, tmp_path, "fsync")
    run_kills(server, client, kills=4, seed=crash_seed(pytestconfig))


@pytest.mark.slow
@pytest.mark.feature("exactly once: 50 kills of program and server")
@pytest.mark.parametrize("client", CLIENTS)
def test_many_kills_leave_each_record_once(
    pytestconfig: pytest.Config, tmp_path: Path, client: str
) -> None:
    server = crash_server(pytestconfig, tmp_path, "fsync")
    run_kills(server, client, kills=50, seed=crash_seed(pytestconfig))


def run_kills(server: ServerProcess, client: str, *, kills: int, seed: int) -> None:
    """Feed the program, kill it or the server, and compare what comes out in the end."""
    LOG.warning("--crash-seed %d", seed)
    chance = random.Random(seed)
    with server:
        for topic in (SOURCE, TARGET):
            create_topic(server.bootstrap, topic, PARTITIONS, {})
        expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        with running_program(client, server.bootstrap) as program:
            for kill in range(kills):
                feed(server.bootstrap, expected, kill)
                threading.Event().wait(chance.uniform(PAUSE_S_MIN, PAUSE_S_MAX))
                if chance.random() < 0.5:
                    server.kill()
                    server.start()
                else:
                    program.kill()
            found = read_committed(server.bootstrap, sum(map(len, expected)))
        assert expected == found
        LOG.warning("%d records, program started %d times", sum(map(len, found)), program.starts)


class Program:
    """The program, started again whenever it has ended."""

    def __init__(self, client: str, bootstrap: str) -> None:
        self._command = [
            sys.executable, "-m", "compat_tests.exactly_once_app",
            client, bootstrap, GROUP, SOURCE, TARGET,
        ]  # fmt: skip
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._thread = threading.Thread(target=self._keep_running, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def stop(self) -> None:
        """End it for good."""
        self._stopping.set()
        self.kill()
        self._thread.join()

    def _keep_running(self) -> None:
        while not self._stopping.wait(0.1):
            with self._lock:
                if self._stopping.is_set():
                    return
                self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
                self.starts += 1
            self._process.wait()


@contextmanager
def running_program(client: str, bootstrap: str) -> Iterator[Program]:
    """The program, running."""
    program = Program(client, bootstrap)
    program.start()
    try:
        yield program
    finally:
        program.stop()


def feed(bootstrap: str, expected: list[list[bytes]], number: int) -> None:
    """Send the next records, each in its partition, and note what must become of them."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for index in range(RECORDS_PER_KILL):
        partition = index % PARTITIONS
        value = f"{number}/{index}".encode()
        producer.produce(SOURCE, value, partition=partition)
        expected[partition].append(PREFIX + value)
    assert 0 == producer.flush(60)


def read_committed(bootstrap: str, count: int) -> list[list[bytes]]:
    """Read the output until it is complete, and then to its end: there must be no more."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "exactly-once-check",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    for _ in rounds(f"{count} committed records", within_s=180):
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition() or 0)
            if sum(map(len, found)) >= count and len(at_end) == PARTITIONS:
                break
        elif error is None:
            at_end.discard(message.partition() or 0)
            found[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    return found
