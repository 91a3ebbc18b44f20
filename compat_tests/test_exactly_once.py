"""Consume, transform, produce: killed on both sides, the output equals the input, once.

Half of the kills come at a random moment of the program's work, the other half while it stands
before a commit with all of the transaction written: a closed gate keeps it there, so that no kill
depends on luck to cut off a transaction. The program is started again whenever it has ended: killed
by the test, or because its client gave up while the server was down. The test checks what a reader
of committed records finds.
"""

from __future__ import annotations

import itertools
import logging
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from compat_tests import programs
from compat_tests.commit_gate import CommitGate
from compat_tests.conftest import create_topic
from compat_tests.deadlines import PROGRAM_S, WAIT_S, ask_until, rounds, wait_until
from compat_tests.exactly_once_app import BATCH_RECORDS, PREFIX
from compat_tests.servers import ServerProcess
from compat_tests.servers.process import die_with_parent
from compat_tests.test_crash import Victim, crash_seed, crash_server, server_victims
from compat_tests.test_crash import kill as kill_server

LOG = logging.getLogger("exactly-once")
PARTITIONS = 2
GROUP, CHECK_GROUP = "exactly-once", "exactly-once-check"
SOURCE, TARGET = "eos-in", "eos-out"
# What a start alone adds to the output: the markers of an older transaction, one in each partition.
RECORDS_AT_WORK = 2 * BATCH_RECORDS
PAUSE_S_MAX = 0.3
RECORDS_PER_KILL = 500
LOG_TAIL_BYTES = 4_000
CLIENTS = [
    pytest.param("confluent-kafka", marks=pytest.mark.peer("confluent-kafka")),
    pytest.param("aiokafka", marks=pytest.mark.peer("aiokafka")),
    pytest.param("kafka-python", marks=pytest.mark.peer("kafka-python")),
    pytest.param("kafka-java", marks=[pytest.mark.peer("kafka-java"), pytest.mark.slow]),
]


@pytest.mark.feature("exactly once: 4 kills of program and server")
@pytest.mark.parametrize("client", CLIENTS)
def test_few_kills_leave_each_record_once(
    pytestconfig: pytest.Config, tmp_path: Path, client: str
) -> None:
    server = crash_server(pytestconfig, tmp_path, "fsync")
    kills = len(kinds_of_kills(server))
    run_kills(server, client, tmp_path / "program.log", kills=kills, seed=crash_seed(pytestconfig))


@pytest.mark.slow
@pytest.mark.workers("coordinators and leaders end one by one, and together")
@pytest.mark.feature("exactly once: 50 kills of program and server")
@pytest.mark.parametrize("client", CLIENTS)
def test_many_kills_leave_each_record_once(
    pytestconfig: pytest.Config, tmp_path: Path, client: str
) -> None:
    server = crash_server(pytestconfig, tmp_path, "fsync")
    run_kills(server, client, tmp_path / "program.log", kills=50, seed=crash_seed(pytestconfig))


class Kill(NamedTuple):
    """What is killed, and when; `victim` None: the program."""

    victim: Victim | None
    is_before_commit: bool


def kinds_of_kills(server: ServerProcess) -> list[Kill]:
    """Give every kind of kill, of each worker too."""
    victims = [None, *server_victims(server)]
    return [Kill(*each) for each in itertools.product(victims, (False, True))]


def chosen_kills(server: ServerProcess, chance: random.Random, count: int) -> list[Kill]:
    """Give each kind of kill as often as the others, in any order."""
    kills = [*itertools.islice(itertools.cycle(kinds_of_kills(server)), count)]
    chance.shuffle(kills)
    return kills


