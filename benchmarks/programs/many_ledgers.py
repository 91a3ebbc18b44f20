"""Many managed ledgers: how long a store with them takes to open, and in what memory.

Rule: the store is filled by another process, so that what filling took is not in the memory that is
looked at. Every managed ledger has the same number of ledgers, all closed but the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.programs.command_line import Durability
from kledger.ledger import LedgerStore, ManagedLedger, ManagedLedgerConfig, StoreConfig

_AT_ONCE = 200
_ENTRY = b"x" * 100
_ENTRIES_PER_LEDGER = 2
_STATUS = Path("/proc/self/status")


def rss_mb() -> float:
    """Return the memory of this process."""
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024 / 1e6


def config(durability: Durability) -> StoreConfig:
    """Return the settings of the store."""
    return StoreConfig(durability=durability)


async def for_all(count: int, work: Callable[[int], Awaitable[object]]) -> None:
    """Do work for every number, some at a time."""
    for first in range(0, count, _AT_ONCE):
        await asyncio.gather(*map(work, range(first, min(first + _AT_ONCE, count))))


async def fill(folder: Path, managed_ledgers: int, ledgers: int) -> None:
    """Make them all."""
    segments = ManagedLedgerConfig(max_entries_per_ledger=_ENTRIES_PER_LEDGER)
    async with LedgerStore.open(folder, config=config("os")) as store:

        async def make(number: int) -> None:
            ml = await store.open_managed_ledger(f"ml-{number:06d}", config=segments)
            for _ in range(_ENTRIES_PER_LEDGER * ledgers - 1):
                await ml.add_entry(_ENTRY)
            await ml.close()

        await for_all(managed_ledgers, make)


async def measure(folder: Path, durability: Durability, managed_ledgers: int) -> dict[str, float]:
    """Open the store, then every managed ledger in it, and keep them all open."""
    before_mb = rss_mb()
    begun = time.perf_counter()
    store = await LedgerStore.open(folder, config=config(durability))
    opened_s = time.perf_counter() - begun
    opened_mb = rss_mb()
    handles: list[ManagedLedger] = []

    async def take(number: int) -> None:
        handles.append(await store.open_managed_ledger(f"ml-{number:06d}"))

    await for_all(managed_ledgers, take)
    all_s = time.perf_counter() - begun
    found = {
        "store_open_s": opened_s,
        "all_open_s": all_s,
        "store_rss_mb": opened_mb - before_mb,
        "rss_mb": rss_mb(),
        "ledgers": float(sum(len(handle.ledgers) for handle in handles)),
    }
    await store.close()
    return found


def main() -> None:
    """Fill and measure, or do the one part that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability", choices=["fsync", "os"], default="fsync")
    parser.add_argument("--managed-ledgers", type=int, required=True)
    parser.add_argument("--ledgers", type=int, required=True, help="in each of them")
    parser.add_argument("--data", default=None, help="which disk is measured")
    parser.add_argument("--fill", default=None, help="only make a store in this folder")
    arguments = parser.parse_args()
    if arguments.fill is not None:
        asyncio.run(fill(Path(arguments.fill), arguments.managed_ledgers, arguments.ledgers))
        return
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        program = [sys.executable, "-m", "benchmarks.programs.many_ledgers"]
        subprocess.run([*program, *sys.argv[1:], "--fill", folder], check=True)
        work = measure(Path(folder), arguments.durability, arguments.managed_ledgers)
        print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
