"""Servers of a cluster of nodes are killed, stopped and paused under load, and others go on.

What must hold: every acknowledged record is there once, in order, at the offset of its
acknowledgement; committed offsets never go back; a program that consumes, transforms and produces
in transactions leaves each record once; a server that ends in order, an unavailable database and
an object store that refuses for a minute are no error of clients that retry.
"""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from compat_tests.broker_pair import OwnerEnd
from compat_tests.commit_gate import CommitGate
from compat_tests.conftest import SETTINGS, create_topic
from compat_tests.deadlines import PROGRAM_S
from compat_tests.servers import ClusterStores, NodesServer
from compat_tests.servers.s3_servers import VersityGateway
from compat_tests.test_cluster_crash import End, PlainLoad, chosen_ends
from compat_tests.test_crash import crash_seed
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
from compat_tests.tier_proxy import TierProxy
from tests.ledger.offload.s3_proxy import Fault, error
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow
LOG = logging.getLogger("nodes-crash")
ENDS = int(os.environ.get("NODES_ENDS", "9"))
AWAY_S = float(os.environ.get("NODES_AWAY_S", "60"))
NODES = 6
PAUSE_S_MAX = 0.5
BUCKET = "cluster"


class Failover(NamedTuple):
    """Seconds from a server's end until others served its nodes, and all partitions went on."""

    served_s: float
    appended_s: float


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A database server of the test's own, which it may stop."""
    server = PostgresServer()
    try:
        server.initialise()
        server.start()
        server.execute("CREATE DATABASE nodes")
        yield server
    finally:
        server.remove()


def servers_of(database: PostgresServer, folder: Path) -> NodesServer:
    """Return the servers of a cluster over a folder, not started."""
    stores = ClusterStores.of_folder(database.url("nodes"), folder / "objects")
    return NodesServer(folder, stores, nodes=NODES, settings=SETTINGS)


def fail_over(servers: NodesServer, load: PlainLoad, end: End, index: int) -> Failover:
    """End a server, and wait until every partition has got records from all producers."""
    begun = time.monotonic()
    server = servers.servers[index]
    match end.how:
        case OwnerEnd.KILL:
            server.kill()
        case OwnerEnd.STOP:
            assert 0 == server.stop(), server.log_tail()
        case OwnerEnd.PAUSE:
            server.pause()
    servers.wait_served()
    served_s = time.monotonic() - begun
    load.wait_appended()
    return Failover(served_s, time.monotonic() - begun)


def bring_back(servers: NodesServer, end: End, index: int) -> None:
    """Let the server have its share of the nodes again."""
    if end.how is OwnerEnd.PAUSE:
        servers.servers[index].resume()
        servers.wait_divided()
    else:
        servers.start_part(index)


