"""What deleted topics leave goes together, whatever of it cannot be read."""

import asyncio
import logging

import pytest

from kledger.ledger import StorageFailed
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import UnknownPartition
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import batch
from tests.topics.words import append, open_topics


async def test_many_topics_go_in_few_groups() -> None:
    """Each deletion walked all that were not finished: time grew with the square."""
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topics = [await opened.registry.create(f"t{number}", partitions=3) for number in range(40)]
        kept = await opened.log("kept")
        await append(kept, batch("x"))
        for topic in topics:
            for index in range(3):
                await append(await topic.open_partition(index), batch("x"))
        before = engine.calls["commit"]
        assert topics == await opened.registry.delete_many([*topics, *topics[:1]][:40])
        assert [] == await opened.registry.delete_many(topics)
        await opened.registry.finish_deletions()
        assert engine.calls["commit"] - before < 5
        assert [kept.managed_ledger.name] == opened.store.managed_ledger_names()
        rows = [key for key, _ in opened.store.scan_rows()]
        assert [b"T"] == [key[:1] for key in rows if key[:1] != b"P"]


class Unreadable(MemoryEngine):
    """Rows whose key has the word in it cannot be read."""

    word = b"nothing has this"

    def get(self, key: bytes) -> bytes | None:
        if self.word in key:
            raise StorageFailed("injected")
        return super().get(key)


async def test_what_cannot_be_read_keeps_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    engine = Unreadable()
    async with open_topics(engine) as opened:
        topics = [
            await opened.registry.create(name, partitions=2) for name in ("a", "damaged", "c")
        ]
        for topic in topics:
            for index in range(2):
                await topic.open_partition(index)
        engine.word = b"damaged-1/"
        with caplog.at_level(logging.WARNING):
            await opened.registry.delete_many(topics)
            await opened.registry.finish_deletions()
        assert {"remains of topic damaged stay for now"} == {
            record.getMessage().partition(":")[0]
            for record in caplog.records
            if record.name == "kledger.topics.deleted_topics"
        }
        left = [topics[1].ledger_name(index) for index in range(2)]
        assert left == opened.store.managed_ledger_names()
    engine.word = Unreadable.word
    async with open_topics(engine) as again:
        await again.registry.finish_deletions()
        assert ([], []) == (again.store.managed_ledger_names(), again.store.scan_rows())


@pytest.mark.parametrize("opened_first", [True, False])
async def test_deleting_a_topic_while_its_partitions_open_leaves_nothing(
    opened_first: bool,
) -> None:
    """Their ledgers become durable before the deletion; the openings end before or after it.

    Unless the deletion is held too, its thread and the event loop race: an opening may fail, or
    return a partition that the deletion closes.
    """
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a", partitions=2)
        creation = engine.hold_next("commit")
        deletion = engine.hold_next("commit") if opened_first else None
        opening = [asyncio.ensure_future(topic.open_partition(index)) for index in range(2)]
        await creation.reached()
        deleting = asyncio.ensure_future(opened.registry.delete("a"))
        await asyncio.sleep(0)
        creation.release()
        if deletion is not None:
            assert {PartitionLog} == {type(each) for each in await asyncio.gather(*opening)}
            deletion.release()
        await deleting
        await opened.registry.finish_deletions()
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert [UnknownPartition] * 2 == [type(await refusal(each)) for each in outcomes]
        assert ([], []) == (opened.store.managed_ledger_names(), opened.store.scan_rows())


async def test_deleting_a_topic_in_the_tick_of_an_opening_leaves_nothing() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        topic = await opened.registry.create("a", partitions=2)
        opening = [asyncio.ensure_future(topic.open_partition(index)) for index in range(2)]
        deleting = asyncio.ensure_future(opened.registry.delete("a"))
        await deleting
        await opened.registry.finish_deletions()
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert [UnknownPartition] * 2 == [type(each) for each in outcomes]
        assert ([], []) == (opened.store.managed_ledger_names(), opened.store.scan_rows())


async def refusal(outcome: PartitionLog | BaseException) -> object:
    """The error of an opening, or of an append to the partition that it returned."""
    if isinstance(outcome, BaseException):
        return outcome
    return (await append(outcome, batch("x"))).error


async def test_a_closing_store_logs_nothing_and_the_next_start_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        await append(await opened.log(), batch("x"))
        await opened.registry.delete("orders")
    assert [] == caplog.records
    async with open_topics(engine) as again:
        await again.registry.finish_deletions()
        assert [] == again.store.managed_ledger_names()
