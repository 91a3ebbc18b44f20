"""Load on the ledger itself, in this process: adds, reads from memory, reads from the files.

Rule: no network and no Kafka; entries as large as an ordinary record batch and as small as one
record. What is timed is CPU of the whole process, threads included, and time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.programs.command_line import Durability
from kledger.ledger import EARLIEST, LedgerStore, ManagedLedger, Position, StoreConfig

_ADDS_UNDER_WAY = 16
_READ_ENTRIES = 64
_READ_BYTES = 1 << 20
_CACHE_BYTES = 64 << 20


async def add(ml: ManagedLedger, data: bytes, count: int) -> None:
    """Append entries, some at a time."""

    async def some(number: int) -> None:
        for _ in range(number):
            await ml.add_entry(data)

    await asyncio.gather(*[some(count // _ADDS_UNDER_WAY) for _ in range(_ADDS_UNDER_WAY)])


async def read(ml: ManagedLedger) -> None:
    """Read everything from the beginning, without a cursor."""
    place: Position = EARLIEST
    while entries := await ml.read_entries(place, _READ_ENTRIES, bytes_max=_READ_BYTES):
        place = entries[-1].position.successor


async def timed(work: Callable[[], Awaitable[None]], count: int) -> dict[str, float]:
    """Do the work on `count` entries; microseconds for each."""
    cpu, begun = time.process_time(), time.perf_counter()
    await work()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"us": seconds * 1e6 / count, "cpu_us": cpu * 1e6 / count}


async def measure(
    folder: Path, durability: Durability, entry_bytes: int, entries: int
) -> dict[str, float]:
    """Add, read from memory, open again without a cache and read from the files."""
    figures: dict[str, float] = {}
    data = os.urandom(entry_bytes)

    async def during(name: str, ml: ManagedLedger, work: Callable[[], Awaitable[None]]) -> None:
        count = ml.number_of_entries(EARLIEST, ml.last_confirmed_entry) or entries
        figures.update({f"{name}_{key}": each for key, each in (await timed(work, count)).items()})

    config = StoreConfig(durability=durability, cache_bytes=_CACHE_BYTES)
    async with LedgerStore.open(folder, config=config) as store:
        ml = await store.open_managed_ledger("load")
        await during("add", ml, lambda: add(ml, data, entries))
        await during("tail_read", ml, lambda: read(ml))
    cold = StoreConfig(durability=durability, cache_bytes=0)
    async with LedgerStore.open(folder, config=cold) as store:
        ml = await store.open_managed_ledger("load")
        await during("cold_read", ml, lambda: read(ml))
    return figures


def main() -> None:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability", choices=["fsync", "os"], required=True)
    parser.add_argument("--entry-bytes", type=int, required=True)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--data", default=None, help="which disk is measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        figures = asyncio.run(
            measure(Path(folder), arguments.durability, arguments.entry_bytes, arguments.entries)
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
