"""The log cleaner: which partitions it compacts, in which order, and what a failure does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.ledger.testing import FaultyEngine
from kledger.runtime.tasks import Supervisor
from kledger.topics.cleaner import RETRY_MS, Cleaner, TopicCompaction, summarized
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.errors import CompactionRunning, StrategyNotAllowed
from kledger.topics.partition.partition_compaction import (
    CompactionState,
    PartitionCompactionStatus,
)
from kledger.topics.topic import Topic
from tests.topics.compaction.strategies import open_here
from tests.topics.partition.test_compaction import ALLOWED, COMPACTED, by, keyed
from tests.topics.words import (
    SMALL_SEGMENTS,
    CleanerSettings,
    TopicStore,
    all_values,
    open_topics,
)


@asynccontextmanager
async def cleaning(
    engine: FaultyEngine | None = None,
    config: CleanerSettings | None = None,
    defaults: TopicDefaults | None = None,
) -> AsyncIterator[tuple[TopicStore, Cleaner]]:
    async with open_topics(engine or FaultyEngine(None), defaults=defaults) as topics:
        supervisor = Supervisor(containment=topics.store.containment)
        yield (
            topics,
            Cleaner(
                topics.registry,
                topics.store,
                topics.clock,
                supervisor,
                config or CleanerSettings(),
                open_strategy=open_here,
            ),
        )
        await supervisor.close()


async def ended(cleaner: Cleaner, topic: Topic) -> TopicCompaction:
    """Wait for the end of a compaction."""
    async with asyncio.timeout(60):
        while (  # noqa: ASYNC110 - nothing is signalled to users
            status := await cleaner.status(topic)
        ).state is CompactionState.RUNNING:
            await asyncio.sleep(0)
    return status


async def test_what_is_due_is_compacted_once() -> None:
    async with cleaning() as (topics, cleaner):
        log = await topics.log(configs=COMPACTED)
        other = await topics.log("other")
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        await keyed(other, *(f"k{n % 3}={n}" for n in range(20)))
        await log.managed_ledger.roll_over()
        assert 1 == await cleaner.clean()
        assert [b"17", b"18", b"19"] == await all_values(log)
        assert CompactionState.NOT_RUN == other.compaction.status.state
        assert 0 == await cleaner.clean()


async def test_a_closed_partition_is_opened_only_if_it_is_due() -> None:
    engine = FaultyEngine(None)
    async with cleaning(engine) as (topics, _):
        for name in ("due", "clean"):
            log = await topics.log(name, configs=COMPACTED)
            await keyed(log, *(f"k{n % 3}={n}" for n in range(20 if name == "due" else 1)))
    async with cleaning(engine) as (topics, cleaner):
        assert 1 == await cleaner.clean()
        due, clean = topics.registry.get("due"), topics.registry.get("clean")
        assert due is not None
        assert clean is not None
        assert (True, False) == (due.is_open(0), clean.is_open(0))


async def test_a_failed_partition_is_left_alone_for_some_time() -> None:
    engine = FaultyEngine(None)
    async with cleaning(engine) as (topics, cleaner):
        log = await topics.log(configs=COMPACTED)
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        engine.fail_next("commit")
        assert 1 == await cleaner.clean()
        failed = log.compaction.status
        assert CompactionState.ERROR == failed.state
        assert "injected" in failed.error
        assert 0 == await cleaner.clean()
        topics.clock.advance(RETRY_MS)
        assert 1 == await cleaner.clean()
        assert CompactionState.SUCCESS == log.compaction.status.state


async def test_a_user_compacts_up_to_the_end_and_is_refused_while_one_runs() -> None:
    engine = FaultyEngine(None)
    async with cleaning(engine) as (topics, cleaner):
        log = await topics.log(configs=COMPACTED)
        topic = topics.registry.get("orders")
        assert topic is not None
        await keyed(log, "a=1", "b=1", "a=2")
        assert CompactionState.NOT_RUN == (await cleaner.status(topic)).state
        hold = engine.hold_next("commit")
        cleaner.start(topic)
        await hold.reached()
        assert CompactionState.RUNNING == (await cleaner.status(topic)).state
        with pytest.raises(CompactionRunning, match="orders"):
            cleaner.start(topic)
        hold.release()
        status = await ended(cleaner, topic)
        assert CompactionState.SUCCESS == status.state
        assert [2] == [each.offset for each in status.horizons if each is not None]
        assert [b"1", b"2"] == await all_values(log)


async def test_a_user_gets_the_reason_of_a_failure() -> None:
    engine = FaultyEngine(None)
    async with cleaning(engine) as (topics, cleaner):
        log = await topics.log(configs=COMPACTED)
        topic = topics.registry.get("orders")
        assert topic is not None
        await keyed(log, "a=1", "a=2")
        engine.fail_next("commit")
        cleaner.start(topic)
        status = await ended(cleaner, topic)
        assert (CompactionState.ERROR, (None,)) == (status.state, status.horizons)
        assert status.error.startswith("partition 0: ")
        assert [b"1", b"2"] == await all_values(log)


async def test_a_second_compaction_waits_for_the_first() -> None:
    engine = FaultyEngine(None)
    async with cleaning(engine) as (topics, cleaner):
        logs = [await topics.log(name, configs=COMPACTED) for name in ("first", "second")]
        for log in logs:
            await keyed(log, "a=1", "a=2")
        first, second = topics.registry.get("first"), topics.registry.get("second")
        assert first is not None
        assert second is not None
        hold = engine.hold_next("commit")
        for each in (first, second):
            cleaner.start(each)
        await hold.reached()
        assert [True, False] == [log.managed_ledger.is_compacting for log in logs]
        hold.release()
        for each in (first, second):
            await ended(cleaner, each)
        assert [[b"2"], [b"2"]] == [await all_values(log) for log in logs]


async def test_a_threshold_compacts_topics_of_any_policy_and_retention_waits_for_it() -> None:
    async with cleaning() as (topics, cleaner):
        configs = {
            **SMALL_SEGMENTS, "kledger.compaction.threshold.bytes": "1000", "retention.ms": "0",
        }  # fmt: skip
        log = await topics.log(configs=configs)
        await keyed(log, "a=1", "a=2")
        await log.managed_ledger.roll_over()
        topics.clock.advance(1)
        await log.enforce_retention()
        assert (0, 0) == (log.log_start_offset, await cleaner.clean())
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        assert 1 == await cleaner.clean()
        topics.clock.advance(1)
        await log.enforce_retention()
        assert log.log_start_offset > 0, "what is compacted may go"
        assert 0 == await cleaner.clean()


@pytest.mark.parametrize("meanwhile", ["closed", "deleted"])
async def test_what_happens_to_a_partition_that_waits_is_no_failure(
    meanwhile: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: it was compacted as it had been planned, failed, and was left alone."""
    engine = FaultyEngine(None)
    async with cleaning(engine) as (topics, cleaner):
        logs = [await topics.log(name, configs=COMPACTED) for name in ("first", "second")]
        for log, count in zip(logs, (40, 20), strict=True):
            await keyed(log, *(f"k{n % 3}={n}" for n in range(count)))
            await log.managed_ledger.roll_over()
        hold = engine.hold_next("commit")
        cleaned = asyncio.ensure_future(cleaner.clean())
        await hold.reached()
        assert [True, False] == [log.managed_ledger.is_compacting for log in logs]
        work = {
            "closed": lambda: topics.registry.close_idle_partitions(0),
            "deleted": lambda: topics.registry.delete("second"),
        }
        other = asyncio.ensure_future(work[meanwhile]())  # type: ignore[no-untyped-call]
        await asyncio.sleep(0)
        hold.release()
        assert 2 == await cleaned
        await other
        assert "was not compacted" not in caplog.text
        if meanwhile != "deleted":
            second = topics.registry.get("second")
            assert second is not None
            log = await second.open_partition(0)
            assert [b"17", b"18", b"19"] == await all_values(log)
            assert CompactionState.SUCCESS == log.compaction.status.state


