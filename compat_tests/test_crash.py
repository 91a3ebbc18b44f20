"""The server is killed in the middle of load, again and again, and started on the same folder.

Row 132 of docs/SCENARIOS.md; with transactions it is played in `test_exactly_once.py`.

What must hold: every acknowledged record is there once, in order, byte for byte, at the offset it
was acknowledged with; committed offsets neither go back nor lie beyond the log; the producers,
which live through it all, end with every record delivered exactly once.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from pathlib import Path
from typing import TypeAlias

import pytest

from compat_tests.conftest import SETTINGS, create_topic, make_kledger
from compat_tests.crash_load import CommittingConsumer, LoadProducer, LogChecker, TopicPartitionKey
from compat_tests.servers import ApacheKafkaServer, KledgerServer, ServerProcess

pytestmark = pytest.mark.peer("confluent-kafka")
TOPICS = ("crash-a", "crash-b")
PARTITIONS = 3
LOAD_S_MIN, LOAD_S_MAX = 0.05, 1.5
GROUP = "crash-group"
LOG = logging.getLogger("crash")

Victim: TypeAlias = int | str
"""The number of a part of the server (`KledgerServer.parts`), or "all"."""


@pytest.mark.feature("3 kills under load: nothing acknowledged is lost")
def test_row_132_few_kills_lose_nothing(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    server = crash_server(pytestconfig, tmp_path, "fsync")
    run_kills(server, kills=3, seed=crash_seed(pytestconfig))


@pytest.mark.slow
@pytest.mark.workers("one broker ends, and others go on")
@pytest.mark.feature("20 kills under load ({durability}): nothing acknowledged is lost")
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_row_132_many_kills_lose_nothing(
    pytestconfig: pytest.Config, tmp_path: Path, durability: str
) -> None:
    server = crash_server(pytestconfig, tmp_path, durability)
    kills = int(pytestconfig.getoption("--kills"))
    run_kills(server, kills=kills, seed=crash_seed(pytestconfig))


def crash_seed(config: pytest.Config) -> int:
    """Give the seed asked for, or a new one."""
    given = config.getoption("--crash-seed")
    return random.SystemRandom().randrange(1 << 32) if given is None else int(given)


def crash_server(config: pytest.Config, folder: Path, durability: str) -> ServerProcess:
    """Build a server of its own, with the settings of the shared one."""
    if config.getoption("--server") == "kafka":
        return ApacheKafkaServer(folder, settings=SETTINGS)
    workers = int(config.getoption("--workers"))
    return make_kledger(config, folder, durability=durability, workers=workers)


def run_kills(server: ServerProcess, *, kills: int, seed: int) -> None:
    """Kill and restart under load, checking after each restart; a failure shows the log."""
    LOG.warning("--crash-seed %d", seed)
    moments = random.Random(seed)
    places = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    victims = itertools.cycle(server_victims(server))
    with server:
        for topic in TOPICS:
            create_topic(server.bootstrap, topic, PARTITIONS, {})
        producers = [
            LoadProducer("plain", server.bootstrap, places, "none"),
            LoadProducer("packed", server.bootstrap, places, "lz4"),
        ]
        member = CommittingConsumer(server.bootstrap, GROUP, list(TOPICS))
        for producer in producers:
            producer.start()
        member.start()
        checker = LogChecker(server.bootstrap, GROUP, places)
        for number in range(1, kills + 1):
            threading.Event().wait(moments.uniform(LOAD_S_MIN, LOAD_S_MAX))
            victim = next(victims)
            records, commits, restart_s = kill_and_restart(server, victim, producers, member)
            require_all(checker, producers, records, commits)
            LOG.warning("kill %d of %s: held; there again in %.2f s", number, victim, restart_s)
        checker.close()
        left_over = [producer.finish() for producer in producers]
        member.finish()
        assert left_over == [0, 0]
        final_check(server, producers, places)


def server_victims(server: ServerProcess) -> list[Victim]:
    """Give what can be killed of a server: each part alone, and everything together."""
    return [*range(server.parts if isinstance(server, KledgerServer) else 0), "all"]


def kill(server: ServerProcess, victim: Victim) -> float:
    """Kill a part of a server; give the seconds until it answers again."""
    if isinstance(server, KledgerServer) and isinstance(victim, int):
        return server.kill_part(victim)
    server.kill()
    return server.start()


def kill_and_restart(
    server: ServerProcess,
    victim: Victim,
    producers: list[LoadProducer],
    member: CommittingConsumer,
) -> tuple[
    list[dict[TopicPartitionKey, list[tuple[int, int]]]], dict[TopicPartitionKey, int], float
]:
    """Kill and restart, and note what has been acknowledged by then."""
    restart_s = kill(server, victim)
    records = [producer.acknowledged_so_far() for producer in producers]
    return records, dict(member.committed), restart_s


def require_all(
    checker: LogChecker,
    producers: list[LoadProducer],
    records: list[dict[TopicPartitionKey, list[tuple[int, int]]]],
    commits: dict[TopicPartitionKey, int],
) -> None:
    """Check a restarted server against what had been acknowledged."""
    assert [] == [error for producer in producers for error in producer.errors]
    checker.read_to_end()
    for producer, acknowledged in zip(producers, records, strict=True):
        checker.require(producer.name, acknowledged)
    checker.require_commits(commits)


def final_check(
    server: ServerProcess, producers: list[LoadProducer], places: list[TopicPartitionKey]
) -> None:
    """Check from the beginning, after an orderly restart: everything sent is there exactly once."""
    server.stop()
    server.start()
    checker = LogChecker(server.bootstrap, GROUP, places)
    try:
        checker.read_to_end()
        for producer in producers:
            checker.require(producer.name, producer.acknowledged_so_far())
        sent = sum(sum(producer.sent.values()) for producer in producers)
        LOG.warning("%d records sent, %d in the log", sent, checker.records)
        assert checker.records == sent
    finally:
        checker.close()
