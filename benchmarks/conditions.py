"""Conditions: on what a run was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from compat_tests import peers


def conditions(folder: Path, *, rounds: int, share: float) -> dict[str, str]:
    """Describe machine, programs and run; `folder` is where the servers keep their data."""
    cpu = Path("/proc/cpuinfo").read_text()
    memory = Path("/proc/meminfo").read_text()
    java = subprocess.run(
        [peers.program("java"), "-version"], capture_output=True, text=True, check=True
    )
    return {
        "CPU": f"{field(cpu, 'model name')}, {os.cpu_count()} cores",
        "memory": f"{int(field(memory, 'MemTotal').split()[0]) / (1 << 20):.0f} GiB",
        "kernel": platform.release(),
        "file system": file_system(folder.resolve(), Path("/proc/mounts").read_text()),
        "Python": platform.python_version(),
        "Java": java.stderr.splitlines()[0],
        "kledger": commit(),
        "Apache Kafka": f"{peers.KAFKA_VERSION}, one node, its own defaults, 1 GiB heap",
        "librdkafka client": importlib.metadata.version("confluent-kafka"),
        "aiokafka": importlib.metadata.version("aiokafka"),
        "rounds": f"median of {rounds}; one round where no range stands behind a figure"
        + (f", quick: {share:.0%} of the work" if share < 1 else ""),
    }


def field(text: str, name: str) -> str:
    """Read the first `name : value` line of a file of the kernel."""
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else "unknown"


def file_system(folder: Path, mounts: str) -> str:
    """Name the file system below a folder, from the kernel's list of mounts."""
    found, depth = "unknown", -1
    for line in mounts.splitlines():
        _device, point, kind, options, *_ = line.split()
        if folder.is_relative_to(point) and len(Path(point).parts) > depth:
            found, depth = f"{kind} ({options.split(',')[0]})", len(Path(point).parts)
    return found


def commit() -> str:
    """Name the version of the source that runs."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=peers.ROOT,
    )
    return done.stdout.strip() or "unknown"
