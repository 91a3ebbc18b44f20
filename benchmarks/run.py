"""Run: measures the cases one by one, and in each the subjects alternately, round by round.

Rule: subjects alternate inside a case, so that whatever the machine does meanwhile meets all of
them; a case that fails is recorded and the run continues.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from confluent_kafka import KafkaException

from benchmarks import (
    authorizer_cases,
    cluster_cases,
    compaction_cases,
    coordinator_cases,
    ledger_cases,
    many_topics_cases,
    native_cases,
    own_server_cases,
    scale_cases,
    shared_cases,
    space_cases,
    spark_cases,
    tls_cases,
    worker_cases,
)
from benchmarks.cases import Case
from benchmarks.clients import ClientFailed, Figures
from benchmarks.report import describe
from benchmarks.results import Results, Sample
from benchmarks.testbed import Testbed
from compat_tests.servers import ServerFailed

ROUNDS = 3
_Measure = Callable[[Case, str, Testbed], Figures]
_MEASURES: dict[str, _Measure] = {
    "produce": shared_cases.produce,
    "request": shared_cases.request,
    "round-trip": shared_cases.request,
    "latency": shared_cases.latency,
    "start": own_server_cases.start,
    "restart": own_server_cases.restart,
    "cold-consume": own_server_cases.cold_consume,
    "idle-connections": own_server_cases.idle_connections,
    "idle-fetches": own_server_cases.idle_fetches,
    "session-fetches": own_server_cases.session_fetches,
    "transactions": coordinator_cases.transactions,
    "rebalance": coordinator_cases.rebalance,
    "many-topics": many_topics_cases.many_topics,
    "idle-partitions": many_topics_cases.idle_partitions,
    "scale": scale_cases.scale,
    "space": space_cases.space,
    "ledger": ledger_cases.operations,
    "many-ledgers": ledger_cases.many_ledgers,
    "cursor-holes": ledger_cases.cursor_holes,
    "server-in-process": ledger_cases.server_in_process,
    "long-walks": ledger_cases.long_walks,
    "tier-file": ledger_cases.tier,
    "tier-s3": ledger_cases.tier,
    "slow-tier": ledger_cases.slow_tier,
    "cluster-engine": ledger_cases.cluster_engine,
    "cluster-broker": cluster_cases.cluster_broker,
    "cluster-start": cluster_cases.cluster_start,
    "nodes": cluster_cases.nodes,
    "native-produce": native_cases.load,
    "native-consume": native_cases.load,
    "native-shared": native_cases.load,
    "native-drain": native_cases.load,
    "named-publish": native_cases.load,
    "named-receive": native_cases.load,
    "named-commit": native_cases.load,
    "table-view": native_cases.table_view,
    "workers": worker_cases.workers,
    "worker-restart": worker_cases.worker_restart,
    "authorizer": authorizer_cases.authorizer,
    "compaction": compaction_cases.compaction,
    "beside-compaction": compaction_cases.beside_compaction,
}
# A mass of idle connections is the same mass a second time.
_ROUNDS_OF_KIND = {
    "idle-connections": 1, "idle-fetches": 1, "space": 1, "many-ledgers": 1, "cursor-holes": 1,
    "many-topics": 1, "worker-restart": 1, "idle-partitions": 1, "beside-compaction": 1,
    "scale": 1, "nodes": 1, "cluster-start": 1,
}  # fmt: skip
_SHARED_KINDS = {"produce", "consume", "request", "round-trip", "latency"}


def run_cases(
    cases: list[Case], testbed: Testbed, results: Results, *, rounds: int, minutes: float
) -> None:
    """Measure all cases, after a warm-up of the servers that they share.

    Args:
        cases: in the order they are measured.
        testbed: gives the servers.
        results: takes the samples.
        rounds: of each case.
        minutes: behind these, each case that is left gets one round.
    """
    deadline = time.monotonic() + minutes * 60
    shared = [case for case in cases if case.kind in _SHARED_KINDS]
    for subject in dict.fromkeys(subject for case in shared for subject in case.subjects):
        say(f"warm-up  {subject}")
        shared_cases.warm_up(subject, testbed)
    for case in cases:
        begun = time.monotonic()
        allowed = 1 if begun > deadline else rounds
        results.about[case.name] = describe(case)
        try:
            _run_case(case, testbed, results, min(allowed, _ROUNDS_OF_KIND.get(case.kind, rounds)))
        except (ClientFailed, ServerFailed, KafkaException, OSError) as error:
            results.failures[case.name] = f"{type(error).__name__}: {error}"[:500]
            say(f"{case.name}  FAILED: {results.failures[case.name]}")
        say(f"{case.name}  took {time.monotonic() - begun:.0f} s")


def _run_case(case: Case, testbed: Testbed, results: Results, rounds: int) -> None:
    """Measure one case, its subjects alternately, in every second round in the other order."""
    with ExitStack() as exits:
        prepare = _PREPARED.get(case.kind)
        measure = _MEASURES[case.kind] if prepare is None else prepare(case, testbed, exits)
        if case.kind in _SHARED_KINDS:
            testbed.settle()
        for number in range(1, rounds + 1):
            for subject in case.subjects if number % 2 else reversed(case.subjects):
                figures = measure(case, subject, testbed)
                sample = Sample(case=case.name, subject=subject, round=number, figures=figures)
                results.samples.append(sample)
                say(f"{case.name}  {subject}  {number}/{rounds}: {in_words(figures)}")


def _consuming(case: Case, testbed: Testbed, exits: ExitStack) -> _Measure:
    """Fill a topic on each subject, to be read in every round."""
    topics = {
        subject: exits.enter_context(shared_cases.filled_topic(case, subject, testbed))
        for subject in case.subjects
    }
    return lambda case, subject, testbed: shared_cases.consume(
        case, subject, testbed, topics[subject]
    )


_PREPARED: dict[str, Callable[[Case, Testbed, ExitStack], _Measure]] = {
    "consume": _consuming,
    "spark": spark_cases.reading,
    "tls-produce": tls_cases.prepared,
    "tls-consume": tls_cases.prepared,
}
"""Kinds whose rounds share what is prepared once."""


def in_words(figures: Figures) -> str:
    """Put figures on one line."""
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def say(line: str) -> None:
    """Print progress to the terminal."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
