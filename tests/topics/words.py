"""Words for tests of partitions: a store in memory, a topic in it, appends that are awaited."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kledger.batches.errors import BatchError
from kledger.batches.reader import iterate_batches, iterate_records
from kledger.batches.validation import check_records
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.entropy import SeededEntropy
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.errors import TopicsError
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.record_walk import RecordWalk, WalkNeeded, WalkResult
from kledger.topics.partition.results import AppendResult, ReadResult
from kledger.topics.registry import TopicRegistry
from tests.batches.words import NOW_MS
from tests.topics.tier_words import MemoryFolders

SMALL_SEGMENTS = {"internal.segment.bytes": "400"}


class CountingEngine(MemoryEngine):
    """Counts the rows and the entries that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.rows_touched = 0
        self.entries_read = 0
        self.reads = 0
        self.scanned_in: set[threading.Thread] = set()

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        rows = super().scan(start, end, reverse=reverse, limit=limit)
        self.rows_touched += max(1, len(rows))
        self.scanned_in.add(threading.current_thread())
        return rows

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        entries = super().read(ledger_id, first_entry, last_entry, bytes_max)
        self.reads += 1
        self.entries_read += len(entries)
        return entries


@dataclass
class CleanerSettings:
    """Settings of a cleaner."""

    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_threads: int = 1
    log_cleaner_io_max_bytes_per_second: float = math.inf
    log_cleaner_slow_bytes_per_second: int = 1 << 40
    log_cleaner_slow_burst_bytes: int = 0
    log_cleaner_dedupe_buffer_size: int = 1 << 20


@dataclass
class TopicStore:
    """A store on an engine that can fail, with the topics in it."""

    engine: MemoryEngine | FaultyEngine
    clock: ManualClock
    store: LedgerStore
    registry: TopicRegistry

    async def log(
        self, topic: str = "orders", configs: Mapping[str, str] | None = None
    ) -> PartitionLog:
        """The only partition of a topic, made if it is missing."""
        found = self.registry.get(topic) or await self.registry.create(
            topic, partitions=1, configs=configs
        )
        return await found.open_partition(0)


@asynccontextmanager
async def open_topics(
    engine: MemoryEngine | FaultyEngine | None = None,
    *,
    now_ms: int = NOW_MS,
    defaults: TopicDefaults | None = None,
    store_config: StoreConfig | None = None,
    is_closed_cleanly: bool = True,
    threads: StoreThreads | None = None,
    tier: MemoryFolders | None = None,
    leader_epoch: int = 0,
) -> AsyncIterator[TopicStore]:
    """Open everything; the engine outlives it and can serve the next one."""
    engine = engine or MemoryEngine()
    clock = ManualClock(now_ms)
    config = store_config or StoreConfig(durability="os")
    async with LedgerStore.open(
        None, config=config, clock=clock, engine=engine, threads=threads, offloaders=tier
    ) as store:
        registry = await TopicRegistry.open(
            store, defaults, clock, SeededEntropy(1), tier, leader_epoch=leader_epoch
        )
        yield TopicStore(engine, clock, store, registry)
        if is_closed_cleanly:
            await registry.close()


def walked_here(walk: RecordWalk) -> WalkResult:
    """Check every record in this thread, however many there are."""
    rules = walk.config.record_rules(walk.now_ms)
    try:
        return WalkResult(walk.config, check_records(walk.batch, walk.header, rules))
    except BatchError as error:
        return WalkResult(walk.config, error=error)


def submit(log: PartitionLog, batch: bytes | bytearray) -> asyncio.Future[AppendResult]:
    """Append one batch; the future has the answer, possibly at once."""
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    try:
        answer = log.append_nowait(memoryview(bytearray(batch)), future.set_result)
    except WalkNeeded as needed:
        walked = walked_here(needed.walk)
        answer = log.append_nowait(memoryview(bytearray(batch)), future.set_result, walked=walked)
    if answer is not None:
        future.set_result(answer)
    return future


async def append(log: PartitionLog, batch: bytes | bytearray) -> AppendResult:
    """Append one batch and wait for the answer."""
    return await submit(log, batch)


def outcome(result: AppendResult) -> int | type[TopicsError]:
    """The base offset, or the kind of error."""
    return result.base_offset if result.error is None else type(result.error)


def offsets(result: ReadResult) -> list[int]:
    """Offsets of all records that were read."""
    assert result.error is None, result.error
    assert result.size == sum(len(chunk) for chunk in result.chunks)
    return [record.offset for chunk in result.chunks for record in iterate_records(chunk)]


def values(result: ReadResult) -> list[bytes | None]:
    """Values of all records that were read."""
    assert result.error is None, result.error
    return [record.value for chunk in result.chunks for record in iterate_records(chunk)]


async def all_values(log: PartitionLog) -> list[bytes | None]:
    """Values of everything that can be read, in order, read batch by batch."""
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        result = await log.read(offset, 1)
        data = b"".join(result.chunks)
        for header, batch in iterate_batches(data):
            found += [r.value for r in iterate_records(batch) if r.offset >= offset]
            offset = header.last_offset + 1
    return found
