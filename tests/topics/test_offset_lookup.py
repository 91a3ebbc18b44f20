"""Searching by offset and by time in a stored log."""

import struct
import threading
from collections.abc import Iterator

import pytest

from batches.buffers import Buffer
from batches.builder import NewRecord, build_batch
from batches.header import refresh_checksum, set_max_timestamp
from batches.reader import RecordTime, iterate_times
from tests.batches.words import NOW_MS, batch
from tests.topics.words import append, house, offsets
from topics import offset_lookup
from topics.offset_lookup import ON_LOOP_RECORDS_MAX
from topics.partition_log import PartitionLog

T = NOW_MS


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
    async with house() as here:
        log = await here.log()
        if is_one_batch:
            await append(log, timed(2, 4, 6, 8, codec=codec))
        else:
            for each in (2, 4, 6, 8):
                await append(log, timed(each, codec=codec))
        assert [0, 0, 1, 1, 2, 2, 3, 3, None] == await asked(log, *range(1, 10))
        assert (T + 6, 2) == await log.offset_for_timestamp(T + 5)


@pytest.mark.parametrize(
    ("count", "codec", "in_thread"),
    [(ON_LOOP_RECORDS_MAX, 0, False), (ON_LOOP_RECORDS_MAX + 1, 0, True), (2, 4, True)],
)
async def test_large_and_compressed_batches_are_looked_into_in_a_thread(
    count: int, codec: int, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 small records take 75 ms, in which nobody else would be served."""
    threads: list[bool] = []

    def watched(batch: Buffer) -> Iterator[RecordTime]:
        threads.append(threading.current_thread() is not threading.main_thread())
        return iterate_times(batch)

    monkeypatch.setattr(offset_lookup, "iterate_times", watched)
    async with house() as here:
        log = await here.log()
        await append(log, timed(*range(count), codec=codec))
        assert [count - 1] == await asked(log, count - 1)
        assert (T + count - 1, count - 1) == await log.max_timestamp_offset()
        assert [in_thread, in_thread] == threads


async def test_header_that_understates_its_largest_time_is_believed() -> None:
    async with house() as here:
        log = await here.log()
        understating = timed(1, 5)
        set_max_timestamp(understating, T + 1)
        refresh_checksum(understating)
        await append(log, understating)
        await append(log, timed(9))
        assert [0, 2, 2] == await asked(log, 1, 5, 9)


async def test_row_73_times_out_of_order() -> None:
    async with house() as here:
        log = await here.log()
        await append(log, timed(5, 1, 9, 3, codec=2))
        await append(log, timed(4, 20))
        assert [0, 0, 2, 2, 5, 5, None] == await asked(log, 0, 5, 6, 9, 10, 20, 21)
        assert (T + 9, 2) == await log.offset_for_timestamp(T + 6)
        await log.delete_records(3)
        assert [3, 4, 5] == await asked(log, 0, 4, 5)


async def test_row_74_newest_time() -> None:
    async with house() as here:
        log = await here.log()
        assert await log.max_timestamp_offset() is None
        for times in ((1, 7, 3), (7, 2), (5,)):
            await append(log, timed(*times, codec=3))
        assert (T + 7, 1) == await log.max_timestamp_offset()
        await log.delete_records(2)
        assert (T + 7, 3) == await log.max_timestamp_offset()
        await log.delete_records(4)
        assert (T + 5, 5) == await log.max_timestamp_offset()


async def test_header_that_claims_too_new_a_time_is_not_believed() -> None:
    async with house() as here:
        log = await here.log()
        boasting = timed(1, 2)
        struct.pack_into(">q", boasting, 35, T + 1000)
        refresh_checksum(boasting)
        await append(log, boasting)
        await append(log, timed(50))
        assert [2, None] == await asked(log, 10, 51)
        assert (T + 50, 2) == await log.max_timestamp_offset()


async def test_batch_that_cannot_be_read_is_passed_over() -> None:
    async with house() as here:
        log = await here.log()
        broken = timed(1, codec=4)
        broken[61:65] = b"\xff\xff\xff\xff"
        refresh_checksum(broken)
        await append(log, broken)
        await append(log, timed(2))
        assert [1] == await asked(log, 0)


async def test_many_ledgers_and_intervals_after_a_restart() -> None:
    async with house(is_closed_well=False) as here:
        log = await here.log(configs={"internal.segment.bytes": "2000"})
        for each in range(100):
            await append(log, timed(each * 2, each * 2 + 1))
        live = await asked(log, *range(-1, 201, 7))
    async with house(here.engine) as again:
        log = await again.log()
        assert live == await asked(log, *range(-1, 201, 7))
        for offset in range(0, 200, 11):
            assert offset in offsets(await log.read(offset, 1))
        assert (T + 199, 199) == await log.max_timestamp_offset()


async def test_find_below_everything_is_the_beginning() -> None:
    async with house() as here:
        log = await here.log()
        await append(log, batch("a"))
        position = await log._reader._lookup.find(-5)
        assert 0 == position.entry_id
