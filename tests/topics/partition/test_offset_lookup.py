"""Searching by offset and by time in a stored log."""

import asyncio
import struct
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from kledger.batches import time_search
from kledger.batches.buffers import Buffer
from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import read_header, refresh_checksum, set_max_timestamp
from kledger.batches.pacing import Pause
from kledger.batches.reader import RecordTime, iterate_times
from kledger.ledger import StoreConfig
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import offset_index, partition_checkpointer
from kledger.topics.partition.index_rows import WALK_ROWS
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS, batch
from tests.runtime.dying_processes import DyingProcesses
from tests.runtime.held_pool import HeldPool
from tests.topics.words import SMALL_SEGMENTS, CountingEngine, append, offsets, open_topics, submit

T = NOW_MS
BATCH_BYTES = 69  # one record with a value of one byte
MANY_ROWS = {"internal.segment.bytes": str(4000 * BATCH_BYTES)}
"""With the smallest interval patched to two batches: a row for every two."""


def timed(*times: int, codec: int = 0) -> bytearray:
    return build_batch([NewRecord(b"v", timestamp=T + each) for each in times], codec=codec)


async def asked(log: PartitionLog, *times: int) -> list[int | None]:
    found = [await log.offset_for_timestamp(T + each) for each in times]
    return [each.offset if each else None for each in found]


@pytest.mark.parametrize("is_one_batch", [True, False])
@pytest.mark.parametrize("codec", [0, 4])
async def test_row_72_and_73_first_record_at_or_after_a_time(
    is_one_batch: bool, codec: int
) -> None:
    async with open_topics() as opened:
        log = await opened.log()
        if is_one_batch:
            await append(log, timed(2, 4, 6, 8, codec=codec))
        else:
            for each in (2, 4, 6, 8):
                await append(log, timed(each, codec=codec))
        assert [0, 0, 1, 1, 2, 2, 3, 3, None] == await asked(log, *range(1, 10))
        assert (T + 6, 2) == await log.offset_for_timestamp(T + 5)


@pytest.mark.parametrize(
    ("count", "codec", "is_long"),
    [(40, 0, False), (1000, 0, True), (2, 4, True)],
)
async def test_large_and_compressed_batches_are_not_searched_on_the_event_loop(
    count: int, codec: int, is_long: bool
) -> None:
    """10,000 small records take 75 ms, in which no other client would be served."""
    pool = HeldPool()
    pool.release()
    async with open_topics(threads=StoreThreads(compute_pool=lambda: pool)) as opened:
        log = await opened.log()
        await append(log, timed(*range(count), codec=codec))
        assert [count - 1] == await asked(log, count - 1)
        assert (T + count - 1, count - 1) == await log.max_timestamp_offset()
        assert 2 * is_long == len(pool.threads)
        assert threading.main_thread() not in pool.threads


async def test_a_search_whose_process_dies_can_be_retried() -> None:
    async with open_topics(
        threads=StoreThreads(compute_processes=lambda: DyingProcesses(1))
    ) as opened:
        log = await opened.log()
        await append(log, timed(1, 5, codec=4))
        with pytest.raises(TopicStorageFailed, match="records not read"):
            await log.offset_for_timestamp(T + 5)
        assert [1] == await asked(log, 5)


async def test_header_that_understates_its_largest_time_is_believed() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        understating = timed(1, 5)
        set_max_timestamp(understating, T + 1)
        refresh_checksum(understating)
        await append(log, understating)
        await append(log, timed(9))
        assert [0, 2, 2] == await asked(log, 1, 5, 9)


async def test_row_73_times_out_of_order() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, timed(5, 1, 9, 3, codec=2))
        await append(log, timed(4, 20))
        assert [0, 0, 2, 2, 5, 5, None] == await asked(log, 0, 5, 6, 9, 10, 20, 21)
        assert (T + 9, 2) == await log.offset_for_timestamp(T + 6)
        await log.delete_records(3)
        assert [3, 4, 5] == await asked(log, 0, 4, 5)