def run_kills(server: ServerProcess, client: str, log: Path, *, kills: int, seed: int) -> None:
    """Feed the program, kill it or the server, and compare what comes out in the end."""
    LOG.warning("--crash-seed %d", seed)
    chance = random.Random(seed)
    chosen = chosen_kills(server, chance, kills)
    with server, CommitGate() as gate:
        for topic in (SOURCE, TARGET):
            create_topic(server.bootstrap, topic, PARTITIONS, {})
        expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        command = program_command(client, server.bootstrap, gate.address)
        with running_program(command, log) as program:
            for number, kill in enumerate(chosen):
                LOG.info("%d: %s", number, kill)
                if kill.is_before_commit:
                    with gate.closed():
                        feed(server.bootstrap, expected, number)
                        gate.wait_reached(PROGRAM_S)
                        perform(kill, server, program)
                else:
                    with working(server.bootstrap):
                        feed(server.bootstrap, expected, number)
                    threading.Event().wait(chance.uniform(0, PAUSE_S_MAX))
                    perform(kill, server, program)
            count = sum(map(len, expected))
            found = read_target(server.bootstrap, "read_committed", count)
        assert expected == found
        assert committed_offsets(server.bootstrap) == list(map(len, expected))
        written = sum(map(len, read_target(server.bootstrap, "read_uncommitted", count)))
    LOG.warning("%d records, %d cut off, %d starts", count, written - count, program.starts)
    assert written - count >= chosen.count(Kill(None, is_before_commit=True))


def perform(kill: Kill, server: ServerProcess, program: Program) -> None:
    """Kill one of them, and start the server again if it is that; the program comes by itself."""
    if kill.victim is None:
        program.kill()
    else:
        kill_server(server, kill.victim)


@contextmanager
def working(bootstrap: str) -> Iterator[None]:
    """Wait, in the end, until the program is at work on what it was given."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": CHECK_GROUP})

    def end() -> int:
        """Where the output ends; -1 while a server that has just started does not tell."""
        places = [TopicPartition(TARGET, index) for index in range(PARTITIONS)]
        try:
            return sum(consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places)
        except KafkaException as error:
            LOG.warning("the end of the output: %s", error)
            return -1

    with closing(consumer):
        before = ask_until(
            end, lambda found: found >= 0, "the end of the output", within_s=PROGRAM_S
        )
        yield
        wait_until(
            lambda: end() > before + RECORDS_AT_WORK,
            "the program is at work",
            within_s=PROGRAM_S,
        )


def program_command(client: str, bootstrap: str, gate: str) -> list[str]:
    """Give the command of the program with one of its clients."""
    task = (bootstrap, GROUP, SOURCE, TARGET, gate)
    if client == "kafka-java":
        return programs.java_command("ExactlyOnce", *task)
    return [sys.executable, "-m", "compat_tests.exactly_once_app", client, *task]


class Program:
    """The program, started again whenever it has ended; its last words are kept in a log."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._thread = threading.Thread(target=self._keep_running, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def kill(self) -> None:
        """End it in the middle of whatever it does; afterwards it does nothing any more."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait()

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
                with self._log.open("ab") as log:
                    self._process = subprocess.Popen(
                        self._command,
                        stdout=log,
                        stderr=log,
                        preexec_fn=die_with_parent,  # noqa: PLW1509 - one call, takes no lock
                    )
                self.starts += 1
            self._process.wait()


@contextmanager
def running_program(command: list[str], log: Path) -> Iterator[Program]:
    """The program, running; a test that fails shows what it said."""
    program = Program(command, log)
    program.start()
    try:
        yield program
    finally:
        program.stop()
        said = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        LOG.warning("%d starts; the program said:\n%s", program.starts, said)


def feed(bootstrap: str, expected: list[list[bytes]], number: int) -> None:
    """Send the next records, each to its partition, and record the expected outcome."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for index in range(RECORDS_PER_KILL):
        partition = index % PARTITIONS
        value = f"{number}/{index}".encode()
        producer.produce(SOURCE, value, partition=partition)
        expected[partition].append(PREFIX + value)
    assert 0 == producer.flush(WAIT_S)


def read_target(bootstrap: str, isolation: str, count: int) -> list[list[bytes]]:
    """Read the output until it is complete, and then to its end: there must be no more."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": CHECK_GROUP,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    for _ in rounds(f"{count} records, {isolation}", within_s=PROGRAM_S):
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


def committed_offsets(bootstrap: str) -> list[int]:
    """Give what the program committed of each partition of its input."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    places = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
    offsets = [place.offset for place in consumer.committed(places, WAIT_S)]
    consumer.close()
    return offsets
