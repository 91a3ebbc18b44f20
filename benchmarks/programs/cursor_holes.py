"""Cursor holes: what a cursor costs that has acknowledged every second entry of a long log.

Rule: no two acknowledged entries are neighbours, so every one is a range of its own: nothing is
saved by their lying together. The process that recovers is not the one that acknowledged, and finds
the store as a kill leaves it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.programs.command_line import Durability
from benchmarks.programs.many_ledgers import rss_mb
from kledger.ledger import (
    EARLIEST,
    LATEST,
    Cursor,
    LedgerStore,
    ManagedLedger,
    Position,
    StoreConfig,
)

_ENTRY = b"x" * 10
_APPENDED_AT_ONCE = 2_000
_CALL = 1_000
"""Entries of one call, as of a consumer that acknowledges what it has collected."""
_SINGLES = 50
_CURSOR = "subscriber"


def config(durability: Durability, ranges_max: int) -> StoreConfig:
    """Return the settings of the store."""
    return StoreConfig(durability=durability, cursor_ranges_max=ranges_max)


async def fill(ml: ManagedLedger, entries: int) -> None:
    """Append them all."""
    for first in range(0, entries, _APPENDED_AT_ONCE):
        count = min(_APPENDED_AT_ONCE, entries - first)
        await asyncio.gather(*(ml.add_entry(_ENTRY) for _ in range(count)))


def every_second(ml: ManagedLedger) -> Iterator[Position]:
    """Give every second entry, from the second one on."""
    for info in ml.ledgers:
        for entry_id in range(1, info.entries, 2):
            yield Position(info.ledger_id, entry_id)


async def acknowledge(folder: Path, settings: StoreConfig, holes: int) -> dict[str, float]:
    """Make the holes, then a few more one by one."""
    store = await LedgerStore.open(folder, config=settings)
    ml = await store.open_managed_ledger("log")
    await fill(ml, 2 * holes)
    cursor = await ml.open_cursor(_CURSOR, initial=EARLIEST)
    places = list(every_second(ml))
    singles, places = places[-_SINGLES:], places[:-_SINGLES]
    before_mb, begun, cpu = rss_mb(), time.perf_counter(), time.process_time()
    for first in range(0, len(places), _CALL):
        await cursor.delete(places[first : first + _CALL])
    took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    holes_mb = rss_mb() - before_mb
    begun = time.perf_counter()
    for place in singles:
        await cursor.delete(place)
    return {
        "ack_us": took_s / len(places) * 1e6,
        "ack_cpu_us": cpu_s / len(places) * 1e6,
        "single_ack_ms": (time.perf_counter() - begun) / len(singles) * 1e3,
        "holes_mb": holes_mb,
        "holes": float(cursor.stats.hole_count),
    }


async def recover(folder: Path, settings: StoreConfig) -> dict[str, float]:
    """Open the store of the other process, and read the first unacknowledged entries."""
    store = await LedgerStore.open(folder, config=settings)
    begun = time.perf_counter()
    ml = await store.open_managed_ledger("log")
    opened_s = time.perf_counter() - begun
    cursor: Cursor = ml.cursors[_CURSOR]
    await cursor.read(100)
    found = {
        "cursor_open_s": opened_s,
        "first_read_s": time.perf_counter() - begun,
        "holes_kept": float(cursor.stats.hole_count),
        "redelivered": float(cursor.backlog - ml.number_of_entries(EARLIEST, LATEST) // 2),
    }
    await store.close()
    return found


def main() -> None:
    """Acknowledge in a process that ends without a word, and recover in this one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability", choices=["fsync", "os"], default="fsync")
    parser.add_argument("--holes", type=int, required=True)
    parser.add_argument("--ranges-max", type=int, required=True, help="how many are kept durably")
    parser.add_argument("--data", default=None, help="which disk is measured")
    parser.add_argument("--acknowledge", default=None, help="only do that, in this folder")
    arguments = parser.parse_args()
    settings = config(arguments.durability, arguments.ranges_max)
    if arguments.acknowledge is not None:
        found = asyncio.run(acknowledge(Path(arguments.acknowledge), settings, arguments.holes))
        print(json.dumps(found), flush=True)
        os._exit(0)  # no store is closed
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        program = [sys.executable, "-m", "benchmarks.programs.cursor_holes"]
        words = [*program, *sys.argv[1:], "--acknowledge", folder]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        recovered = asyncio.run(recover(Path(folder), settings))
        print(json.dumps(json.loads(done.stdout) | recovered))


if __name__ == "__main__":
    main()
