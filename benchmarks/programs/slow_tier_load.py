"""Other work beside readers of a tier that is slow, or that never answers; in this process.

Rule: what is compared is the same work in the same store: alone, beside readers of a tier that
answers after two seconds, and of one that hangs. The readers have as many reads under way as the
store lets through, and more of them wait. Page caches are emptied before each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import TypeVar
from uuid import UUID

from benchmarks.own_server_cases import forget_pages
from benchmarks.programs.command_line import Durability
from kledger.ledger import (
    LedgerError,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    OffloadPolicies,
    Position,
    StoreConfig,
    TieredLedger,
)
from kledger.ledger.testing import MemoryTier

Figures = dict[str, float]
R = TypeVar("R")

_SLOW_S = 2.0
_READERS = 24
"""More than the store reads from tiers at once."""
_LEDGER_BYTES = 4 << 20
_CACHE_BYTES = 1 << 20
_WORK = ("append", "tail_read", "primary_read")


class SlowLedger:
    """A copy in memory that is read after a delay."""

    def __init__(self, copy: TieredLedger, tier: SlowTier) -> None:
        self._copy, self._tier = copy, tier

    @property
    def entries(self) -> int:
        """See `TieredLedger`."""
        return self._copy.entries

    async def read(
        self, first: int, *, end: int, bytes_max: int
    ) -> Sequence[bytes | bytearray | memoryview]:
        """Wait, then read."""
        await self._tier.wait()
        return await self._copy.read(first, end=end, bytes_max=bytes_max)

    async def close(self) -> None:
        """Close the copy."""
        await self._copy.close()


class SlowTier:
    """A tier in memory.

    Attributes:
        name: of the kind of tier.
        location: of its copies.
        offload: as of the tier in memory.
        delete: likewise.
        delay_s: how long a read takes; None: for ever.
    """

    def __init__(self) -> None:
        self._tier = MemoryTier()
        self.name, self.location = self._tier.name, self._tier.location
        self.offload, self.delete = self._tier.offload, self._tier.delete
        self.delay_s: float | None = 0.0

    async def open(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> TieredLedger:
        """Open a copy; its reads are slow."""
        return SlowLedger(await self._tier.open(ledger_id, attempt, location), self)

    async def wait(self) -> None:
        """Wait as long as a read takes."""
        if self.delay_s is None:
            await asyncio.get_running_loop().create_future()
        else:
            await asyncio.sleep(self.delay_s)


async def _filled(store: LedgerStore, name: str, tier: SlowTier, entry: bytes) -> ManagedLedger:
    """Return a managed ledger with some closed ledgers."""
    config = ManagedLedgerConfig(
        max_bytes_per_ledger=_LEDGER_BYTES, offload=OffloadPolicies(driver=tier)
    )
    ml = await store.open_managed_ledger(name, config=config)
    count = 4 * _LEDGER_BYTES // len(entry)
    await asyncio.gather(*(ml.add_entry(entry) for _ in range(count)))
    return ml


def _positions(ml: ManagedLedger) -> list[Position]:
    return [
        Position(info.ledger_id, entry_id)
        for info in ml.ledgers
        if info.closed_ms is not None
        for entry_id in range(info.entries)
    ]


async def _read_for_ever(ml: ManagedLedger, seed: int) -> None:
    """Read entries one after the other; a refused or late read is followed by the next one."""
    positions, choice = _positions(ml), random.Random(seed)
    while True:
        with suppress(LedgerError):
            await ml.read_entries(choice.choice(positions), 1)
        await asyncio.sleep(0)


async def _other_work(
    ml: ManagedLedger, entry: bytes, operations: int, choice: random.Random
) -> Figures:
    """Append, read what was appended, and read from the files of the primary copy, in turn."""
    times: dict[str, list[float]] = {name: [] for name in _WORK}
    positions = choice.choices(_positions(ml), k=operations)

    async def timed(name: str, work: Awaitable[R]) -> R:
        begun = time.perf_counter()
        result = await work
        times[name].append((time.perf_counter() - begun) * 1e3)
        return result

    for position in positions:
        last = await timed("append", ml.add_entry(entry))
        await timed("tail_read", ml.read_entries(last, 1))
        await timed("primary_read", ml.read_entries(position, 1))
    return {
        f"{name}_{share}_ms": quantiles(found, n=100)[rank]
        for name, found in times.items()
        for share, rank in (("p50", 49), ("p99", 98))
    }


async def _beside_readers(
    cold: ManagedLedger, ml: ManagedLedger, entry: bytes, operations: int, choice: random.Random
) -> Figures:
    reading = [asyncio.ensure_future(_read_for_ever(cold, seed)) for seed in range(_READERS)]
    try:
        return await _other_work(ml, entry, operations, choice)
    finally:
        for each in reading:
            each.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def measure(
    folder: Path, durability: Durability, entry_bytes: int, operations: int
) -> Figures:
    """Measure the same work beside readers of each kind."""
    tier, entry = SlowTier(), os.urandom(entry_bytes)
    config = StoreConfig(durability=durability, cache_bytes=_CACHE_BYTES)
    async with LedgerStore.open(folder, config=config) as store:
        ml = await _filled(store, "work", tier, entry)
        cold = await _filled(store, "offloaded", tier, entry)
        await cold.offload_prefix(cold.last_confirmed_entry)
        offloaded = [info.ledger_id for info in cold.ledgers if info.offloaded]
        await cold.delete_primaries(offloaded)
        choice = random.Random(1)
        await _other_work(ml, entry, operations // 4, choice)  # a warm-up
        forget_pages(folder)
        alone = await _other_work(ml, entry, operations, choice)
        figures = {f"{name}_alone": each for name, each in alone.items()}
        for kind, delay_s in (("slow", _SLOW_S), ("hanging", None)):
            tier.delay_s = delay_s
            forget_pages(folder)
            found = await _beside_readers(cold, ml, entry, operations, choice)
            figures |= {f"{name}_{kind}": each for name, each in found.items()}
            figures |= {
                f"{name}_{kind}_ratio": found[f"{name}_p99_ms"] / alone[f"{name}_p99_ms"]
                for name in _WORK
            }
    return figures


def main() -> None:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability", choices=["fsync", "os"], required=True)
    parser.add_argument("--entry-bytes", type=int, required=True)
    parser.add_argument("--operations", type=int, required=True)
    parser.add_argument("--data", default=None, help="which disk is measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        work = measure(
            Path(folder), arguments.durability, arguments.entry_bytes, arguments.operations
        )
        print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
