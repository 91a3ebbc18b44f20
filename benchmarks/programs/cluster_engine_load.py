"""Load on a ledger store without a disk, in this process, beside the same on disk with fsync.

Rule: no network but that of the object store, and no Kafka; entries as large as a record batch of
16 KiB, in eight managed ledgers, many under way. The database is a model in memory: its client
takes 0.1 ms a group, which is not counted. What is timed is CPU of the whole process, threads
included, and time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from compat_tests.servers.s3_servers import VersityGateway
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.cluster.cluster_engine import ClusterEngine
from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.database import SessionBroker
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.wal_objects import StoredWalObjects
from kledger.ledger.engine.base import StorageEngine
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.offload.object_store import ObjectStore
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import boot_ms
from kledger.runtime.loop_thread import LoopThread

_LEDGERS = 8
_CACHE_BYTES = 64 << 20
_BUCKET = "cluster"


@contextmanager
def cluster_engine(url: str, options: Mapping[str, object]) -> Iterator[ClusterEngine]:
    """Own a new cluster over an object store."""
    database = MemoryDatabase()
    database.create(cluster_id="load", store=url)
    session = database.begin_session(SessionBroker(1))
    acquired = database.acquire(session)
    assert acquired is not None, "a new cluster has no owner"
    stream = CommitStream(database, session, acquired, acquired_at_ms=boot_ms(), now_ms=boot_ms)
    loop, pool = LoopThread("objects"), BlockingPool()
    loop.start()
    objects = StoredWalObjects(ObjectStore(url, options, pool=pool), loop)
    incarnation = UUID(database.describe().incarnation)
    engine = ClusterEngine(database, stream, objects, incarnation=incarnation, now_ms=boot_ms)
    engine.start_upkeep()
    try:
        yield engine
    finally:
        engine.close()
        objects.close()
        pool.close()


class Work(NamedTuple):
    """What is appended: entries of so many bytes, some of them at a time."""

    entry_bytes: int
    entries: int
    under_way: int


async def load(engine: StorageEngine, work: Work) -> dict[str, float]:
    """Append entries, and wait for all."""
    entry_bytes, entries, under_way = work
    data = os.urandom(entry_bytes)
    latencies: list[float] = []
    config = StoreConfig(durability="fsync", cache_bytes=_CACHE_BYTES)
    async with LedgerStore.open(None, config=config, engine=engine) as store:
        ledgers = [await store.open_managed_ledger(f"load-{each}") for each in range(_LEDGERS)]

        async def some(number: int) -> None:
            for _ in range(entries // under_way):
                begun = time.perf_counter()
                await ledgers[number % _LEDGERS].add_entry(data)
                latencies.append(time.perf_counter() - begun)

        cpu, begun = time.process_time(), time.perf_counter()
        await asyncio.gather(*map(some, range(under_way)))
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    megabytes = len(latencies) * entry_bytes / 1e6
    latencies.sort()
    return {
        "mb_per_s": megabytes / seconds,
        "cpu_ms_per_mb": cpu * 1e3 / megabytes,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
    }


def on_disk(folder: Path, work: Work) -> dict[str, float]:
    """Measure the engine of a folder."""
    engine = LogRocksdbEngine(folder)
    try:
        return asyncio.run(load(engine, work))
    finally:
        engine.close()


def in_cluster(url: str, options: Mapping[str, object], work: Work) -> dict[str, float]:
    """Measure the engine without a disk."""
    with cluster_engine(url, options) as engine:
        return asyncio.run(load(engine, work))


def main() -> None:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability", choices=["fsync"], required=True)
    parser.add_argument("--entry-bytes", type=int, required=True)
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--under-way", type=int, default=1024)
    parser.add_argument("--data", default=None, help="which disk is measured")
    given = parser.parse_args()
    work = Work(given.entry_bytes, given.entries, given.under_way)
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(dir=given.data)))
        server = exits.enter_context(VersityGateway(folder / "s3"))
        server.make_bucket(_BUCKET)
        options = {**server.options, "unsigned_payload": True}
        disk = on_disk(folder / "disk", work)
        cluster = in_cluster(f"s3://{_BUCKET}/prefix", options, work)
    figures = {f"disk_{name}": figure for name, figure in disk.items()} | cluster
    figures["cpu_ratio"] = cluster["cpu_ms_per_mb"] / disk["cpu_ms_per_mb"]
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