def quantiles(ascending: list[float]) -> tuple[float, float, float]:
    """Return the median, the 99th percentile and the longest of these times."""
    count = len(ascending)
    return ascending[count // 2], ascending[math.ceil(0.99 * count) - 1], ascending[-1]


@pytest.mark.parametrize("client", CLIENTS)
def test_servers_end_under_load_and_lose_nothing(
    pytestconfig: pytest.Config, database: PostgresServer, tmp_path: Path, client: str
) -> None:
    seed = crash_seed(pytestconfig)
    LOG.warning("--crash-seed %d", seed)
    chance = random.Random(seed)
    failovers: dict[OwnerEnd, list[Failover]] = {}
    with servers_of(database, tmp_path) as servers, CommitGate() as gate:
        for topic in (SOURCE, TARGET):
            create_topic(servers.bootstrap, topic, PARTITIONS, {})
        load = PlainLoad(servers.bootstrap, partitions=NODES)
        load.start()
        expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        command = program_command(client, servers.bootstrap, gate.address)
        with running_program(command, tmp_path / "program.log") as program:
            for number, end in enumerate(chosen_ends(chance, ENDS)):
                index = chance.randrange(servers.parts)
                if end.is_before_commit:
                    with gate.closed():
                        feed(servers.bootstrap, expected, number)
                        gate.wait_reached(PROGRAM_S)
                        taken = fail_over(servers, load, end, index)
                else:
                    with working(servers.bootstrap):
                        feed(servers.bootstrap, expected, number)
                    threading.Event().wait(chance.uniform(0, PAUSE_S_MAX))
                    taken = fail_over(servers, load, end, index)
                failovers.setdefault(end.how, []).append(taken)
                LOG.warning("%d: %s of %d: %.2f s, appends %.2f s", number, end, index + 1, *taken)
                bring_back(servers, end, index)
                load.require_all()
            count = sum(map(len, expected))
            found = read_target(servers.bootstrap, "read_committed", count)
        assert expected == found
        assert committed_offsets(servers.bootstrap) == list(map(len, expected))
        sent = load.finish()
    LOG.warning("%d records in transactions, %d others, %d starts", count, sent, program.starts)
    for how, each in failovers.items():
        served, appended = map(sorted, zip(*each, strict=True))
        shown = [
            ", ".join(f"{one:.1f}" for one in quantiles(times)) for times in (served, appended)
        ]
        what = "%s, %d times: seconds (median, p99, longest) until served %s, until appends %s"
        LOG.warning(what, how.value, len(each), *shown)


def test_rolling_restart_is_no_error_of_clients(database: PostgresServer, tmp_path: Path) -> None:
    with servers_of(database, tmp_path) as servers:
        load = PlainLoad(servers.bootstrap, partitions=NODES)
        with longest_silence(load) as silence:
            load.start()
            servers.restart_in_turn()
            load.wait_appended()
        sent = load.finish()
    LOG.warning("%d records; a partition stood still for %.1f s at most", sent, silence[0])


def test_database_away_for_a_minute_loses_nothing(database: PostgresServer, tmp_path: Path) -> None:
    with servers_of(database, tmp_path) as servers:
        load = PlainLoad(servers.bootstrap, partitions=NODES)
        load.start()
        load.wait_appended()
        with database.stopped(crash=True):
            threading.Event().wait(AWAY_S)
        begun = time.monotonic()
        load.wait_appended()
        LOG.warning("appends %.1f s after the database was back", time.monotonic() - begun)
        servers.wait_divided()
        sent = load.finish()
    LOG.warning("%d records", sent)


def test_store_answering_503_for_a_minute_loses_nothing(
    database: PostgresServer, tmp_path: Path
) -> None:
    with VersityGateway(tmp_path / "s3") as objects, TierProxy(objects.address) as proxy:
        objects.make_bucket(BUCKET)
        options = {**objects.options, "allow_http": "true", "endpoint": f"http://{proxy.address}"}
        stores = ClusterStores(
            url=database.url("nodes"),
            store=f"s3://{BUCKET}/prefix",
            settings={
                "cluster.sql.asynchronous": "true",
                **{f"offload.options.{name}": value for name, value in options.items()},
            },
        )
        with NodesServer(tmp_path, stores, nodes=NODES, settings=SETTINGS) as servers:
            load = PlainLoad(servers.bootstrap, partitions=NODES)
            load.start()
            load.wait_appended()
            for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
                proxy.inject(Fault(method, answer=error(503, "SlowDown"), times=-1))
            threading.Event().wait(AWAY_S)
            proxy.heal()
            begun = time.monotonic()
            load.wait_appended()
            LOG.warning("appends %.1f s after the store was back", time.monotonic() - begun)
            sent = load.finish()
    LOG.warning("%d records, %d requests refused", sent, proxy.injected)
    assert proxy.injected


@contextmanager
def longest_silence(load: PlainLoad) -> Iterator[list[float]]:
    """Measure for how long a partition got no acknowledgement; the value is there at the end."""
    found, is_over = [0.0], threading.Event()

    def watch() -> None:
        counts = load.acknowledged_counts()
        moved_at = [time.monotonic()] * len(counts)
        while not is_over.wait(0.02):
            now = time.monotonic()
            for index, count in enumerate(load.acknowledged_counts()):
                found[0] = max(found[0], now - moved_at[index])
                if count != counts[index]:
                    counts[index], moved_at[index] = count, now

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()
