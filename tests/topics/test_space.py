"""What retention and deletion take away is given back to the disk, next to topics that stay."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.testing import FaultyEngine
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS, batch
from tests.topics.words import TopicStore, all_values, append, open_topics

FILE_BYTES = 200_000
HOUR_MS = 3_600_000
VALUE_BYTES = 4_000
EXPIRING = {"retention.ms": str(HOUR_MS), "internal.segment.bytes": "60000"}
OLD = {"retention.bytes": "-1"}
BOUNDED = {"retention.bytes": "10000", "internal.segment.bytes": "30000"}


def log_bytes(folder: Path) -> int:
    """Return what the sealed files of the log take."""
    size = 0
    for path in sorted((folder / "log").iterdir())[:-1]:
        with suppress(FileNotFoundError):  # a checkpoint took it meanwhile
            size += path.stat().st_size
    return size


async def until(at: TopicStore, is_done: Callable[[], bool]) -> None:
    """Let time pass, a millisecond at a time."""
    async with asyncio.timeout(60):
        while not is_done():
            at.clock.advance(1)
            await at.store.run_blocking(int)
            await asyncio.sleep(0)


def value(number: int) -> bytes:
    return b"%08d" % number * (VALUE_BYTES // 8)


async def fill(logs: list[PartitionLog], count: int) -> None:
    """Append to each one after the other, so that every log file has some of each."""
    for number in range(count):
        for log in logs:
            assert (await append(log, batch(value(number), timestamp=NOW_MS))).error is None


@pytest.mark.parametrize("how", ["retention.ms", "retention.bytes", "delete_records", "delete"])
async def test_space_of_what_went_is_given_back(tmp_path: Path, how: str) -> None:
    """Every way in which records of Kafka go; one topic of eight keeps all of its own."""
    configs = {"retention.ms": EXPIRING, "retention.bytes": BOUNDED}.get(how, BOUNDED | OLD)
    inner = LogRocksdbEngine(tmp_path, file_bytes_max=FILE_BYTES, durability="os")
    async with open_topics(FaultyEngine(inner)) as at:
        kept = await at.log("kept", {"retention.ms": "-1"})
        going = [await at.log(f"going-{number}", configs) for number in range(7)]
        await fill([kept, *going], 40)
        full = log_bytes(tmp_path)
        assert full > 5 * FILE_BYTES

        at.clock.advance(2 * HOUR_MS)
        if how.startswith("retention"):
            await at.registry.enforce_retention()
        for log in going:
            if how == "delete_records":
                await log.delete_records(log.high_watermark)
            elif how == "delete":
                await at.registry.delete(log.topic)
        await until(at, lambda: log_bytes(tmp_path) < full // 2)
        assert [value(number) for number in range(40)] == await all_values(kept)
    inner.close()
