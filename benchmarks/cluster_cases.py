"""Cluster cases: a broker without a disk, and three servers that divide nodes, as processes.

Rule: they have a PostgreSQL that syncs each commit, without a standby, and an S3 server on the same
machine, so latencies are lower bounds of a real cluster's, and all share its cores. Loads of one
broker are bare sockets; those of nodes are librdkafka, which follows nodes that move.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Producer

from benchmarks import clients
from benchmarks.cases import CLUSTER, FSYNC, Case
from benchmarks.clients import ClientFailed, Figures
from benchmarks.exchange import exchanges
from benchmarks.many_topics_cases import create, touch
from benchmarks.own_server_cases import wait
from benchmarks.testbed import Testbed, create_topic, measured, remove_tree
from compat_tests.servers import ClusterServer, ClusterStores, NodesServer
from compat_tests.servers.process import cpu_seconds_of
from compat_tests.servers.s3_servers import VersityGateway
from tests.postgres_server import PostgresServer

_MB, _GIB = 1e6, 1 << 30
_BUCKET = "benchmark"
_SYNCING = {"fsync": "on", "full_page_writes": "on"}
_TIMEOUT_S = 60.0
_NODES = 6
_PARTITIONS_PER_TOPIC = 100
_OBJECT_BYTES = 100_000
"""More than goes into the database."""
_PACE_S = 0.02
_REST_S = 20.0
"""Between two moves of nodes: librdkafka waits longer for each connection to a broker that comes
less than 10 s after the one before."""
_VALUE = b"x" * 100
_COUNTED = ("commits", "puts")


@dataclass(slots=True)
class Stores:
    """Where a cluster keeps its data, and what its database has done."""

    stores: ClusterStores
    database: PostgresServer

    def wal_bytes(self) -> int:
        """Return how much the database has written to its log."""
        return int(self.database.execute("SELECT pg_current_wal_lsn() - '0/0'"))

    def cpu_s(self) -> float:
        """Return the CPU time of the database's processes that run now."""
        parent = self.database.process_id
        assert parent is not None
        found = [parent]
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(status.parent.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
        return sum(map(cpu_seconds_of, found))


@contextmanager
def _stores(testbed: Testbed) -> Iterator[Stores]:
    folder = testbed.folder / "cluster-stores"
    folder.mkdir()
    database = PostgresServer()
    try:
        database.initialise()
        database.start(**_SYNCING)
        database.execute("CREATE DATABASE benchmark")
        with VersityGateway(folder) as objects:
            objects.make_bucket(_BUCKET)
            options = {**objects.options, "allow_http": "true", "unsigned_payload": "true"}
            yield Stores(
                ClusterStores(
                    url=database.url("benchmark"),
                    store=f"s3://{_BUCKET}/prefix",
                    settings={
                        "cluster.sql.asynchronous": "true",
                        **{f"offload.options.{name}": each for name, each in options.items()},
                    },
                ),
                database,
            )
    finally:
        database.remove()
        remove_tree(folder)


# One broker


class _Broker(ClusterServer):
    """A broker without a disk, with metrics."""

    admin_port = 0

    def prepare(self) -> None:
        super().prepare()
        self.admin_port = self.admin_port or self.reserve_port()

    def storage(self) -> list[str]:
        return [*super().storage(), "--admin", f"{self.host}:{self.admin_port}"]

    def counts(self) -> dict[str, int]:
        """Return the counters of its commits and its requests to the object store."""
        url = f"http://{self.host}:{self.admin_port}/metrics"
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as page:
            text = page.read().decode()
        found = {}
        for name in _COUNTED:
            value = re.search(rf"^kledger_cluster_{name} (\S+)$", text, re.MULTILINE)
            if value is None:
                raise ClientFailed(f"no kledger_cluster_{name} at {url}")
            found[name] = int(float(value[1]))
        return found


def cluster_broker(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send small records, records that need an object, and as many batches as are taken."""
    if subject == FSYNC:
        with testbed.own_server(subject) as server:
            server.start()
            topic = create_topic(subject, server.bootstrap, case.partitions)
            with measured(server) as usage:
                found = _batches(case, server.bootstrap, topic)
        return _rates(case, found, usage.cpu_s)
    folder = testbed.folder / "cluster-broker"
    with _stores(testbed) as made:
        broker = _Broker(folder, made.stores.url, stores=made.stores)
        with broker:
            topic = create_topic(subject, broker.bootstrap, case.partitions)
            figures = {
                f"{share}_{what}": found[share]
                for what, record_bytes in (("inline", 1_000), ("object", _OBJECT_BYTES))
                for found in [_round_trips(case, broker.bootstrap, topic, record_bytes)]
                for share in ("p50_ms", "p99_ms")
            }
            before, wal, sql_s = broker.counts(), made.wal_bytes(), made.cpu_s()
            with measured(broker) as usage:
                found = _batches(case, broker.bootstrap, topic)
            commits, puts = (broker.counts()[name] - before[name] for name in _COUNTED)
            figures |= {
                "sql_cpu_ms_per_commit": (made.cpu_s() - sql_s) * 1e3 / commits,
                "sql_wal_kb_per_commit": (made.wal_bytes() - wal) / 1e3 / commits,
                "puts_per_gib": puts / (case.payload_bytes / _GIB),
            }
        remove_tree(folder)
    return figures | _rates(case, found, usage.cpu_s)


def cluster_start(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Stop and start a broker whose partitions have a record each."""
    assert subject == CLUSTER
    topics = case.partitions // _PARTITIONS_PER_TOPIC
    folder = testbed.folder / "cluster-start"
    with _stores(testbed) as made:
        broker = _Broker(folder, made.stores.url, stores=made.stores)
        with broker:
            with exchanges(broker.bootstrap, 1) as (exchange,):
                created_s = create(exchange, topics, partitions=_PARTITIONS_PER_TOPIC)
                touch_s = touch(exchange, topics, partitions=_PARTITIONS_PER_TOPIC)
            begun = time.monotonic()
            broker.stop()
            stop_s = time.monotonic() - begun
            answer_s = broker.start()
            cpu_s, rss = broker.cpu_seconds(), broker.rss_bytes()
        remove_tree(folder)
    return {
        "create_s": created_s,
        "touch_s": touch_s,
        "stop_s": stop_s,
        "answer_s": answer_s,
        "answer_cpu_s": cpu_s,
        "start_rss_mb": rss / _MB,
    }


def _round_trips(case: Case, bootstrap: str, topic: str, record_bytes: int) -> Figures:
    one = replace(case, record_bytes=record_bytes, in_flight=1)
    return clients.raw(one, bootstrap, topic, "--seconds", str(case.seconds))


def _batches(case: Case, bootstrap: str, topic: str) -> Figures:
    partitions = ",".join(map(str, range(case.partitions)))
    limits = ("--requests", str(case.records), "--partitions", partitions)
    return clients.raw(case, bootstrap, topic, *limits)


def _rates(case: Case, found: Figures, cpu_s: float) -> Figures:
    megabytes = case.payload_bytes / _MB
    return {"mb_per_s": megabytes / found["seconds"], "cpu_ms_per_mb": cpu_s * 1e3 / megabytes}


# Several servers


def nodes(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Commit transactions; then stop, start and kill a server under producers."""
    if subject == FSYNC:
        with testbed.own_server(subject) as server:
            server.start()
            return _transactions(case, server.bootstrap, create_topic(subject, server.bootstrap, 1))
    folder = testbed.folder / "nodes"
    with _stores(testbed) as made:
        servers = NodesServer(folder, made.stores, nodes=_NODES)
        with servers:
            bootstrap = servers.bootstrap
            figures = _transactions(case, bootstrap, create_topic(subject, bootstrap, 1))
            topic = create_topic(subject, bootstrap, case.partitions)
            _touch(bootstrap, topic, case.partitions)
            with PacedProducer(bootstrap, topic, 2 * _NODES) as producer:
                figures |= _moves(case, servers, producer)
        remove_tree(folder)
    return figures


def _transactions(case: Case, bootstrap: str, topic: str) -> Figures:
    words = ["--client", "librdkafka", "--protocol", "1"]
    words += ["--record-bytes", str(case.record_bytes), "--transactions", str(case.records)]
    found = clients.program("transaction_load", bootstrap, topic, *words)
    return {"transactions_per_s": case.records / found["seconds"]}


def _touch(bootstrap: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition in range(partitions):
        producer.produce(topic, _VALUE, partition=partition)
    if left := producer.flush(_TIMEOUT_S):
        raise ClientFailed(f"{left} of {partitions} partitions take no appends")


def _moves(case: Case, servers: NodesServer, producer: PacedProducer) -> Figures:
    moved = case.partitions * len(servers.servers[-1].served_nodes()) / _NODES
    with producer.window() as draining:
        begun = time.monotonic()
        servers.servers[-1].stop()
        servers.wait_served()
        drain_s = time.monotonic() - begun
    wait(_REST_S)
    with producer.window() as joining:
        begun = time.monotonic()
        servers.start_part(len(servers.servers) - 1)
        settled_s = time.monotonic() - begun
    wait(_REST_S)
    with producer.window() as killing:
        served_s = servers.end_part(0)
    servers.start_part(0)
    return {
        "moved_partitions_per_s": moved / drain_s,
        "drain_s": drain_s,
        "drain_stall_ms": draining.longest_s * 1e3,
        "settled_s": settled_s,
        "join_stall_ms": joining.longest_s * 1e3,
        "kill_served_s": served_s,
        "kill_stall_s": killing.longest_s,
        "errors": producer.errors,
    }


@dataclass(slots=True)
class Window:
    """The longest time from a record to its acknowledgement, of those sent in a while."""

    longest_s: float = 0.0


class PacedProducer:
    """Sends a record to each of some partitions at a steady rate, in a thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Connect; the first partitions of a topic are on different nodes."""
        self.errors = 0
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer({
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "log_level": 0,
        })  # fmt: skip
        self._window = Window()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paced producer")

    def __enter__(self) -> PacedProducer:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Measure the records sent in a block, until all of them are acknowledged."""
        self._window = measured_now = Window()
        yield measured_now
        self._window = Window()
        deadline = time.monotonic() + _TIMEOUT_S
        while len(self._producer) > self._partitions and time.monotonic() < deadline:
            self._stopped.wait(_PACE_S)

    def _run(self) -> None:
        while not self._stopped.wait(_PACE_S):
            for partition in range(self._partitions):
                self._send(partition, time.monotonic(), self._window)
            self._producer.poll(0)
        if self._producer.flush(_TIMEOUT_S):
            self.errors += 1

    def _send(self, partition: int, sent_at_s: float, window: Window) -> None:
        def delivered(error: object, _message: object) -> None:
            self.errors += error is not None
            window.longest_s = max(window.longest_s, time.monotonic() - sent_at_s)

        self._producer.produce(self._topic, _VALUE, partition=partition, on_delivery=delivered)
