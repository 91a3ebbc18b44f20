"""Spark cases: the same queries over the same records by four sources, in one Spark session.

Rule: both servers get the same records from the same client; kledger's are also in a tier, whole,
and brokers read the primary copy. Every query runs twice unmeasured on each source, and its result
is checked. Only the server's process counts as its CPU.
"""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import kledger.sync
from benchmarks import clients
from benchmarks.cases import (
    KAFKA,
    OS,
    SPARK_BROKER,
    SPARK_DIRECT,
    SPARK_SOURCE,
    SPARK_SOURCE_KAFKA,
    Case,
)
from benchmarks.clients import Figures
from benchmarks.own_server_cases import wait
from benchmarks.programs.payload import VALUES_COUNT
from benchmarks.testbed import Testbed, alter_topic, create_topic, measured
from compat_tests.servers import KledgerServer, ServerProcess

QUERIES = ("count", "json", "parquet")
_MB = 1e6
_ANSWER_S = 600
_OFFLOADED_S = 300
_LOOK_S = 0.5
_SETTLE_S = 3.0
_SETTINGS = {
    "managedLedgerDataReadPriority": "bookkeeper-first",
    "log.retention.check.interval.ms": "500",
}
_LEDGERS = {"segment.bytes": str(64 << 20)}
# Closes what is open, and copies all; the primary copies stay.
_OFFLOADING = {"segment.ms": "1", "remote.storage.enable": "true"}


class Source(NamedTuple):
    """A Spark source with its options, and the server that it reads from."""

    server: ServerProcess
    format: str
    options: dict[str, str]


def reading(
    case: Case, testbed: Testbed, exits: ExitStack
) -> Callable[[Case, str, Testbed], Figures]:
    """Fill both servers, start Spark and warm it up; return what measures one round of a source."""
    folder = testbed.folder / case.name
    settings = _SETTINGS | {"offload.url": f"file://{folder}-tier"}
    ours = exits.enter_context(testbed.own_server(OS, is_native=True, settings=settings))
    assert isinstance(ours, KledgerServer)
    ours.start()
    theirs = testbed.server(KAFKA)
    topic = create_topic(OS, ours.bootstrap, case.partitions, config=_LEDGERS)
    clients.produce(case, ours.bootstrap, topic)
    _offload(ours, topic)
    their_topic = exits.enter_context(testbed.topic(KAFKA, case.partitions))
    clients.produce(case, theirs.bootstrap, their_topic)
    wait(_SETTLE_S)
    broker = {"kafka.bootstrap.servers": ours.bootstrap, "subscribe": topic}
    at_kafka = {"kafka.bootstrap.servers": theirs.bootstrap, "subscribe": their_topic}
    direct = {"mode": "direct", "path": settings["offload.url"], "subscribe": topic}
    sources = {
        SPARK_DIRECT: Source(ours, "kledger", direct),
        SPARK_BROKER: Source(ours, "kledger", broker),
        SPARK_SOURCE: Source(ours, "kafka", broker),
        SPARK_SOURCE_KAFKA: Source(theirs, "kafka", at_kafka),
    }
    spark = exits.enter_context(clients.running_program("spark_load"))

    def measure(case: Case, subject: str, testbed: Testbed) -> Figures:
        figures: Figures = {}
        for query in QUERIES:
            source = sources[subject]
            with measured(source.server) as usage:
                seconds = _ask(spark, case, source, query, f"{folder}-parquet")
            megabytes = case.payload_bytes / _MB
            figures[f"{query}_mb_per_s"] = megabytes / seconds
            figures[f"{query}_cpu_ms_per_mb"] = usage.cpu_s * 1e3 / megabytes
        return figures

    # In both orders: the virtual machine still compiles, which helps whatever runs last.
    for subject in (*case.subjects, *reversed(case.subjects)):
        measure(case, subject, testbed)
    return measure


def _offload(server: KledgerServer, topic: str) -> None:
    """Let the server copy all ledgers of a topic to its tier, and wait until it has."""
    alter_topic(server.bootstrap, topic, _OFFLOADING)
    with kledger.sync.connect(f"kledger://{server.native_address}") as client:
        for _ in range(int(_OFFLOADED_S / _LOOK_S)):
            partitions = client.topic_stats(topic).partitions
            ledgers = [each for one in partitions for each in one.ledgers if each.entries]
            if all(each.offloaded for each in ledgers):
                return
            wait(_LOOK_S)
    raise clients.ClientFailed(f"{topic} is not in the tier within {_OFFLOADED_S} s")


def _ask(
    spark: subprocess.Popen[str], case: Case, source: Source, query: str, folder: str
) -> float:
    """Run a query, check its result, and return the seconds that it took."""
    asked = {"format": source.format, "options": source.options, "query": query, "folder": folder}
    assert spark.stdin is not None
    spark.stdin.write(json.dumps(asked) + "\n")
    spark.stdin.flush()
    found = _answer(spark)
    check_result(case, query, int(found["result"]))
    return found["seconds"]


def _answer(spark: subprocess.Popen[str]) -> Figures:
    assert spark.stdout is not None
    readable, _, _ = select.select([spark.stdout], [], [], _ANSWER_S)
    line = spark.stdout.readline() if readable else ""
    if not line:
        raise clients.ClientFailed(f"no answer of Spark within {_ANSWER_S} s, or it ended")
    found: Figures = json.loads(line)
    return found


def check_result(case: Case, query: str, result: int) -> None:
    """Check that a query has read every record.

    Raises:
        ClientFailed: it has not.
    """
    rounds, rest = divmod(case.records, VALUES_COUNT)
    amounts = rounds * sum(range(VALUES_COUNT)) + sum(range(rest))
    expected = {"count": case.records, "json": amounts}.get(query, result)
    if result != expected:
        raise clients.ClientFailed(f"{case.name}: {query} gave {result}, expected {expected}")
