"""Clients: run one of the load programs against a server and read what it measured.

Rule: each program is a process of its own, ended with the run; its cost never counts as the
server's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from compat_tests import peers
from compat_tests.servers.process import die_with_parent

PROGRAM_TIMEOUT_S = 180
# What the start script of the tools gives them.
_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-Djava.awt.headless=true")
_TOOLS = "org.apache.kafka.tools"
_WARM_UP_SHARE = 0.2
_MEBIBYTE = 1 << 20
_PRODUCED = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)")

Figures = dict[str, float]


class ClientFailed(RuntimeError):
    """A load program ended with an error; the message carries what it said."""


def produce(case: Case, bootstrap: str, topic: str) -> Figures:
    """Send the case's records; give seconds and records, or a rate."""
    if case.client == "java":
        return java_produce(case, bootstrap, topic)
    if case.client == "raw":
        return raw(case, bootstrap, topic, "--requests", str(case.records))
    return _python_load(case, "produce", bootstrap, topic)


def consume(case: Case, bootstrap: str, topic: str) -> Figures:
    """Read the case's records; give seconds and records, or a rate."""
    if case.client == "java":
        return java_consume(case, bootstrap, topic)
    return _python_load(case, "consume", bootstrap, topic, "--repeats", str(case.repeats))


def _python_load(case: Case, verb: str, bootstrap: str, topic: str, *more: str) -> Figures:
    name = "aiokafka_load" if case.client == "aiokafka" else "rdkafka_load"
    words = [verb, "--partitions", str(case.partitions), "--records", str(case.records)]
    words += ["--json"] if case.kind == "spark" else []
    return program(name, bootstrap, topic, *words, *_shape(case), "--codec", case.codec, *more)


def raw(case: Case, bootstrap: str, topic: str, *limit: str) -> Figures:
    """Keep requests under way on a bare socket."""
    flight = ("--in-flight", str(case.in_flight))
    return program("raw_load", bootstrap, topic, *flight, *limit, *_shape(case))


def latency(case: Case, bootstrap: str, topic: str) -> Figures:
    """Send at a steady rate and measure the way to the consumer."""
    return program("latency_load", bootstrap, topic, "--records", str(case.records), *_shape(case))


def _shape(case: Case) -> list[str]:
    return ["--record-bytes", str(case.record_bytes), "--acks", case.acks]


def program(name: str, bootstrap: str, topic: str, *words: str) -> Figures:
    """Run one of our own load programs against a server."""
    return own_program(name, *words, "--bootstrap", bootstrap, "--topic", topic)


def own_program(name: str, *words: str) -> Figures:
    """Run one of our own programs and read the line it prints."""
    said = run([sys.executable, "-m", f"benchmarks.programs.{name}", *words])
    found: Figures = json.loads(said.splitlines()[-1])
    return found


@contextmanager
def running_program(name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run one of our own programs, which reads lines from its standard input; kill it behind."""
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.programs.{name}", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
        cwd=peers.ROOT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(program: subprocess.Popen[str], line: str, *, timeout_s: float) -> Any:
    """Give a running program its line, and return what it prints at its end.

    Raises:
        ClientFailed: its status is not 0.
    """
    said, _ = program.communicate(f"{line}\n", timeout=timeout_s)
    if program.returncode:
        raise ClientFailed(f"status {program.returncode}: {program.args!r}")
    return json.loads(said.splitlines()[-1])


def java_produce(
    case: Case, bootstrap: str, topic: str, *, client_config: Path | None = None
) -> Figures:
    """Run ProducerPerformance; the rate is the one behind its warm-up."""
    said = run(peers.java_command(
        f"{_TOOLS}.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(case.records), "--record-size", str(case.record_bytes)),
        *("--warmup-records", str(int(case.records * _WARM_UP_SHARE))),
        *("--command-property", f"acks={case.acks}", "batch.size=65536", "linger.ms=5"),
        f"compression.type={case.codec}",
        *_configured(client_config),
        options=_JVM,
    ))  # fmt: skip
    return parse_produced(said) | {"records": case.records}


def parse_produced(said: str) -> Figures:
    """Read the last summary of ProducerPerformance; its MB are mebibytes."""
    found = _PRODUCED.findall(said)
    if not found:
        raise ClientFailed(f"ProducerPerformance printed no summary: {said[-500:]}")
    records_per_s, mebibytes_per_s = found[-1]
    return {
        "records_per_s": float(records_per_s),
        "mb_per_s": float(mebibytes_per_s) * _MEBIBYTE / 1e6,
    }


def java_consume(
    case: Case, bootstrap: str, topic: str, *, client_config: Path | None = None
) -> Figures:
    """Run ConsumerPerformance; the rate leaves out the time to join the group."""
    said = run(peers.java_command(
        f"{_TOOLS}.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--timeout", "60000"),
        *("--num-records", str(case.records), *_configured(client_config)),
        options=_JVM,
    ))  # fmt: skip
    return parse_consumed(said)


def _configured(client_config: Path | None) -> tuple[str, ...]:
    """Return what gives a tool a file of client properties."""
    return () if client_config is None else ("--command-config", str(client_config))


def parse_consumed(said: str) -> Figures:
    """Read the last line of ConsumerPerformance by the names in its first one."""
    lines = [line.split(", ") for line in said.splitlines() if line.count(", ") > 5]
    if len(lines) < 2:
        raise ClientFailed(f"ConsumerPerformance printed no summary: {said[-500:]}")
    found = dict(zip(lines[0], lines[-1], strict=True))
    return {
        "records": float(found["data.consumed.in.nMsg"]),
        "records_per_s": float(found["fetch.nMsg.sec"]),
        "mb_per_s": float(found["fetch.MB.sec"]) * _MEBIBYTE / 1e6,
    }


def run(command: list[str]) -> str:
    """Run a program to its end and give its standard output.

    Raises:
        ClientFailed: its status is not 0, or it took too long.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
        cwd=peers.ROOT,
    )
    try:
        said, complained = process.communicate(timeout=PROGRAM_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ClientFailed(f"more than {PROGRAM_TIMEOUT_S} s: {' '.join(command[-12:])}") from error
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise ClientFailed(f"status {process.returncode}: {said[-500:]} {complained[-1500:]}")
    return said