async def test_row_74_newest_time() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        assert await log.max_timestamp_offset() is None
        for times in ((1, 7, 3), (7, 2), (5,)):
            await append(log, timed(*times, codec=3))
        assert (T + 7, 1) == await log.max_timestamp_offset()
        await log.delete_records(2)
        assert (T + 7, 3) == await log.max_timestamp_offset()
        await log.delete_records(4)
        assert (T + 5, 5) == await log.max_timestamp_offset()


async def test_header_that_claims_too_new_a_time_is_not_believed() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        boasting = timed(1, 2)
        struct.pack_into(">q", boasting, 35, T + 1000)
        refresh_checksum(boasting)
        await append(log, boasting)
        await append(log, timed(50))
        assert [2, None] == await asked(log, 10, 51)
        assert (T + 50, 2) == await log.max_timestamp_offset()


async def test_batch_that_cannot_be_read_is_passed_over() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        broken = timed(1, codec=4)
        broken[61:65] = b"\xff\xff\xff\xff"
        refresh_checksum(broken)
        await append(log, broken)
        await append(log, timed(2))
        assert [1] == await asked(log, 0)


async def test_many_ledgers_and_intervals_after_a_restart() -> None:
    async with open_topics(is_closed_cleanly=False) as opened:
        log = await opened.log(configs={"internal.segment.bytes": "2000"})
        for each in range(100):
            await append(log, timed(each * 2, each * 2 + 1))
        live = await asked(log, *range(-1, 201, 7))
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert live == await asked(log, *range(-1, 201, 7))
        for offset in range(0, 200, 11):
            assert offset in offsets(await log.read(offset, 1))
        assert (T + 199, 199) == await log.max_timestamp_offset()


async def test_a_newer_record_before_the_log_start_hides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest time so far says nothing about later rows; they are read one by one."""
    monkeypatch.setattr(offset_index, "INTERVAL_BYTES_MIN", 2 * BATCH_BYTES)
    async with open_topics(is_closed_cleanly=False) as opened:
        log = await opened.log(configs=MANY_ROWS)
        for each in (0, 900, *range(2, 100)):
            await append(log, timed(each))
        assert [1, None] == await asked(log, 50, 901)
        await log.delete_records(10)
        live = await asked(log, 0, 50, 99, 100)
        assert [10, 50, 99, None] == live
        assert (T + 99, 99) == await log.max_timestamp_offset()
    async with open_topics(opened.engine) as again:
        log = await again.log()
        assert live == await asked(log, 0, 50, 99, 100)
        assert (T + 99, 99) == await log.max_timestamp_offset()


async def test_rows_that_are_missing_in_the_middle_are_made_up_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failed write of rows, and a crash before it is tried again, leave a gap for ever."""
    monkeypatch.setattr(offset_index, "INTERVAL_BYTES_MIN", 2 * BATCH_BYTES)
    async with open_topics(is_closed_cleanly=False) as opened:
        log = await opened.log(configs=MANY_ROWS)
        for each in range(60):
            await append(log, timed(each))
        await opened.store.flush()
        keys = PartitionKeys(log.topic_id, 0)
        rows = [key for key, _ in opened.store.scan_rows(keys.intervals)]
        assert 29 == len(rows)
        await opened.store.put_rows([(key, None) for key in rows[5:12] + rows[20:]])
    async with open_topics(opened.engine) as again:
        log = await again.log()
        for each in range(60):
            assert (T + each, each) == await log.offset_for_timestamp(T + each)
            assert each == (await log._lookup.find(each)).entry_id
        assert (T + 59, 59) == await log.max_timestamp_offset()


