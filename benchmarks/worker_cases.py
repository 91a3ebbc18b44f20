"""Worker cases: what a second process brings, and how long one that was killed is missed.

Rule: the loads are bare sockets, one to each leader, which cost next to nothing; a server without
workers gets the same connections with the same partitions. On a machine of two cores the clients
still take a part of what two workers could use, so the throughput is also given without it.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import AdminClient

from benchmarks import clients, wire
from benchmarks.cases import Case
from benchmarks.clients import Figures
from benchmarks.programs.payload import payload_values
from benchmarks.programs.raw_load import connect
from benchmarks.testbed import Testbed, create_topic, measured
from compat_tests.frames import read_frame
from compat_tests.servers import KledgerServer
from compat_tests.servers.process import cpu_seconds_of

_MB = 1e6
_CONNECTIONS = 2
_ADMIN_TIMEOUT_S = 60
_APPENDS_TIMEOUT_S = 60.0
_POLL_S = 0.005


def workers(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send large batches to the leaders of all partitions at once."""
    with testbed.own_server(subject) as server:
        assert isinstance(server, KledgerServer), subject
        server.start()
        topic = create_topic(subject, server.bootstrap, case.partitions)
        leaders = leaders_of(server.bootstrap, topic)
        parts = [
            [each for each in leaders if each % _CONNECTIONS == number]
            for number in range(_CONNECTIONS)
        ]
        if server.workers:
            assert [1] * _CONNECTIONS == [len({leaders[one] for one in part}) for part in parts]
        requests = case.records // _CONNECTIONS

        def load(part: list[int]) -> Figures:
            partitions = ",".join(map(str, part))
            limits = ("--requests", str(requests), "--partitions", partitions)
            return clients.raw(case, leaders[part[0]], topic, *limits)

        with measured(server) as usage, ThreadPoolExecutor(_CONNECTIONS) as pool:
            found = list(pool.map(load, parts))
    return rates(case, found, server_cpu_s=usage.cpu_s, processes=server.workers or 1)


def rates(
    case: Case, found: list[Figures], *, server_cpu_s: float, processes: int, cores: int = 0
) -> Figures:
    """Turn what clients and clocks say into figures.

    Without clients the server would have their share of the cores, but no process more than one:
    it would take as long as its processes compute, or what is left of the time without that share.
    """
    cores = cores or os.cpu_count() or 1
    megabytes = case.payload_bytes / _MB
    seconds = max(each["seconds"] for each in found)
    client_cpu_s = sum(each["client_cpu_s"] for each in found)
    without_clients = max(seconds - client_cpu_s / cores, server_cpu_s / processes)
    return {
        "mb_per_s": megabytes / seconds,
        "server_mb_per_s": megabytes / without_clients,
        "cpu_ms_per_mb": server_cpu_s * 1e3 / megabytes,
        "client_cpu_ms_per_mb": client_cpu_s * 1e3 / megabytes,
    }


def leaders_of(bootstrap: str, topic: str) -> dict[int, str]:
    """Give the address of the leader of each partition."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=_ADMIN_TIMEOUT_S)
    addresses = {number: f"{each.host}:{each.port}" for number, each in found.brokers.items()}
    partitions = found.topics[topic].partitions
    return {number: addresses[each.leader] for number, each in sorted(partitions.items())}


def worker_restart(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Kill workers in turn; measure the time from the signal until all partitions take appends."""
    with testbed.own_server(subject) as server:
        assert isinstance(server, KledgerServer), subject
        server.start()
        topic = create_topic(subject, server.bootstrap, case.partitions)
        clients.produce(_filling(case), server.bootstrap, topic)
        leaders = leaders_of(server.bootstrap, topic)
        took, spent = [], []
        for number in range(case.repeats):
            index = number % server.workers
            address = f"{server.host}:{server.port + 1 + index}"
            led = [each for each, leader in leaders.items() if leader == address]
            begun = time.perf_counter()
            server.kill_part(index)
            wait_for_appends(address, topic, led)
            took.append(time.perf_counter() - begun)
            spent.append(cpu_seconds_of(server.worker_ids()[index]))
    return {
        "append_s": sum(took) / len(took),
        "append_s_max": max(took),
        "restart_cpu_s": sum(spent) / len(spent),
    }


def _filling(case: Case) -> Case:
    """Return what is in the partitions before the first worker is killed."""
    return Case(
        name=case.name, kind="produce", record_bytes=case.record_bytes, records=case.records,
        partitions=case.partitions,
    )  # fmt: skip


def wait_for_appends(address: str, topic: str, partitions: list[int]) -> None:
    """Append a record to each partition, again until the server answers without an error."""
    deadline = time.monotonic() + _APPENDS_TIMEOUT_S
    batch = wire.record_batch(payload_values(100, count=1), int(time.time() * 1000))
    for partition in partitions:
        request = wire.produce_request(topic, partition, batch, acks=-1)
        while not _is_appended(address, request):
            if time.monotonic() > deadline:
                raise clients.ClientFailed(f"{topic}-{partition} takes no appends at {address}")
            time.sleep(_POLL_S)


def _is_appended(address: str, request: bytes) -> bool:
    try:
        with connect(address) as connection:
            connection.sendall(request)
            return not wire.produce_error(read_frame(connection))
    except OSError:
        return False
