"""Load on a tier, in this process: ledgers are offloaded and read back, in order and at random.

Rule: no Kafka; the object store is a folder, or an S3 server of others on loopback. CPU is that of
this process, the threads of the library included, and not that of the S3 server. Each part opens
the store anew, with an empty page cache and nothing of the tier in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Literal

from benchmarks.own_server_cases import forget_pages
from benchmarks.programs.command_line import Durability
from compat_tests.servers.s3_servers import VersityGateway
from kledger.ledger import (
    EARLIEST,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    ObjectStoreTiers,
    OffloadPolicies,
    Position,
    ReadPriority,
    StoreConfig,
)

Figures = dict[str, float]
Tier = Literal["file", "s3"]

_MB = 1e6
_ADDS_UNDER_WAY = 16
_LEDGER_BYTES = 128 << 20
_READ_ENTRIES = 64
_READ_BYTES = 1 << 20
_RANDOM_READS = 200
_BUCKET = "benchmark"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLoad:
    """What is stored, where, and the tier."""

    folder: Path
    durability: Durability
    url: str
    options: dict[str, object]
    entry_bytes: int
    entries: int

    @property
    def payload_mb(self) -> float:
        """MB of all entries."""
        return self.entry_bytes * self.entries / _MB

    @asynccontextmanager
    async def opened(self, priority: ReadPriority = "tiered-first") -> AsyncIterator[ManagedLedger]:
        """Open the managed ledger, with nothing in memory."""
        forget_pages(self.folder)
        policies = OffloadPolicies(driver=self.url, read_priority=priority)
        config = ManagedLedgerConfig(max_bytes_per_ledger=_LEDGER_BYTES, offload=policies)
        store_config = StoreConfig(durability=self.durability, cache_bytes=0)
        tiers = ObjectStoreTiers(self.options)
        try:
            async with LedgerStore.open(
                self.folder / "data", config=store_config, offloaders=tiers
            ) as store:
                yield await store.open_managed_ledger("load", config=config)
        finally:
            await tiers.close()

    async def fill(self) -> None:
        """Append all entries, some at a time, and close the last ledger."""
        data = os.urandom(self.entry_bytes)

        async def some(ml: ManagedLedger) -> None:
            for _ in range(self.entries // _ADDS_UNDER_WAY):
                await ml.add_entry(data)

        async with self.opened() as ml:
            await asyncio.gather(*(some(ml) for _ in range(_ADDS_UNDER_WAY)))
            await ml.roll_over()

    async def offload(self) -> Figures:
        """Copy everything to the tier."""
        async with self.opened() as ml:
            return await self._timed(
                "offload", ml.offload_prefix(Position(ml.ledgers[-1].ledger_id, 0))
            )

    async def read_in_order(self, name: str, priority: ReadPriority) -> Figures:
        """Read everything from one copy."""
        async with self.opened(priority) as ml:
            figures = await self._timed(name, _read(ml))
            counts = ml.read_counts
            assert counts.tier == (self.entries if priority == "tiered-first" else 0), counts
            return figures

    async def read_at_random(self) -> Figures:
        """Read single entries; most are in blocks that are not in memory, unlike their indexes."""
        times = []
        async with self.opened() as ml:
            places = [
                Position(info.ledger_id, entry_id)
                for info in ml.ledgers
                for entry_id in range(info.entries)
            ]
            for place in random.Random(1).sample(places, _RANDOM_READS):
                begun = time.perf_counter()
                await ml.read_entries(place, 1)
                times.append((time.perf_counter() - begun) * 1e3)
        shares = quantiles(times, n=100)
        return {"random_p50_ms": shares[49], "random_p99_ms": shares[98]}

    async def _timed(self, name: str, work: Awaitable[object]) -> Figures:
        cpu, begun = time.process_time(), time.perf_counter()
        await work
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        return {
            f"{name}_mb_per_s": self.payload_mb / seconds,
            f"{name}_cpu_ms_per_mb": cpu * 1e3 / self.payload_mb,
        }


async def _read(ml: ManagedLedger) -> None:
    place: Position = EARLIEST
    while entries := await ml.read_entries(place, _READ_ENTRIES, bytes_max=_READ_BYTES):
        place = entries[-1].position.successor


async def measure(load: TierLoad) -> Figures:
    """Fill, offload, and read from either copy."""
    await load.fill()
    figures = await load.offload()
    figures |= await load.read_in_order("primary", "bookkeeper-first")
    figures |= await load.read_in_order("tier", "tiered-first")
    figures |= await load.read_at_random()
    return figures | {"tier_share": figures["tier_mb_per_s"] / figures["primary_mb_per_s"]}


def main() -> None:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability", choices=["fsync", "os"], required=True)
    parser.add_argument("--tier", choices=["file", "s3"], required=True)
    parser.add_argument("--entry-bytes", type=int, required=True)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--data", default=None, help="which disk is measured")
    arguments = parser.parse_args()
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(dir=arguments.data)))
        url, options = f"file://{folder}/tier", {}
        if arguments.tier == "s3":
            server = exits.enter_context(VersityGateway(folder / "s3"))
            server.make_bucket(_BUCKET)
            url, options = f"s3://{_BUCKET}/prefix", server.options
        load = TierLoad(
            folder=folder,
            durability=arguments.durability,
            url=url,
            options=options,
            entry_bytes=arguments.entry_bytes,
            entries=arguments.entries // _ADDS_UNDER_WAY * _ADDS_UNDER_WAY,
        )
        print(json.dumps(asyncio.run(measure(load))))


if __name__ == "__main__":
    main()
