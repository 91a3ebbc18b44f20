"""What a commit costs: microseconds and MB/s of the engine on disk, for sizes and durabilities.

Rule: one thread, one group at a time, commit and index as the committer calls them; no other work.
Run: python -m benchmarks.engine_commit [folder]. The folder decides which disk is measured.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log_rocksdb import Durability, LogRocksdbEngine

SHAPES = (  # entries per group, bytes per entry, groups under os, groups under fsync
    (1, 100, 30_000, 2_000),
    (1, 4_096, 20_000, 2_000),
    (16, 1_000, 5_000, 2_000),
    (1, 65_536, 4_000, 1_000),
    (16, 65_536, 300, 200),
)


def measure(folder: Path, durability: Durability, entries: int, size: int, groups: int) -> str:
    """Commit groups of one shape; returns a row of the table."""
    engine = LogRocksdbEngine(folder, durability=durability)
    data = bytes(size)
    work = [
        CommitGroup(entries=[(1, number * entries + index, data) for index in range(entries)])
        for number in range(groups)
    ]
    commit, index, sync = engine.commit, engine.index, durability == "fsync"
    latencies = []
    cpu, began = cpu_seconds(), time.perf_counter()
    for group in work:
        start = time.perf_counter()
        commit(group, sync=sync)
        latencies.append(time.perf_counter() - start)
        index(group)
    wall, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    engine.close()
    latencies.sort()
    median, late = latencies[groups // 2], latencies[groups * 99 // 100]
    return (
        f"{durability:6} {entries:3} x {size:6} B  {cpu / groups * 1e6:8.1f} us cpu/commit  "
        f"p50 {median * 1e6:7.1f} us  p99 {late * 1e6:8.1f} us  "
        f"{entries * size * groups / wall / 1e6:8.1f} MB/s"
    )


def cpu_seconds() -> float:
    """Return what this process has used, system calls included."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for number, (entries, size, unsynced, synced) in enumerate(SHAPES):
            print(measure(Path(folder, f"os{number}"), "os", entries, size, unsynced))
            print(measure(Path(folder, f"fsync{number}"), "fsync", entries, size, synced))


if __name__ == "__main__":
    main()
