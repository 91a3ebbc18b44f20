"""Where a log starts: after every kind of removal, while it is held, and after every restart."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import OffsetOutOfRange, TopicStorageFailed
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import NOW_MS, batch
from tests.topics.words import TopicStore, all_values, append, open_topics, outcome

SEGMENT_BYTES = 400
STEP_MS = 1000
COUNTS = (1, 3, 2, 1, 1, 2, 3, 1, 2, 2, 1, 1)
"""Records per batch."""


@dataclass
class Segment:
    """What the model knows of a ledger."""

    size: int = 0
    next_offset: int = 0
    max_timestamp: int = -1
    is_open: bool = True


def sent() -> Iterator[tuple[int, int, bytearray]]:
    """Yield base offset, time and data of every batch."""
    offset = 0
    for index, count in enumerate(COUNTS):
        time_ms = NOW_MS + index * STEP_MS
        values = [b"%d" % number + bytes(90) for number in range(offset, offset + count)]
        yield offset, time_ms, batch(*values, timestamp=time_ms)
        offset += count


def segments() -> list[Segment]:
    """Cut the batches into ledgers, as the limit of bytes says."""
    found = [Segment()]
    for offset, time_ms, data in sent():
        last = found[-1]
        last.size += len(data)
        last.next_offset = offset + COUNTS[(time_ms - NOW_MS) // STEP_MS]
        last.max_timestamp = time_ms
        if last.size >= SEGMENT_BYTES:
            last.is_open = False
            found.append(Segment())
    return found


def expected_start(retention_ms: int, retention_bytes: int, start: int, now_ms: int) -> int:
    """Say by Kafka's rule where the log starts; what has no records counts for nothing."""
    kept = [segment for segment in segments() if segment.size]
    while kept:
        first, remaining = kept[0], sum(segment.size for segment in kept[1:])
        is_before_start = first.next_offset <= start and not first.is_open
        is_old = retention_ms >= 0 and now_ms - first.max_timestamp > retention_ms
        is_too_much = 0 <= retention_bytes <= remaining
        if not (is_before_start or is_old or is_too_much):
            break
        start = max(start, first.next_offset)
        del kept[0]
    return start


async def filled(opened: TopicStore, **configs: str) -> PartitionLog:
    """Send all batches, each a second later than the one before."""
    texts = {name.replace("_", "."): text for name, text in configs.items()}
    limits = {"internal.segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1", **texts}
    log = await opened.log(configs=limits)
    for _, _, data in sent():
        await append(log, data)
        opened.clock.advance(STEP_MS)
    return log


async def check(log: PartitionLog, start: int) -> None:
    """Check what clients see of a log that begins there."""
    end = sum(COUNTS)
    assert (start, end) == (log.log_start_offset, log.high_watermark)
    assert [b"%d" % number + bytes(90) for number in range(start, end)] == await all_values(log)
    if start:
        assert isinstance((await log.read(start - 1, 100)).error, OffsetOutOfRange)
    found = await log.offset_for_timestamp(0)
    assert (found.offset if found else end) == start


ONE_LEDGER = segments()[0].size
TOTAL = sum(segment.size for segment in segments())
AGES = (-1, 0, 3 * STEP_MS, 8 * STEP_MS, 8 * STEP_MS - 1, 1 << 40)
SIZES = (-1, 0, 1, TOTAL - ONE_LEDGER, TOTAL - ONE_LEDGER + 1, 1 << 40)
STARTS = (0, 5, 9, sum(COUNTS))


def test_the_model_is_not_trivial() -> None:
    assert [False, False, False, True] == [segment.is_open for segment in segments()][-4:]
    now_ms = NOW_MS + len(COUNTS) * STEP_MS
    found = {expected_start(*each, now_ms) for each in product(AGES, SIZES, STARTS)}
    assert 6 <= len(found)


