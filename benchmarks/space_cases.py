"""Space cases: what deleting gives back, how soon, and what a running producer feels of it.

Rule: topics are written alternately, so that every log file has some of each; a tenth of them
stays. What is alive is counted as payload alone, so that everything around it counts against the
server.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks import clients
from benchmarks.cases import Case
from benchmarks.clients import Figures
from benchmarks.own_server_cases import wait
from benchmarks.programs.payload import payload_values
from benchmarks.testbed import Testbed, create_topic
from compat_tests.servers import ServerProcess

_MB = 1e6
_TOPICS = 10
_SHARE_MAX = 1.3
_TIMEOUT_S = 180.0
_LOOK_S = 0.2
_SETTLE_S = 2.0
_QUEUE_KIB = 4096
_BLOCK_BYTES = 512
_RECORDS_BETWEEN_POLLS = 256


def space(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Delete nine topics of ten: once on an idle server, once beside a producer."""
    with testbed.own_server(subject) as server:
        server.start()
        doomed = fill(case, subject, server)
        before = disk_bytes(server.data_folder)
        figures = {"disk_mb_full": before / _MB}
        delete(server, doomed)
        figures["idle_s"] = seconds_to_share(server, case.payload_bytes // _TOPICS)
        figures["disk_mb_left"] = disk_bytes(server.data_folder) / _MB
    with testbed.own_server(subject) as server:
        server.start()
        doomed = fill(case, subject, server)
        topic = create_topic(subject, server.bootstrap, 1)
        before = disk_bytes(server.data_folder)
        quiet = round_trips(case, server, topic)
        # The producer adds as much again meanwhile, and all of it is alive.
        added = 2 * (disk_bytes(server.data_folder) - before)
        figures |= {f"{key}_without": quiet[key] for key in ("p50_ms", "p99_ms")}
        delete(server, doomed)
        live_bytes = case.payload_bytes // _TOPICS + added
        figures |= beside_a_producer(case, server, topic, live_bytes)
    return figures


def fill(case: Case, subject: str, server: ServerProcess) -> list[str]:
    """Write all topics alternately; return those to delete."""
    names = [create_topic(subject, server.bootstrap, 1) for _ in range(_TOPICS)]
    producer = Producer({
        "bootstrap.servers": server.bootstrap, "linger.ms": 5, "log_level": 3,
        # With more in its queue it sends one topic after the other.
        "queue.buffering.max.kbytes": _QUEUE_KIB,
    })  # fmt: skip
    values = payload_values(case.record_bytes, count=_RECORDS_BETWEEN_POLLS)
    for number in range(case.records):
        while True:
            try:
                producer.produce(names[number % _TOPICS], values[number % len(values)])
                break
            except BufferError:
                producer.poll(0.1)
        if number % _RECORDS_BETWEEN_POLLS == 0:
            producer.poll(0)
    if left := producer.flush(_TIMEOUT_S):
        raise clients.ClientFailed(f"{left} records were not taken")
    os.sync()  # what waits to be written is no cost of what follows
    wait(_SETTLE_S)
    return names[1:]


def delete(server: ServerProcess, names: list[str]) -> None:
    """Delete topics."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    for future in admin.delete_topics(names).values():
        future.result(_TIMEOUT_S)


def seconds_to_share(server: ServerProcess, live_bytes: int) -> float:
    """Wait until the folder takes less than 1.3 of what is alive."""
    begun = time.monotonic()
    while disk_bytes(server.data_folder) >= _SHARE_MAX * live_bytes:
        if time.monotonic() - begun > _TIMEOUT_S:
            size = disk_bytes(server.data_folder)
            raise clients.ClientFailed(f"still {size} bytes for {live_bytes} alive ones")
        wait(_LOOK_S)
    return time.monotonic() - begun


def beside_a_producer(case: Case, server: ServerProcess, topic: str, live_bytes: int) -> Figures:
    """Measure round trips while the space is given back."""
    figures: Figures = {}

    def look() -> None:
        figures["busy_s"] = seconds_to_share(server, live_bytes)

    looking = threading.Thread(target=look)
    looking.start()
    found = round_trips(case, server, topic)
    looking.join()
    return figures | {f"{key}_beside": found[key] for key in ("p50_ms", "p99_ms")}


def round_trips(case: Case, server: ServerProcess, topic: str) -> Figures:
    """Send records of 100 B one after the other for a while."""
    small = replace(case, record_bytes=100, in_flight=1)
    return clients.raw(small, server.bootstrap, topic, "--seconds", str(case.seconds))


def disk_bytes(folder: Path) -> int:
    """Return what the files below a folder take on the disk."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_blocks * _BLOCK_BYTES
        except FileNotFoundError:
            continue
    return size
