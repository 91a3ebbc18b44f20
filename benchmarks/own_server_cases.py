"""Own-server cases: what needs a server of its own: starts, restarts, cold data, idle masses."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks import clients, wire
from benchmarks.cases import Case
from benchmarks.clients import Figures
from benchmarks.exchange import Exchange, exchanges
from benchmarks.programs.raw_load import connect
from benchmarks.shared_cases import rates
from benchmarks.testbed import Testbed, create_topic, measured
from compat_tests.frames import read_frame
from compat_tests.servers import ServerProcess

_MB = 1e6
_SETTLE_S = 2.0
_READY_TIMEOUT_S = 120.0
_CONNECTIONS = 1000
_PARKED_MS = 180_000
_QUIET_PERCENT = 3.0
_PARTITIONS_PER_TOPIC = 1000
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def wait(seconds: float) -> None:
    """Let time pass."""
    threading.Event().wait(seconds)


def window(seconds: float) -> tuple[float, float]:
    """Let time pass; return when that began and ended."""
    begin_s = time.monotonic()
    wait(seconds)
    return begin_s, time.monotonic()


def start(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Start on an empty folder; then look at the memory of the idle process."""
    with testbed.own_server(subject) as server:
        seconds = server.start()
        wait(_SETTLE_S)
        return {"start_s": seconds, "idle_rss_mb": server.rss_bytes() / _MB}


def restart(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Fill a log, kill the server, start it on the same folder."""
    with testbed.own_server(subject) as server:
        server.start()
        topic = create_topic(subject, server.bootstrap, 1)
        clients.produce(case, server.bootstrap, topic)
        rss = server.rss_bytes() / _MB
        server.kill()
        begun = time.monotonic()
        answer_s = server.start()
        wait_for_end(server.bootstrap, topic, case.records)
        ready_s = time.monotonic() - begun
        return {"answer_s": answer_s, "ready_s": ready_s, "rss_loaded_mb": rss}


def wait_for_end(bootstrap: str, topic: str, end: int) -> None:
    """Ask for the end of a partition until the server knows it again."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "restart", "log_level": 0})
    place, deadline = TopicPartition(topic, 0), time.monotonic() + _READY_TIMEOUT_S
    found = -1
    while found != end:
        if time.monotonic() > deadline:
            raise clients.ClientFailed(f"{topic} ends at {found}, expected {end}")
        with suppress(KafkaException):
            _, found = consumer.get_watermark_offsets(place, timeout=5)
    consumer.close()


def cold_consume(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Fill a log, restart the server, empty the page cache, read from the beginning."""
    with testbed.own_server(subject) as server:
        server.start()
        topic = create_topic(subject, server.bootstrap, 1)
        clients.produce(case, server.bootstrap, topic)
        server.stop()
        server.start()
        wait_for_end(server.bootstrap, topic, case.records)
        forget_pages(server.data_folder)
        with measured(server) as usage:
            found = clients.consume(case, server.bootstrap, topic)
        return rates(case, found, cpu_s=usage.cpu_s)


def forget_pages(folder: Path) -> None:
    """Write back what is dirty, then take the files below a folder out of the page cache."""
    os.sync()
    try:
        _DROP_CACHES.write_text("1")
    except OSError:
        pass
    else:
        return
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def idle_connections(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Hold connections that have asked once and say nothing more."""
    with testbed.own_server(subject) as server:
        server.start()
        wait(_SETTLE_S)
        before = cpu_percent(server, case.seconds)
        rss = server.rss_bytes()
        with open_connections(server.bootstrap, _CONNECTIONS) as connections:
            for connection in connections:
                connection.sendall(wire.metadata_request())
            for connection in connections:
                read_frame(connection)
            wait(_SETTLE_S)
            with_them = cpu_percent(server, case.seconds)
            each = (server.rss_bytes() - rss) / _CONNECTIONS / 1e3
        return {"cpu_percent": with_them, "cpu_percent_without": before, "kb_each": each}


def idle_fetches(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Park fetches on empty partitions, a thousand in each, and look at the quiet server."""
    topics = max(case.partitions // _PARTITIONS_PER_TOPIC, 1)
    with testbed.own_server(subject) as server:
        server.start()
        names = [
            create_topic(subject, server.bootstrap, _PARTITIONS_PER_TOPIC) for _ in range(topics)
        ]
        wait(_SETTLE_S)
        before = cpu_percent(server, case.seconds)
        places = range(_PARTITIONS_PER_TOPIC)
        with open_connections(server.bootstrap, topics) as connections:
            begun = server.cpu_seconds()
            for name, connection in zip(names, connections, strict=True):
                connection.sendall(wire.fetch_request({name: list(places)}, wait_ms=_PARKED_MS))
            wait_until_quiet(server)
            parking = server.cpu_seconds() - begun
            parked = cpu_percent(server, case.seconds)
        return {
            "cpu_percent": parked,
            "cpu_percent_without": before,
            "parking_us_per_partition": parking * 1e6 / (topics * _PARTITIONS_PER_TOPIC),
            "rss_mb": server.rss_bytes() / _MB,
        }


def session_fetches(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Fetch from partitions in which nothing happens: in a session, and naming all each time."""
    with testbed.own_server(subject) as server:
        server.start()
        name = create_topic(subject, server.bootstrap, case.partitions)
        places = {name: list(range(case.partitions))}
        wait(_SETTLE_S)
        with exchanges(server.bootstrap, 1) as (exchange,):
            for count in (4 * case.records, case.records):  # the first to warm up
                plain = fetch_cost(server, exchange, [wire.fetch_request(places, wait_ms=1)], count)
                first = wire.fetch_request(places, wait_ms=1, session=wire.NEW_SESSION)
                session_id = wire.fetch_session_id(exchange.ask(first))
                following = [
                    wire.fetch_request({}, wait_ms=1, session=(session_id, epoch))
                    for epoch in range(1, count + 1)
                ]
                in_session = fetch_cost(server, exchange, following, count)
        return {"session_cpu_us_per_fetch": in_session, "cpu_us_per_fetch": plain}


def fetch_cost(
    server: ServerProcess, exchange: Exchange, requests: list[bytes], count: int
) -> float:
    """Send fetches one after the other, going round; give the server's CPU for one in µs."""
    with measured(server) as usage:
        for number in range(count):
            wire.fetch_session_id(exchange.ask(requests[number % len(requests)]))
    return usage.cpu_s * 1e6 / count


def wait_until_quiet(server: ServerProcess) -> None:
    """Wait until a second passes in which the server does next to nothing."""
    for _ in range(_PARKED_MS // 2000):
        if cpu_percent(server, 1.0) < _QUIET_PERCENT:
            return
    raise clients.ClientFailed("the server does not become quiet")


def cpu_percent(server: ServerProcess, seconds: float) -> float:
    """Give the share of one core that a server takes while nothing is asked of it."""
    with measured(server) as usage:
        wait(seconds)
    return 100 * usage.cpu_s / seconds


@contextmanager
def open_connections(bootstrap: str, count: int) -> Iterator[list[socket.socket]]:
    """Open connections and close them behind the body."""
    with ExitStack() as exits:
        yield [exits.enter_context(connect(bootstrap)) for _ in range(count)]