async def test_what_is_trimmed_during_a_search_is_not_its_answer() -> None:
    engine = FaultyEngine(None)
    config = StoreConfig(durability="os", cache_bytes=0)
    async with open_topics(engine, store_config=config) as opened:
        log = await opened.log(configs=SMALL_SEGMENTS)
        for each in range(20):
            await append(log, timed(each))
        for search in (partial(log.offset_for_timestamp, T), log.max_timestamp_offset):
            hold = engine.hold_next("read")
            searching = asyncio.ensure_future(search())
            await hold.reached()
            start = await log.delete_records(log.log_start_offset + 10)
            hold.release()
            found = await searching
            assert found is None or found.offset >= start
            assert (None if start == 20 else (T + start, start)) == found


async def test_an_entry_that_is_no_batch_is_an_error_of_the_storage() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, timed(1))
        await log._ledger.add_entry(b"hello")
        log._state.high_watermark += 1
        log._checkpointer.confirmed(log._ledger.last_confirmed_entry, 1, 2, 5, T + 9)
        with pytest.raises(TopicStorageFailed):
            await log.offset_for_timestamp(T + 2)


async def test_find_below_everything_is_the_beginning() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        await append(log, batch("a"))
        position = await log._lookup.find(-5)
        assert 0 == position.entry_id


@pytest.mark.parametrize("count", [10, 1000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_cost_of_a_look_up_does_not_grow_with_the_log(
    count: int, is_restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows read: two logarithms. Entries read: those of one interval. Batches opened: one."""
    walked: list[int] = []

    def watched(batch: Buffer, *, pause: Pause) -> Iterator[RecordTime]:
        walked.append(1)
        return iterate_times(batch, pause=pause)

    monkeypatch.setattr(time_search, "iterate_times", watched)
    monkeypatch.setattr(offset_index, "INTERVAL_BYTES_MIN", 20 * BATCH_BYTES)
    config = StoreConfig(durability="os", cache_bytes=0)
    engine = CountingEngine()
    async with open_topics(engine, store_config=config, is_closed_cleanly=False) as opened:
        log = await opened.log(configs={"internal.segment.bytes": str(40_000 * BATCH_BYTES)})
        await append_many(log, count)
        await opened.store.flush()
        if not is_restarted:
            await check_costs(log, engine, walked, count)
    if is_restarted:
        engine.entries_read = 0
        async with open_topics(engine, store_config=config) as again:
            log = await again.log()
            behind = min(count, partition_checkpointer.CHECKPOINT_ENTRIES_MIN + 25)
            assert engine.entries_read <= behind, "a start reads back to the last checkpoint"
            await check_costs(log, engine, walked, count)


async def append_many(log: PartitionLog, count: int) -> None:
    """Batches of one record, each a little newer than the one before."""
    for first in range(0, count, 1000):
        sent = [submit(log, timed(each * 10)) for each in range(first, min(count, first + 1000))]
        await asyncio.gather(*sent)


async def check_costs(
    log: PartitionLog, engine: CountingEngine, opened: list[int], count: int
) -> None:
    def forget() -> None:
        opened.clear()
        engine.rows_touched = engine.entries_read = 0

    def check() -> None:
        assert engine.rows_touched <= 2 * count.bit_length() + WALK_ROWS
        assert engine.entries_read <= 2 * 21
        assert 1 == len(opened)

    for wanted in {0, count // 3, count // 2, count - 2, count - 1}:
        forget()
        assert (T + wanted * 10, wanted) == await log.offset_for_timestamp(T + wanted * 10 - 9)
        check()
        forget()
        position = await log._lookup.find(wanted)
        assert wanted == read_header((await log._ledger.read_entry(position)).buffer).base_offset
        opened.append(1)
        check()
    forget()
    assert (T + (count - 1) * 10, count - 1) == await log.max_timestamp_offset()
    check()
    forget()
    assert await log.offset_for_timestamp(T + count * 10) is None
    assert (0, 0, []) == (engine.rows_touched, engine.entries_read, opened)
    await log.delete_records(count // 2)
    forget()
    assert (T + count // 2 * 10, count // 2) == await log.offset_for_timestamp(0)
    check()
