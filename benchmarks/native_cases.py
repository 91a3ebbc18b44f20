"""Native cases: the native client and its named topics, embedded and remote, beside Kafka groups.

Rule: every load gets a server of its own, which is the load's own process when it is embedded. The
CPU of clients counts here, because an embedded client's is part of the server's.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks import clients
from benchmarks.cases import EMBEDDED, FSYNC, NAMED_VIA, NATIVE_VIA, Case
from benchmarks.clients import Figures
from benchmarks.programs.native_load import PRODUCING
from benchmarks.shared_cases import rates
from benchmarks.testbed import Testbed, create_topic, measured
from compat_tests.servers import KledgerServer

_WORKS = {
    "native-produce": "queue", "native-consume": "consume", "native-shared": "shared",
    "native-drain": "drain",
    "named-publish": "produce", "named-receive": "consume", "named-commit": "each",
}  # fmt: skip
"""What the load program calls the kinds of cases."""
_NAMED_TOPIC = "named-load"


def load(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Do the case's work in the way of a subject."""
    work, is_named = _WORKS[case.kind], subject in NAMED_VIA
    via = (NAMED_VIA | NATIVE_VIA)[subject]
    words = [
        work, "--via", via, *(["--named"] if is_named else []),
        "--records", str(case.records), "--record-bytes", str(case.record_bytes),
        "--partitions", str(case.partitions), "--consumers", str(case.consumers),
    ]  # fmt: skip
    with testbed.own_server(FSYNC, is_native=True) as server:
        if via == "embedded":
            server.folder.mkdir(parents=True)
            found = clients.own_program("native_load", *words, "--data", str(server.data_folder))
            return _figures(case, found, server_cpu_s=0.0)
        assert isinstance(server, KledgerServer)
        server.start()
        place = ("--native", server.native_address)
        topic = _NAMED_TOPIC
        if is_named:
            clients.program("native_load", server.bootstrap, topic, "create", *words[1:], *place)
        else:
            topic = create_topic(subject, server.bootstrap, case.partitions)
        if work not in PRODUCING:
            clients.produce(replace(case, client="librdkafka"), server.bootstrap, topic)
        with measured(server) as usage:
            found = clients.program("native_load", server.bootstrap, topic, *words, *place)
        return _figures(case, found, server_cpu_s=usage.cpu_s)


def table_view(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Load a topic of as many keys as records into a table view, and refresh it."""
    words = [
        "--via", NATIVE_VIA[subject], "--records", str(case.records),
        "--record-bytes", str(case.record_bytes), "--partitions", str(case.partitions),
    ]  # fmt: skip
    with testbed.own_server(FSYNC, is_native=True) as server:
        if subject == EMBEDDED:
            server.folder.mkdir(parents=True)
            return clients.own_program("table_view_load", *words, "--data", str(server.data_folder))
        assert isinstance(server, KledgerServer)
        server.start()
        words += ["--bootstrap", server.bootstrap, "--native", server.native_address]
        return clients.own_program("table_view_load", *words)


def _figures(case: Case, found: Figures, *, server_cpu_s: float) -> Figures:
    figures = rates(case, found, cpu_s=server_cpu_s + found["client_cpu_s"])
    figures["cpu_all_ms_per_mb"] = figures.pop("cpu_ms_per_mb")
    return figures
