"""How fast the compactions of a round go, beside others who use the store."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kledger.ledger.commits.idle_watch import IDLE_MS
from kledger.topics.compaction.cleaning_pace import ROUND_MS_MAX
from kledger.topics.errors import CompactionRunning
from kledger.topics.io_throttle import CHECK_MS
from kledger.topics.partition.partition_compaction import CompactionState
from kledger.topics.partition.partition_log import PartitionLog
from tests.topics.partition.test_compaction import COMPACTED, keyed
from tests.topics.test_cleaner import cleaning
from tests.topics.words import CleanerSettings

RECORDS = 20
STEP_MS = IDLE_MS - 100
ROUND_S_MAX = ROUND_MS_MAX // 1_000
SLOW = CleanerSettings(log_cleaner_slow_bytes_per_second=1)
BURST = replace(SLOW, log_cleaner_slow_burst_bytes=1 << 20)


class Scene(NamedTuple):
    """A partition that is compacted, and others that use the server."""

    log: PartitionLog
    other: PartitionLog
    ask: Callable[[], None]


Use = Callable[[Scene], Awaitable[None]]


async def append_to_another(scene: Scene) -> None:
    await keyed(scene.other, "k=1")


async def append_to_the_same(scene: Scene) -> None:
    await keyed(scene.log, "k1=20")


async def append_nothing(_: Scene) -> None:
    pass


async def append_and_ask_for_a_compaction(scene: Scene) -> None:
    await append_to_another(scene)
    with suppress(CompactionRunning):
        scene.ask()


async def seconds_of_a_round(
    use: Use,
    *,
    seconds_max: int,
    configs: Mapping[str, str] | None = None,
    settings: CleanerSettings = SLOW,
) -> float | None:
    """Use the store every STEP_MS during a round; return how long it waited, None: too long."""
    async with cleaning(config=settings) as (topics, cleaner):
        log = await topics.log(configs={**COMPACTED, **(configs or {})})
        other, other_topic = await topics.log("other"), topics.registry.get("other")
        assert other_topic is not None
        scene = Scene(log, other, partial(cleaner.start, other_topic))
        await keyed(log, *(f"k{n % 3}={n}" for n in range(RECORDS)))
        await log.managed_ledger.roll_over()
        topics.clock.advance(STEP_MS)
        clock, begun_ms = topics.clock, topics.clock.monotonic_ms()
        sleepers_before = clock.sleeper_count
        cleaned = asyncio.ensure_future(cleaner.clean())
        while not cleaned.done() and clock.monotonic_ms() < begun_ms + 1_000 * seconds_max:
            if clock.sleeper_count > sleepers_before:
                await use(scene)
                clock.advance(STEP_MS)
            await asyncio.sleep(0)
        if not cleaned.done():
            cleaned.cancel()
            await asyncio.wait([cleaned])
            return None
        assert 1 == await cleaned
        assert CompactionState.SUCCESS == log.compaction.status.state
        return (clock.monotonic_ms() - begun_ms) / 1_000


async def test_it_is_slow_while_others_append() -> None:
    assert await seconds_of_a_round(append_to_another, seconds_max=600) is None


async def test_it_is_not_slow_on_an_idle_server() -> None:
    seconds = await seconds_of_a_round(append_nothing, seconds_max=600)
    assert seconds is not None
    assert seconds <= (IDLE_MS + CHECK_MS + STEP_MS) / 1_000


async def test_a_small_one_is_over_at_once() -> None:
    assert 0 == await seconds_of_a_round(append_to_another, seconds_max=600, settings=BURST)


async def test_it_ends_before_its_partition_has_doubled() -> None:
    seconds = await seconds_of_a_round(append_to_the_same, seconds_max=600)
    assert seconds is not None
    assert seconds <= RECORDS * STEP_MS / 1_000


async def test_it_is_fast_when_a_record_has_waited_too_long() -> None:
    lag = {"max.compaction.lag.ms": "1"}
    assert 0 == await seconds_of_a_round(append_to_another, seconds_max=600, configs=lag)


async def test_it_is_fast_when_a_user_has_asked_for_a_compaction_that_waits() -> None:
    seconds = await seconds_of_a_round(append_and_ask_for_a_compaction, seconds_max=600)
    assert seconds is not None
    assert seconds <= (CHECK_MS + STEP_MS) / 1_000


async def test_it_ends_within_an_hour() -> None:
    seconds = await seconds_of_a_round(append_to_another, seconds_max=2 * ROUND_S_MAX)
    assert seconds is not None
    assert ROUND_S_MAX / 2 <= seconds <= ROUND_S_MAX