@pytest.mark.parametrize("is_closed_cleanly", [True, False])
async def test_every_age_size_and_log_start_before_and_after_a_restart(
    is_closed_cleanly: bool,
) -> None:
    for age, size, start in product(AGES, SIZES, STARTS):
        engine = MemoryEngine()
        configs = {"retention_ms": str(age), "retention_bytes": str(size)}
        async with open_topics(engine, is_closed_cleanly=is_closed_cleanly) as opened:
            log = await filled(opened, **configs)
            await log.delete_records(start)
            await check(log, start)
            await opened.registry.enforce_retention()
            expected = expected_start(age, size, start, opened.clock.now_ms())
            await check(log, expected)
        async with open_topics(engine, now_ms=NOW_MS, is_closed_cleanly=is_closed_cleanly) as again:
            log = await again.log()
            await check(log, expected)
            assert sum(COUNTS) == outcome(await append(log, batch("next")))


@pytest.mark.parametrize("policy", ["compact", ""])
async def test_without_delete_in_the_policy_nothing_goes_but_by_delete_records(
    policy: str,
) -> None:
    async with open_topics() as opened:
        configs = {"cleanup_policy": policy, "delete_retention_ms": "0", "retention_bytes": "0"}
        log = await filled(opened, retention_ms="0", **configs)
        await opened.registry.enforce_retention()
        await check(log, 0)
        before = log.size_bytes
        await log.delete_records(9)
        await check(log, 9)
        assert log.size_bytes < before


async def test_a_log_that_is_empty_for_good_keeps_its_end() -> None:
    engine = MemoryEngine()
    async with open_topics(engine) as opened:
        log = await filled(opened, retention_ms="0")
        await opened.registry.enforce_retention()
        await check(log, sum(COUNTS))
    for is_closed_cleanly in (False, True, False, True):
        async with open_topics(engine, is_closed_cleanly=is_closed_cleanly) as again:
            log = await again.log()
            await check(log, sum(COUNTS))
            await again.registry.enforce_retention()
            await check(log, sum(COUNTS))


async def test_the_open_ledger_follows_segment_ms_and_segment_bytes_at_once() -> None:
    async with open_topics() as opened:
        log = await opened.log(configs={"retention.ms": "5000"})
        await append(log, batch("a"))
        opened.clock.advance(3000)
        await append(log, batch("b", timestamp=NOW_MS + 3000))
        await opened.registry.alter_configs("orders", {"segment.ms": "2000"})
        await until_rolled(opened, log, 1)
        await append(log, batch("c", timestamp=NOW_MS + 3000))
        await opened.registry.alter_configs("orders", {"internal.segment.bytes": "100"})
        await append(log, batch("d", timestamp=NOW_MS + 3000))
        await until_rolled(opened, log, 2)
        opened.clock.advance(5000)
        await log.enforce_retention()
        assert 0 == log.log_start_offset, "exactly that old stays"
        opened.clock.advance(1)
        await log.enforce_retention()
        assert (4, 4) == (log.log_start_offset, log.high_watermark)


async def until_rolled(opened: TopicStore, log: PartitionLog, count: int) -> None:
    """Let the timer do what it is about to do, then expect so many closed ledgers."""
    for _ in range(5):
        await asyncio.sleep(0)
    await opened.store.flush()
    assert count == sum(info.closed_ms is not None for info in log._ledger.ledgers)


# Two at once


async def test_of_two_removals_at_once_the_higher_one_holds_after_a_restart() -> None:
    """The lower one was written last: the log start went back with the next restart."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await opened.log()
        await append(log, batch(*"abcdefghij"))
        hold = engine.hold_next("commit")
        higher = asyncio.ensure_future(log.delete_records(8))
        lower = asyncio.ensure_future(log.delete_records(5))
        await hold.reached()
        hold.release()
        assert (8, 8) == (await higher, await lower)
        assert 8 == log.log_start_offset
    async with open_topics(engine) as again:
        assert 8 == (await again.log()).log_start_offset


async def test_a_log_start_that_was_not_written_has_not_moved() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        log = await filled(opened)
        engine.fail_next("commit")
        with pytest.raises(TopicStorageFailed):
            await log.delete_records(9)
        await check(log, 0)
        assert 9 == await log.delete_records(9)
