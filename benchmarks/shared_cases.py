"""Shared cases: loads on servers that run through the whole benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from benchmarks import clients
from benchmarks.cases import Case
from benchmarks.clients import Figures
from benchmarks.testbed import Testbed, measured

_MB = 1e6


def rates(case: Case, found: Figures, *, cpu_s: float) -> Figures:
    """Turn what a client and the server's clock say into the figures of a produce or consume."""
    megabytes = case.payload_bytes / _MB
    seconds = found.get("seconds", 0.0)
    return {
        "mb_per_s": found["mb_per_s"] if "mb_per_s" in found else megabytes / seconds,
        "records_per_s": found.get("records_per_s") or case.records * case.repeats / seconds,
        "cpu_ms_per_mb": cpu_s * 1e3 / megabytes,
    }


def produce(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send to a fresh topic."""
    server = testbed.server(subject)
    with testbed.topic(subject, case.partitions) as topic:
        with measured(server) as usage:
            found = clients.produce(case, server.bootstrap, topic)
        return rates(case, found, cpu_s=usage.cpu_s) | {"rss_mb": server.rss_bytes() / _MB}


@contextmanager
def filled_topic(case: Case, subject: str, testbed: Testbed) -> Iterator[str]:
    """Return a topic with the case's records, sent by librdkafka for all readers."""
    with testbed.topic(subject, case.partitions) as topic:
        filling = replace(case, client="librdkafka", repeats=1)
        clients.produce(filling, testbed.server(subject).bootstrap, topic)
        yield topic


def consume(case: Case, subject: str, testbed: Testbed, topic: str) -> Figures:
    """Read a filled topic from its beginning."""
    server = testbed.server(subject)
    with measured(server) as usage:
        found = clients.consume(case, server.bootstrap, topic)
    return rates(case, found, cpu_s=usage.cpu_s)


def request(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send one record in each request, several requests or one under way."""
    server = testbed.server(subject)
    with testbed.topic(subject, 1) as topic:
        with measured(server) as usage:
            limit = ("--seconds", str(case.seconds))
            found = clients.raw(case, server.bootstrap, topic, *limit)
        figures = {"cpu_us_per_request": usage.cpu_s * 1e6 / found["total"]}
        if case.kind == "round-trip":
            return figures | {"p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"]}
        return figures | {"requests_per_s": found["requests"] / found["seconds"]}


def latency(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send at a steady rate and measure the way to the consumer."""
    server = testbed.server(subject)
    with testbed.topic(subject, 1) as topic, measured(server) as usage:
        found = clients.latency(case, server.bootstrap, topic)
    return found | {"cpu_us_per_record": usage.cpu_s * 1e6 / case.records}


def warm_up(subject: str, testbed: Testbed) -> None:
    """Run every path, unmeasured: a virtual machine compiles what it sees often."""
    sizes = Case(name="warm-up", kind="produce", records=200_000, record_bytes=1000)
    codecs: tuple[Literal["none", "lz4"], ...] = ("none", "lz4")
    for codec in codecs:
        case = replace(sizes, codec=codec)
        with filled_topic(case, subject, testbed) as topic:
            consume(case, subject, testbed, topic)
    small = Case(name="warm-up", kind="request", client="raw", record_bytes=100, seconds=5)
    request(small, subject, testbed)
