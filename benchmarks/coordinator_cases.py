"""Coordinator cases: transactions, and rebalances of a group.

Rule: members and raw producers are bare sockets of one process, which answer at once; the time is
the server's.
"""

from __future__ import annotations

from benchmarks import clients
from benchmarks.cases import Case
from benchmarks.clients import Figures
from benchmarks.testbed import Testbed, measured

_AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


def transactions(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Commit transactions of one record, one after the other, behind as many to warm up."""
    server = testbed.server(subject)
    words = ["--client", case.client, "--protocol", str(case.protocol)]
    words += ["--record-bytes", str(case.record_bytes), "--transactions", str(case.records)]
    with testbed.topic(subject, 1) as topic:

        def load() -> Figures:
            return clients.program("transaction_load", server.bootstrap, topic, *words)

        load()
        with measured(server) as usage:
            found = load()
    return {
        "transactions_per_s": case.records / found["seconds"],
        "cpu_us_per_transaction": usage.cpu_s * 1e6 / case.records,
    }


def rebalance(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Let one more member join a group, and leave it again, some times; warm up with another."""
    with testbed.own_server(subject, settings=_AT_ONCE) as server:
        server.start()

        def load(group: str) -> Figures:
            words = ("--members", str(case.consumers), "--rounds", str(case.repeats))
            return clients.program("rebalance_load", server.bootstrap, group, *words)

        load("warm-up")
        with measured(server) as usage:
            found = load("load")
        return found | {"cpu_ms_per_rebalance": usage.cpu_s * 1e3 / (2 * case.repeats)}