async def test_compactions_are_counted() -> None:
    engine = FaultyEngine(None)
    async with cleaning(engine) as (topics, cleaner):
        log = await topics.log(configs=COMPACTED)
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
        await log.managed_ledger.roll_over()
        size = log.size_bytes
        engine.fail_next("commit")
        await cleaner.clean()
        metrics = topics.store.metrics.snapshot()
        assert 1 == metrics['compactions{outcome="failed"}']
        assert 0 == metrics['compactions{outcome="succeeded"}']
        assert 1 == metrics["compaction_due_partitions"]
        topics.clock.advance(RETRY_MS)
        hold = engine.hold_next("commit")
        cleaned = asyncio.ensure_future(cleaner.clean())
        await hold.reached()
        assert 1 == topics.store.metrics.snapshot()["compactions_running"]
        topics.clock.advance(700)
        hold.release()
        await cleaned
        await cleaner.clean()
        compacted = log.managed_ledger.compacted
        assert compacted is not None
        metrics = topics.store.metrics.snapshot()
        shown = {name: metrics[name] for name in metrics if name.startswith("compaction")}
        kept = shown.pop("compaction_kept_bytes")
        assert 0 < kept <= compacted.size
        assert {
            "compaction_due_partitions": 0,
            "compaction_last_ms": 700,
            "compaction_read_bytes": size,
            "compaction_skipped_records": 0,
            "compactions_running": 0,
            'compactions{outcome="failed"}': 1,
            'compactions{outcome="succeeded"}': 1,
        } == shown


