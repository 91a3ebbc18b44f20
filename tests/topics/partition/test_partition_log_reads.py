"""Reading from memory and from storage."""

import asyncio

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import read_header
from kledger.batches.reader import iterate_records
from kledger.ledger import StoreConfig
from kledger.ledger.engine.errors import EntryCorrupt
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import OffsetOutOfRange, TopicStorageFailed
from kledger.topics.partition.partition_compaction import CompactionLimits
from kledger.topics.partition.partition_log import BYTES_UNKNOWN
from kledger.topics.partition.results import ReadResult
from tests.batches.words import batch
from tests.topics.words import SMALL_SEGMENTS, append, offsets, open_topics

SIZE = len(batch("x", "y"))


def found(result: ReadResult | None) -> list[int]:
    assert result is not None
    return offsets(result)


async def test_row_60_first_batch_comes_whole_and_others_within_the_limit() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        for _ in range(3):
            await append(log, batch("x", "y"))
        for size, count in ((1, 2), (SIZE, 2), (2 * SIZE - 1, 2), (2 * SIZE, 4), (9999, 6)):
            assert list(range(count)) == found(log.read_nowait(0, size))
        assert [] == found(log.read_nowait(0, SIZE - 1, first_batch_always=False))
        assert [0, 1] == found(log.read_nowait(0, SIZE, first_batch_always=False))


async def test_row_62_offset_inside_a_batch_gives_the_batch() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("a"))
        await append(log, batch("b", "c", "d"))
        assert [1, 2, 3] == found(log.read_nowait(2, 1))


async def test_row_64_edges() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        assert [] == found(log.read_nowait(0, 100))
        await append(log, batch("a", "b"))
        await log.delete_records(1)
        end = log.read_nowait(2, 100)
        assert end is not None
        assert ([], 0, 2, 2, 1) == end[1:]
        for offset in (3, 0, -1, 1 << 62):
            outside = log.read_nowait(offset, 100)
            assert outside is not None
            assert isinstance(outside.error, OffsetOutOfRange)
            assert ([], 0, -1, -1, -1) == outside[1:]


async def test_chunks_are_the_stored_buffers_themselves() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        sent = memoryview(batch("a"))
        answers: list[object] = []
        log.append_nowait(sent, answers.append)
        await append(log, batch("b"))
        result = log.read_nowait(0, 9999)
        assert result is not None
        assert result.chunks[0] is sent.obj


async def test_available_bytes_are_exact_in_the_tail() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for _ in range(3):
            await append(log, batch("x", "y"))
        assert [3 * SIZE, 3 * SIZE, 2 * SIZE, 0] == [
            log.available_bytes(o, 6) for o in (0, 1, 2, 6)
        ]
        assert [SIZE, SIZE, 2 * SIZE] == [log.available_bytes(0, upto) for upto in (1, 2, 3)]
        for _ in range(20):
            await append(log, batch("x", "y"))
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert BYTES_UNKNOWN == log.available_bytes(0, 6)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
async def test_cold_readers_go_on_by_hint(cache_bytes: int) -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"internal.segment.bytes": "3000"})
        for index in range(60):
            await append(log, batch(f"{index}", "x" * 50))
    async with open_topics(
        opened.engine, store_config=StoreConfig(durability="os", cache_bytes=cache_bytes)
    ) as again:
        log = await again.log()
        assert log.read_nowait(5, 100) is None
        offset, seen = 0, []
        while offset < 120:
            result = await log.read(offset, 500)
            seen += offsets(result)
            offset = seen[-1] + 1
        assert list(range(120)) == seen


async def test_a_cold_reader_needs_a_task_only_to_find_its_place() -> None:
    """A task for each fetch cost a tenth of the CPU of a consumer behind the entry cache."""
    cold = StoreConfig(durability="os", cache_bytes=0)
    async with open_topics(MemoryEngine(), store_config=cold) as opened:
        log = await opened.log(configs={"internal.segment.bytes": "3000"})
        for _ in range(60):
            await append(log, batch("x", "y"))
        assert [0, 1] == found(log.read_nowait(0, SIZE)), "the tail knows where it is"
        assert [2, 3, 4, 5] == found(log.read_nowait(2, 2 * SIZE))
        assert [4, 5] == found(log.read_nowait(5, SIZE))
    async with open_topics(opened.engine, store_config=cold) as again:
        log = await again.log()
        assert log.read_nowait(2, SIZE) is None
        assert [2, 3] == found(await log.read(2, SIZE))
        assert [4, 5, 6, 7] == found(log.read_nowait(4, 2 * SIZE)), "where the last read ended"
        assert [8, 9] == found(log.read_nowait(8, SIZE))


async def test_storage_that_fails_is_an_error_of_the_partition() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        await append(await opened.log(), batch("a"))
    async with open_topics(engine) as again:
        log = await again.log()
        engine.fail_next("read", EntryCorrupt(1, 0, "bad block"))
        assert isinstance((await log.read(0, 100)).error, TopicStorageFailed)
        result = await log.read(0, 100)
        assert [b"a"] == [r.value for chunk in result.chunks for r in iterate_records(chunk)]


async def test_row_77_log_start_that_moves_during_a_read_is_respected() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        for value in "abc":
            await append(log, batch(value))
    async with open_topics(engine) as again:
        log = await again.log()
        hold = engine.hold_next("read")
        reading = asyncio.ensure_future(log.read(0, 100))
        await hold.reached()
        await log.delete_records(2)
        hold.release()
        assert isinstance((await reading).error, OffsetOutOfRange)


async def test_row_78_a_removed_offset_gives_the_next_batch() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        for keys in ((b"k0", None, None), (None,) * 4, (None,) * 2, (b"k1",)):
            await append(log, build_batch([NewRecord(b"v", key=key) for key in keys]))
        await opened.registry.alter_configs("orders", {"cleanup.policy": "compact"})
        await log.compact(CompactionLimits())
        for offset, base in {0: 0, 2: 0, 3: 9, 8: 9, 9: 9}.items():
            result = await log.read(offset, 1)
            assert [base] == [read_header(chunk).base_offset for chunk in result.chunks]
