"""Profiles: where the server's time goes under a load, by functions of its own.

Rule: sampling from outside (py-spy), with nothing in the server; figures of a profiled run are
thrown away.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.cases import CASES, FSYNC, OS
from benchmarks.shared_cases import consume, filled_topic, produce, request
from benchmarks.testbed import Testbed
from compat_tests.servers.process import die_with_parent

_SAMPLES_PER_S = 250
_LOADS = (("produce-1k", OS), ("produce-1k", FSYNC), ("request-100b", OS), ("consume-1k", OS))
_ROWS = 12
# Threads that wait for work look busy to the profiler; nothing else ends in these frames.
_WAITING = {"futures/thread.py _worker", "ledger/commits/committer.py CommitThread._run"}
_LOOP = "asyncio/runners.py Runner.run"
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^():]+)(?::\d+)?\)$")
_STOP_TIMEOUT_S = 20


def profile_all(testbed: Testbed, folder: Path) -> dict[str, list[tuple[str, float]]]:
    """Profile kledger under the loads that matter most; give name -> (function, share)."""
    return {
        f"{name}, {subject}": _profile(name, subject, testbed, folder) for name, subject in _LOADS
    }


def _profile(name: str, subject: str, testbed: Testbed, folder: Path) -> list[tuple[str, float]]:
    """Run one load under the profiler."""
    case = next(case for case in CASES if case.name == name)
    stacks = folder / f"{name}-{subject.replace(' ', '-')}.stacks"
    if case.kind == "consume":
        with filled_topic(case, subject, testbed) as topic:
            profiler = _start(testbed.server(subject).pid, stacks)
            for _ in range(4):
                consume(case, subject, testbed, topic)
            _stop(profiler)
    else:
        profiler = _start(testbed.server(subject).pid, stacks)
        (produce if case.kind == "produce" else request)(case, subject, testbed)
        _stop(profiler)
    return own_time(stacks.read_text()) if stacks.exists() else []


def _start(pid: int, stacks: Path) -> subprocess.Popen[bytes]:
    """Attach the profiler to a process."""
    program = str(Path(sys.executable).parent / "py-spy")
    words = ["record", "--pid", str(pid), "--format", "raw", "--output", str(stacks)]
    return subprocess.Popen(
        [program, *words, "--rate", str(_SAMPLES_PER_S), "--duration", "unlimited"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
    )


def _stop(profiler: subprocess.Popen[bytes]) -> None:
    """Let the profiler write what it has."""
    profiler.send_signal(2)
    try:
        profiler.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        profiler.kill()
        profiler.wait()


def own_time(stacks: str) -> list[tuple[str, float]]:
    """Add up collapsed stacks by the innermost function; give the largest shares of the whole.

    Args:
        stacks: lines of `frame;frame;... COUNT`, outermost first.
    """
    counts: Counter[str] = Counter()
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        if frames and count.isdigit():
            counts[_place(frames.rpartition(";")[2])] += int(count)
    for waiting in _WAITING:
        counts.pop(waiting, None)
    whole = sum(counts.values())
    return [(place, count / whole) for place, count in counts.most_common(_ROWS)]


def _place(frame: str) -> str:
    """Name a frame by its file and function, without the line."""
    found = _FRAME.match(frame)
    if found is None:
        return frame
    place = f"{'/'.join(Path(found['file']).parts[-2:])} {found['function']}"
    return "the event loop itself: sockets, polling" if place == _LOOP else place
