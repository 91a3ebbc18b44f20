"""Compaction cases: the speed of compaction, beside Kafka's cleaner, and its effect on clients.

Rule: both servers get the same records in one partition. kledger compacts when it is asked to;
Apache Kafka when the setting that has kept its cleaner away is changed, and it is done when it says
how far the log is clean. The CPU time is that of the server and of the processes that it starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

import kledger.sync
from benchmarks import clients
from benchmarks.cases import KAFKA, Case
from benchmarks.clients import Figures
from benchmarks.own_server_cases import wait, window
from benchmarks.testbed import Testbed, alter_broker, alter_topic, create_topic
from compat_tests.servers import KledgerServer, ServerProcess

_MB = 1e6
_SETTLE_S = 3.0
_LOOK_S = 0.02
_TIMEOUT_S = 1800.0
_OURS = {"log.cleaner.enable": "false"}
_KAFKAS = {"log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": str(128 << 20)}
_CLEANING = {"log.cleaner.backoff.ms": "100"}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# The share of a log without anything clean is 1, which is not above 1.
_KEPT_AWAY = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
_SEGMENTS = {"segment.bytes": str(64 << 20)}  # the last one is not compacted
_CALM_S = 10.0
"""How long the disk may still be busy with what has filled the topics."""
_LIMIT = "log.cleaner.io.max.bytes.per.second"
_LONGER, _LONGER_CLEANING = 2, 4
"""How many times as long the load is watched alone, and beside the log cleaner, which does little
in that time, as beside a process that computes."""
_GROWTH_PERCENT = 40
"""How much is appended to a topic so that its compaction gets to the second pass at once."""
_CATCH_UP_S = 30.0


def compaction(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Write a topic, then compact it."""
    is_kafka = subject == KAFKA
    settings = _KAFKAS if is_kafka else _OURS
    with testbed.own_server(subject, is_native=not is_kafka, settings=settings) as server:
        server.start()
        topic = _filled_topic(case, subject, server)
        compact = _compact_by_kafka if is_kafka else _compact
        before = _cpu_with_children(server)
        begin_s, end_s = compact(server, topic)
        cpu_s = _cpu_with_children(server) - before
    megabytes = case.payload_bytes / _MB
    return {"mb_per_s": megabytes / (end_s - begin_s), "cpu_ms_per_mb": cpu_s * 1e3 / megabytes}


