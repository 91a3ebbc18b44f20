"""What retention reads of a topic whose partitions are closed."""

import logging
from uuid import UUID

import pytest

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.testing import FaultyEngine
from tests.batches.words import batch
from tests.topics.words import TopicStore, append, open_topics

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