async def test_a_partition_whose_strategy_fails_is_left_alone_until_it_can_be_compacted() -> None:
    async with cleaning(defaults=ALLOWED) as (topics, cleaner):
        log = await topics.log(configs=by("only_numbers"))
        await keyed(log, "a=7", "a=x", *(f"k{n % 3}={n}" for n in range(20)))
        await log.managed_ledger.roll_over()
        assert 1 == await cleaner.clean()
        assert "ValueError" in log.compaction.status.error
        assert 0 == await cleaner.clean()
        await topics.registry.alter_configs("orders", {"compaction.strategy": "own:largest"})
        topics.clock.advance(RETRY_MS)
        assert 1 == await cleaner.clean()
        assert [b"x", b"7", b"8", b"9"] == await all_values(log)
        metrics = topics.store.metrics.snapshot()
        assert metrics["compaction_skipped_records"] > 0
        assert 1 == metrics['compactions{outcome="failed"}']


async def test_a_strategy_that_is_not_allowed_any_more_is_refused_at_once_and_reported() -> None:
    engine = FaultyEngine(None)
    async with cleaning(engine, defaults=ALLOWED) as (topics, _):
        log = await topics.log(configs=by("largest"))
        await keyed(log, *(f"k{n % 3}={n}" for n in range(20)))
    async with cleaning(engine) as (topics, cleaner):
        topic = topics.registry.get("orders")
        assert topic is not None
        with pytest.raises(StrategyNotAllowed, match="own:largest"):
            cleaner.start(topic)
        assert CompactionState.NOT_RUN == (await cleaner.status(topic)).state
        assert 1 == await cleaner.clean()
        status = await cleaner.status(topic)
        assert CompactionState.ERROR == status.state
        assert "compaction.strategy.modules (none), got own:largest" in status.error


def test_errors_name_the_partitions_of_a_broker_by_their_indexes() -> None:
    """They were counted, and a broker of a cluster leads some partitions only."""
    failed = PartitionCompactionStatus(state=CompactionState.ERROR, error="disk")
    good = PartitionCompactionStatus(state=CompactionState.SUCCESS)
    found = summarized({1: good, 3: failed, 5: failed}, (None, None, None))
    assert "partition 3: disk; partition 5: disk" == found.error
