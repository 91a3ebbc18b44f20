"""The owner of a cluster is killed, stopped and paused under load, and another broker takes over.

What must hold: every acknowledged record is there once, in order, at the offset of its
acknowledgement; committed offsets never go back; a program that consumes, transforms and produces
in transactions leaves each record once, also if the owner ends while a transaction is open.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import time
from operator import gt
from pathlib import Path
from typing import NamedTuple

import pytest

from compat_tests.broker_pair import BrokerPair, OwnerEnd
from compat_tests.commit_gate import CommitGate
from compat_tests.conftest import SETTINGS, create_topic, new_database
from compat_tests.crash_load import CommittingConsumer, LoadProducer, LogChecker
from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers import ClusterStores
from compat_tests.test_crash import crash_seed, require_all
from compat_tests.test_exactly_once import (
    CLIENTS,
    PARTITIONS,
    SOURCE,
    TARGET,
    committed_offsets,
    feed,
    program_command,
    read_target,
    running_program,
    working,
)

pytestmark = pytest.mark.slow
LOG = logging.getLogger("cluster-crash")
ENDS = int(os.environ.get("CLUSTER_ENDS", "10"))
LOADED, LOAD_GROUP = "cluster-crash", "cluster-crash-group"
PAUSE_S_MAX = 0.5
REQUEST_TIMEOUT_MS = 5_000
"""A paused broker closes no connection: its clients find the next one after this time."""
PROGRAMS = [each for each in CLIENTS if each.values != ("confluent-kafka",)]
"""Without librdkafka, whose `send_offsets_to_transaction` was seen to wait for ever after a
takeover (docs/CLUSTER.md)."""
BALANCED = {"aiokafka", "kafka-python"}
"""Clients that never go back to their bootstrap servers."""


class End(NamedTuple):
    """What happens to an owner, and whether a transaction stands before its commit then."""

    how: OwnerEnd
    is_before_commit: bool


def chosen_ends(chance: random.Random, count: int) -> list[End]:
    """Give each kind as often as the others, in any order."""
    kinds = [End(*each) for each in itertools.product(OwnerEnd, (False, True))]
    ends = [*itertools.islice(itertools.cycle(kinds), count)]
    chance.shuffle(ends)
    return ends


class PlainLoad:
    """Producers with idempotence and a member of a group, and what was acknowledged to them."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        create_topic(bootstrap, LOADED, partitions, {})
        self.places = [(LOADED, partition) for partition in range(partitions)]
        self.producers = [
            LoadProducer(name, bootstrap, self.places, codec, socket_timeout_ms=REQUEST_TIMEOUT_MS)
            for name, codec in (("plain", "none"), ("packed", "lz4"))
        ]
        self._bootstrap = bootstrap
        self._member = CommittingConsumer(bootstrap, LOAD_GROUP, [LOADED])
        self._checker = LogChecker(bootstrap, LOAD_GROUP, self.places)

    def start(self) -> None:
        for each in self.producers:
            each.start()
        self._member.start()

    def acknowledged_counts(self) -> list[int]:
        """Return how many records of each partition were acknowledged."""
        return [
            sum(len(producer.acknowledged[place]) for producer in self.producers)
            for place in self.places
        ]

    def wait_appended(self) -> None:
        """Wait until every partition has got records."""
        before = self.acknowledged_counts()
        wait_until(
            lambda: all(map(gt, self.acknowledged_counts(), before)),
            "appends go on",
            within_s=PROGRAM_S,
        )

    def require_all(self) -> None:
        """Check what has been acknowledged by now."""
        records = [producer.acknowledged_so_far() for producer in self.producers]
        require_all(self._checker, self.producers, records, dict(self._member.committed))

    def finish(self) -> int:
        """End the load, and read everything again from the beginning; return the records."""
        left_over = [producer.finish() for producer in self.producers]
        self._member.finish()
        self.require_all()
        self._checker.close()
        self._checker = LogChecker(self._bootstrap, LOAD_GROUP, self.places)
        self.require_all()
        self._checker.close()
        assert left_over == [0, 0]
        sent = sum(sum(producer.sent.values()) for producer in self.producers)
        assert sent == self._checker.records
        return sent


class Takeover(NamedTuple):
    """Seconds from the end of an owner until the next one was ready, and until appends went on."""

    ready_s: float
    appended_s: float


def take_over(pair: BrokerPair, load: PlainLoad, end: End) -> Takeover:
    """End the ownership of a broker, and wait until the next one has acknowledged something."""
    begun = time.monotonic()
    pair.end_owner(end.how)
    ready_s = time.monotonic() - begun
    load.wait_appended()
    return Takeover(ready_s, time.monotonic() - begun)


@pytest.mark.parametrize("client", PROGRAMS)
def test_owners_end_under_load_and_lose_nothing(
    pytestconfig: pytest.Config, tmp_path: Path, client: str
) -> None:
    seed = crash_seed(pytestconfig)
    LOG.warning("--crash-seed %d", seed)
    chance = random.Random(seed)
    stores = ClusterStores.of_folder(new_database(pytestconfig), tmp_path / "objects")
    stores.make_cluster()
    takeovers: dict[OwnerEnd, list[Takeover]] = {}
    with BrokerPair(stores, dict(SETTINGS)) as pair, CommitGate() as gate:
        for topic in (SOURCE, TARGET):
            create_topic(pair.bootstrap, topic, PARTITIONS, {})
        load = PlainLoad(pair.bootstrap, partitions=3)
        load.start()
        expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        address = pair.balancer.address if client in BALANCED else pair.bootstrap
        command = program_command(client, address, gate.address)
        with running_program(command, tmp_path / "program.log") as program:
            for number, end in enumerate(chosen_ends(chance, ENDS)):
                if end.is_before_commit:
                    with gate.closed():
                        feed(pair.bootstrap, expected, number)
                        gate.wait_reached(PROGRAM_S)
                        taken = take_over(pair, load, end)
                else:
                    with working(pair.bootstrap):
                        feed(pair.bootstrap, expected, number)
                    threading.Event().wait(chance.uniform(0, PAUSE_S_MAX))
                    taken = take_over(pair, load, end)
                takeovers.setdefault(end.how, []).append(taken)
                LOG.warning("%d: %s, ready after %.2f s, appends after %.2f s", number, end, *taken)
                pair.bring_back(end.how)
                load.require_all()
            count = sum(map(len, expected))
            found = read_target(pair.bootstrap, "read_committed", count)
        assert expected == found
        assert committed_offsets(pair.bootstrap) == list(map(len, expected))
        sent = load.finish()
    LOG.warning("%d records in transactions, %d others, %d starts", count, sent, program.starts)
    for how, each in takeovers.items():
        ready, appended = map(sorted, zip(*each, strict=True))
        times = (ready[0], ready[-1], appended[0], appended[-1])
        LOG.warning("%s: ready %.1f to %.1f s, appends %.1f to %.1f s", how.value, *times)