def beside_compaction(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send and fetch at a steady rate, before and during the compaction of another topic.

    Also beside a process that only computes, with the priority of a compaction: what any process
    costs on as few cores; and during a compaction by the log cleaner, which nobody waits for.
    """
    with testbed.own_server(subject, is_native=True, settings=_CLEANING) as server:
        assert isinstance(server, KledgerServer)
        server.start()
        topic = _filled_topic(case, subject, server)
        cleaned = _filled_topic(case, subject, server, _SEGMENTS)
        place = [
            "--bootstrap",
            server.bootstrap,
            "--topic",
            create_topic(subject, server.bootstrap, 1),
        ]
        with clients.running_program("paced_load", *place) as load:
            wait(_CALM_S)
            windows = {
                "without": [window(_LONGER * case.seconds)],
                "busy": [_busy(case.seconds)],
                "beside": [_compact(server, topic)],
                **_clean(case, server, cleaned),
            }
            found = clients.answer(load, json.dumps(windows), timeout_s=_TIMEOUT_S)
    figures = {
        f"{name}_{when}": value for when, each in found.items() for name, value in each.items()
    }
    for who in ("produce", "fetch"):
        p99_ms = figures[f"{who}_p99_ms_without"]
        figures[f"{who}_p99_ratio"] = figures[f"{who}_p99_ms_beside"] / p99_ms
        figures[f"{who}_p99_busy_ratio"] = figures[f"{who}_p99_ms_busy"] / p99_ms
        for when in ("cleaner", "cleaner_copying"):
            p99_ms = figures[f"{who}_p99_ms_stopped"]
            figures[f"{who}_p99_{when}_ratio"] = figures[f"{who}_p99_ms_{when}"] / p99_ms
    ((begin_s, end_s),) = windows["beside"]
    figures["mb_per_s"] = case.payload_bytes / _MB / (end_s - begin_s)
    return figures


def _busy(seconds: float) -> tuple[float, float]:
    """Let a process compute; return when that began and ended."""
    with clients.running_program("busy_process") as program:
        assert program.stdout is not None
        program.stdout.readline()
        return window(seconds)


def _clean(case: Case, server: KledgerServer, topic: str) -> dict[str, list[tuple[float, float]]]:
    """Let the log cleaner compact a topic; return the windows in which it does, and does not.

    The limit of its reads and writes stops it before and after each of the others, so what the
    machine does meanwhile meets both. The topic grows in between: the cleaner hurries until it has
    done as large a share of its work, and is in its second pass.
    """
    stopped, seconds = [window(_LONGER * case.seconds)], _LONGER_CLEANING * case.seconds
    alter_topic(server.bootstrap, topic, {"min.cleanable.dirty.ratio": "0"})
    wait(_SETTLE_S)
    reading = window(seconds)
    with _stopped_cleaner(server):
        stopped.append(window(_LONGER * case.seconds))
    _fill(case, server, topic, case.records * _GROWTH_PERCENT // 100)
    wait(_CATCH_UP_S)
    copying = window(seconds)
    with kledger.sync.connect(f"kledger://{server.native_address}") as client:
        state = client.compaction_status(topic).state
    if state != "running":
        raise clients.ClientFailed(f"the compaction of {topic} is {state}: too few records")
    with _stopped_cleaner(server):
        stopped.append(window(_LONGER * case.seconds))
    return {"stopped": stopped, "cleaner": [reading], "cleaner_copying": [copying]}


@contextmanager
def _stopped_cleaner(server: KledgerServer) -> Iterator[None]:
    """Stop the log cleaner while the body runs."""
    alter_broker(server.bootstrap, {_LIMIT: "1"})
    wait(_SETTLE_S)
    yield
    alter_broker(server.bootstrap, {_LIMIT: str(sys.float_info.max)})


def _filled_topic(
    case: Case, subject: str, server: ServerProcess, config: Mapping[str, str] | None = None
) -> str:
    """Write all records, and wait until they are on the disk."""
    topic = create_topic(subject, server.bootstrap, 1, config={**_KEPT_AWAY, **(config or {})})
    _fill(case, server, topic, case.records)
    os.sync()
    wait(_SETTLE_S)
    return topic


def _fill(case: Case, server: ServerProcess, topic: str, records: int) -> None:
    words = ["--records", str(records), "--record-bytes", str(case.record_bytes)]
    words += ["--duplicates-percent", str(case.duplicates_percent)]
    clients.program("keyed_load", server.bootstrap, topic, *words)


def _compact(server: ServerProcess, topic: str) -> tuple[float, float]:
    """Let kledger compact a topic; return when that began and ended."""
    assert isinstance(server, KledgerServer)
    with clients.running_program(
        "compact_topic", "--native", server.native_address, "--topic", topic
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        wait(_SETTLE_S)
        times = clients.answer(program, "", timeout_s=_TIMEOUT_S)
    return times["begin_s"], times["end_s"]


def _compact_by_kafka(server: ServerProcess, topic: str) -> tuple[float, float]:
    """Let Apache Kafka's cleaner do it; return when that began and ended.

    The last segment is never cleaned: one more record begins another one.
    """
    alter_topic(server.bootstrap, topic, {"segment.ms": "1"})
    producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 3})
    producer.produce(topic, b"", key=b"of the next segment", partition=0)
    producer.flush(_TIMEOUT_S)
    wait(_SETTLE_S)
    begin_s = time.monotonic()
    alter_topic(server.bootstrap, topic, {"min.cleanable.dirty.ratio": "0"})
    checkpoint = server.data_folder / "cleaner-offset-checkpoint"
    while not _is_clean(checkpoint, topic):
        if time.monotonic() - begin_s > _TIMEOUT_S:
            raise clients.ClientFailed(f"{topic} was not cleaned: {server.log_tail()}")
        wait(_LOOK_S)
    return begin_s, time.monotonic()


def _is_clean(checkpoint: Path, topic: str) -> bool:
    """Return whether the cleaner has noted an offset of partition 0."""
    return checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text()


def _cpu_with_children(server: ServerProcess) -> float:
    """Return the CPU seconds of a server and of its children that have ended."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return server.cpu_seconds() + sum(map(int, fields[13:15])) / _TICKS_PER_S
