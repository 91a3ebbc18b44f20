"""Walks over records: which are done at once, what they find, what asks for one."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.errors import InvalidBatch, TimestampNotAllowed
from kledger.batches.header import BATCH_OVERHEAD, check
from kledger.runtime.blocking import InlinePool
from kledger.runtime.compute_pool import ComputePool
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.partition.long_walk import run_walk
from kledger.topics.partition.record_walk import (
    INLINE_BYTES_MAX,
    RecordWalk,
    WalkNeeded,
    walk_inline,
)
from tests.batches.words import NOW_MS
from tests.topics.partition.test_admission_plan import config
from tests.topics.words import open_topics

COMPACTED = config(cleanup_policy="compact")
HOUR_MS = 3_600_000


def walk(data: bytearray, rules: TopicConfig = COMPACTED) -> RecordWalk:
    return RecordWalk(memoryview(data), check(data), rules, NOW_MS)


def in_place() -> ComputePool:
    return ComputePool(InlinePool(), cost_per_tick_max=0)


def keyed(count: int, *, codec: int = 0) -> bytearray:
    return build_batch([NewRecord(b"v" * 50, b"k", NOW_MS)] * count, codec=codec)


@pytest.mark.parametrize("codec", range(5))
async def test_short_walk_is_done_at_once_and_finds_the_same_as_a_long_one(codec: int) -> None:
    good = walk(keyed(10, codec=codec))
    long = await run_walk(good, in_place())
    assert NOW_MS == long.largest_timestamp
    assert long == good.run_inline()
    bad = walk(build_batch([NewRecord(b"v")], codec=codec)).run_inline()
    assert bad is not None
    assert isinstance(bad.error, InvalidBatch)


@pytest.mark.parametrize("codec", range(5))
async def test_long_walk_is_not_inline_however_small_the_batch_is(codec: int) -> None:
    """Ten thousand equal records are some hundred bytes when compressed."""
    long = walk(keyed(10_000, codec=codec))
    assert long.run_inline() is None
    assert NOW_MS == (await run_walk(long, in_place())).largest_timestamp


def test_walks_of_one_tick_share_what_may_be_done_at_once() -> None:
    calls = ComputePool(InlinePool(), cost_per_tick_max=0)
    needed = WalkNeeded(walk(keyed(1)))
    with pytest.raises(WalkNeeded) as caught:
        walk_inline(needed, calls.fits_in_tick)
    assert needed is caught.value


async def test_cost_is_what_is_looked_at() -> None:
    data = keyed(3)
    assert len(data) - BATCH_OVERHEAD == walk(data).cost
    assert INLINE_BYTES_MAX == walk(keyed(3, codec=1)).cost


async def test_append_of_a_long_batch_asks_for_a_walk_and_takes_its_outcome() -> None:
    async with open_topics() as at:
        log = await at.log(configs={"cleanup.policy": "compact"})
        with pytest.raises(WalkNeeded) as needed:
            log.append_nowait(memoryview(keyed(1000)), lambda _: None)
        assert 0 == log.high_watermark
        walked = await run_walk(needed.value.walk, at.store.compute_pool)
        assert log.append_nowait(memoryview(keyed(1000)), lambda _: None, walked=walked) is None
        await at.store.flush()
        assert 1000 == log.high_watermark


async def test_append_of_a_long_batch_out_of_time_is_rejected_after_its_walk() -> None:
    async with open_topics() as at:
        log = await at.log()
        late = build_batch([NewRecord(b"v", timestamp=NOW_MS + 2 * HOUR_MS)] * 1000)
        with pytest.raises(WalkNeeded) as needed:
            log.append_nowait(memoryview(late), lambda _: None)
        walked = await run_walk(needed.value.walk, at.store.compute_pool)
        assert isinstance(walked.error, TimestampNotAllowed)
        result = log.append_nowait(memoryview(late), lambda _: None, walked=walked)
        assert result is not None
        assert "due to invalid timestamp: 1000 records" in str(result.error)
