"""Many-topics cases: what thousands of topics take to create, list, load, use once and let lie.

Rule: created is what Metadata lists. Apache Kafka holds a file open for every partition, so there
are never more partitions than this process, and with it both servers, may have files.
"""

from __future__ import annotations

import resource
import time

from benchmarks.cases import Case
from benchmarks.clients import ClientFailed, Figures
from benchmarks.exchange import Exchange, exchanges
from benchmarks.own_server_cases import cpu_percent, wait
from benchmarks.testbed import Testbed, measured
from benchmarks.wire import (
    create_topics_errors,
    create_topics_request,
    metadata_request,
    produce_error,
    produce_request,
    record_batch,
    topic_count,
)
from compat_tests.servers import ServerProcess

_TOPICS_PER_REQUEST = 100
_PARTITIONS_PER_TOPIC = 10
_OTHER_FILES = 1_000
_TIMEOUT_S = 900.0
_POLL_S = 0.02
_REST_PERCENT = 20.0
_IDLE_MS = 4_000
"""Longer than one round of writing to all partitions takes."""
_GIVEN_BACK_S = 31.0
"""Longer than the period in which a server gives memory back once."""
_RECORD_BYTES = 100
_CORRELATION = bytes(4)
_REST_S_MAX = 60
_MB = 1e6


def many_topics(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Create topics, ask for all of them again and again, restart with them."""
    count = topics_that_fit(case.partitions)
    with testbed.own_server(subject) as server:
        # Apache Kafka makes, and on its way out visits, a folder for every partition.
        server.start_timeout_s = server.stop_timeout_s = _TIMEOUT_S
        server.start()
        with exchanges(server.bootstrap, 1) as (exchange,):
            with measured(server) as usage:
                seconds = create(exchange, count)
            figures = {"topics": count, "create_s": seconds, "create_cpu_s": usage.cpu_s}
            come_to_rest(server)
            listing(exchange, case.repeats)
            with measured(server) as usage:
                figures["metadata_ms"] = listing(exchange, case.repeats) * 1e3 / case.repeats
            figures["metadata_cpu_ms"] = usage.cpu_s * 1e3 / case.repeats
        figures["rss_mb"] = server.rss_bytes() / _MB
        server.stop()
        begun = time.monotonic()
        figures["answer_s"] = server.start()
        with exchanges(server.bootstrap, 1) as (exchange,):
            wait_until_listed(exchange, count)
        return figures | {"listed_s": time.monotonic() - begun}


def idle_partitions(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Write one record into each partition, wait until all are closed as idle; do that twice."""
    settings = {"server.log_partitions_max_idle_ms": str(_IDLE_MS)}
    count = case.partitions // _PARTITIONS_PER_TOPIC
    with testbed.own_server(subject, settings=settings) as server:
        server.start()
        figures: Figures = {"start_rss_mb": server.rss_bytes() / _MB}
        with exchanges(server.bootstrap, 1) as (exchange,):
            create(exchange, count)
            come_to_rest(server)
            created = server.rss_bytes()
            touch_s = touch(exchange, count)
            touched = server.rss_bytes()
            closed = _rss_when_closed(server)
            touch(exchange, count)
            again = _rss_when_closed(server)
        return figures | {
            "created_rss_mb": created / _MB,
            "touch_s": touch_s,
            "touched_rss_mb": touched / _MB,
            "closed_rss_mb": closed / _MB,
            "left_mb": (closed - created) / _MB,
            "closed_again_rss_mb": again / _MB,
        }


def touch(exchange: Exchange, count: int, *, partitions: int = _PARTITIONS_PER_TOPIC) -> float:
    """Append a record to each partition of the topics; give the seconds."""
    batch = record_batch([bytes(_RECORD_BYTES)], int(time.time() * 1e3))
    begun = time.monotonic()
    for number in range(count):
        for partition in range(partitions):
            exchange.send(produce_request(f"many-{number}", partition, batch, acks=-1))
        for _ in range(partitions):
            error = produce_error(_CORRELATION + exchange.receive())
            if error:
                raise ClientFailed(f"Produce was answered with error {error}")
    return time.monotonic() - begun


def _rss_when_closed(server: ServerProcess) -> int:
    """Wait for longer than a partition stays open, and until what was freed has gone back."""
    wait(2 * _IDLE_MS / 1e3)
    come_to_rest(server)
    wait(_GIVEN_BACK_S)
    return server.rss_bytes()


def topics_that_fit(partitions: int) -> int:
    """Give how many topics there are to be, of ten partitions each."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(partitions, files - _OTHER_FILES) // _PARTITIONS_PER_TOPIC


def create(exchange: Exchange, count: int, *, partitions: int = _PARTITIONS_PER_TOPIC) -> float:
    """Create topics, some in a request; give the seconds until all of them are listed."""
    names = [f"many-{number}" for number in range(count)]
    begun = time.monotonic()
    for first in range(0, count, _TOPICS_PER_REQUEST):
        chunk = names[first : first + _TOPICS_PER_REQUEST]
        request = create_topics_request(chunk, partitions=partitions)
        errors = create_topics_errors(exchange.ask(request))
        if errors != [0] * len(chunk):
            raise ClientFailed(f"CreateTopics was answered with errors {set(errors)}")
    wait_until_listed(exchange, count)
    return time.monotonic() - begun


def wait_until_listed(exchange: Exchange, count: int) -> None:
    """Ask until all topics are there."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (found := topic_count(exchange.ask(metadata_request(all_topics=True)))) < count:
        if time.monotonic() > deadline:
            raise ClientFailed(f"{found} of {count} topics are listed")
        wait(_POLL_S)


def listing(exchange: Exchange, repeats: int) -> float:
    """Ask for all topics again and again; give the seconds."""
    request = metadata_request(all_topics=True)
    begun = time.monotonic()
    for _ in range(repeats):
        exchange.ask(request)
    return time.monotonic() - begun


def come_to_rest(server: ServerProcess) -> None:
    """Wait until a server has done what it does behind its answers, or for long enough."""
    for _ in range(_REST_S_MAX):
        if cpu_percent(server, 1.0) < _REST_PERCENT:
            return
