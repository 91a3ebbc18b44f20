"""What retention reads of a topic whose partitions are closed."""

import logging
from uuid import UUID

import pytest

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.testing import FaultyEngine
from tests.batches.words import NOW_MS, batch
from tests.topics.partition.test_compaction import COMPACTED, LIMITS, keyed
from tests.topics.words import TopicStore, all_values, append, open_topics

OLD = {"retention.ms": "1", "kledger.retention.waits.for": "groups"}


async def closed(opened: TopicStore, configs: dict[str, str]) -> None:
    """Make a topic of one closed partition with three ledgers of one record each."""
    for number in range(3):
        log = await opened.log("orders", configs)
        assert number == (await append(log, batch("x", timestamp=1))).base_offset
        topic = opened.registry.all()[0]
        await topic.close_partition(0)
        assert not topic.is_open(0)


@pytest.mark.parametrize(("committed", "is_opened"), [(0, False), (1, True), (None, True)])
async def test_a_closed_partition_waits_for_groups(committed: int | None, is_opened: bool) -> None:
    async with open_topics() as opened:
        await closed(opened, OLD)

        def answer(topic: str, topic_id: UUID, partition: int) -> int | None:
            return committed

        await opened.registry.enforce_retention(answer)
        assert is_opened == opened.registry.all()[0].is_open(0)


async def test_a_topic_that_keeps_everything_is_not_looked_at() -> None:
    async with open_topics() as opened:
        await closed(opened, {"retention.ms": "-1"})
        await opened.registry.enforce_retention()
        assert not opened.registry.all()[0].is_open(0)


async def test_a_partition_that_was_not_closed_well_is_opened_to_find_out() -> None:
    """Its rows do not know of its newest records."""
    engine = FaultyEngine(None)
    async with open_topics(engine, is_closed_cleanly=False) as opened:
        log = await opened.log("orders", {"retention.ms": "1000"})
        await append(log, batch("x", timestamp=opened.clock.now_ms()))
        log.managed_ledger.fence()
        topic = opened.registry.all()[0]
        await topic.close_partition(0)
        await opened.registry.enforce_retention()
        assert topic.is_open(0)


async def test_unreadable_rows_are_reported_by_the_opening(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_topics() as opened:
        await closed(opened, {"retention.ms": "1"})
        topic = opened.registry.all()[0]
        name = topic.ledger_name(0)
        rows = [key for key, row in opened.engine.scan(b"", b"\xff") if name.encode() in key]
        assert 1 == len(rows)
        group = CommitGroup(rows=[(rows[0], b"\xff")])
        opened.engine.commit(group, sync=True)
        opened.engine.index(group)
        with caplog.at_level(logging.WARNING):
            await opened.registry.enforce_retention()
        assert ["retention of orders-0"] == [
            record.getMessage().partition(":")[0]
            for record in caplog.records
            if record.name == "kledger.topics.retention"
        ]


async def compacted_and_closed(opened: TopicStore, configs: dict[str, str]) -> int:
    """Make a closed partition of ten compacted records, one a millisecond; return their bytes."""
    log = await opened.log("orders", {**COMPACTED, **configs})
    for number in range(10):
        await keyed(log, f"k{number}={number}", timestamp=NOW_MS + number)
    await log.managed_ledger.roll_over()
    await log.compact(LIMITS)
    assert [0] == [each.entries for each in log.managed_ledger.ledgers], "all are compacted"
    await opened.registry.all()[0].close_partition(0)
    return log.size_bytes


@pytest.mark.parametrize(("passed_ms", "is_opened"), [(1_000, False), (1_006, True)])
async def test_a_closed_partition_is_opened_for_the_age_of_what_was_compacted(
    passed_ms: int, is_opened: bool
) -> None:
    """Regression: only ledgers of the log were looked at, so nothing of it ever expired."""
    async with open_topics() as opened:
        await compacted_and_closed(
            opened, {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
        )
        opened.clock.advance(passed_ms)
        await opened.registry.enforce_retention()
        topic = opened.registry.all()[0]
        assert is_opened == topic.is_open(0)
        log = await topic.open_partition(0)
        assert is_opened == (log.log_start_offset > 0)
        left = await all_values(log)
        assert [b"%d" % number for number in range(10)][-len(left) :] == left
        await topic.close_partition(0)
        await opened.registry.enforce_retention()
        assert not topic.is_open(0), "the rest is not due"


@pytest.mark.parametrize(("share", "is_opened"), [(1.0, False), (0.5, True), (0.0, True)])
async def test_a_closed_partition_is_opened_for_the_size_of_what_was_compacted(
    share: float, is_opened: bool
) -> None:
    """At least `retention.bytes` stay, of the compacted ledger too."""
    async with open_topics() as opened:
        configs = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
        size = await compacted_and_closed(opened, configs)
        await opened.registry.alter_configs("orders", {"retention.bytes": str(int(size * share))})
        await opened.registry.enforce_retention()
        topic = opened.registry.all()[0]
        assert is_opened == topic.is_open(0)
        log = await topic.open_partition(0)
        left = len(await all_values(log))
        assert 10 * share <= left <= 10 * share + 2
        await topic.close_partition(0)
        await opened.registry.enforce_retention()
        assert not topic.is_open(0), "the rest is not due"


async def test_without_delete_nothing_of_what_was_compacted_is_looked_at() -> None:
    async with open_topics() as opened:
        await compacted_and_closed(opened, {"retention.ms": "1", "retention.bytes": "0"})
        opened.clock.advance(10_000)
        await opened.registry.enforce_retention()
        assert not opened.registry.all()[0].is_open(0)
