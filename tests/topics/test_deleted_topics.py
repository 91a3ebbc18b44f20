"""What deleted topics leave goes together, whatever of it cannot be read."""

import asyncio
import logging

import pytest

from kledger.ledger import StorageFailed
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import UnknownPartition
from tests.batches.words import batch
from tests.topics.words import append, house


async def test_many_topics_go_in_few_groups() -> None:
    """Each deletion walked all that were not finished: time grew with the square."""
    engine = FaultyEngine(None)
    async with house(engine) as here:
        topics = [await here.registry.create(f"t{number}", partitions=3) for number in range(40)]
        kept = await here.log("kept")
        await append(kept, batch("x"))
        for topic in topics:
            for index in range(3):
                await append(await topic.open_partition(index), batch("x"))
        before = engine.calls["commit"]
        assert topics == await here.registry.delete_many([*topics, *topics[:1]][:40])
        assert [] == await here.registry.delete_many(topics)
        await here.registry.finish_deletions()
        assert engine.calls["commit"] - before < 5
        assert [kept.managed_ledger.name] == here.store.managed_ledger_names()
        rows = [key for key, _ in here.store.scan_rows()]
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
    async with house(engine) as here:
        topics = [await here.registry.create(name, partitions=2) for name in ("a", "damaged", "c")]
        for topic in topics:
            for index in range(2):
                await topic.open_partition(index)
        engine.word = b"damaged-1/"
        with caplog.at_level(logging.WARNING):
            await here.registry.delete_many(topics)
            await here.registry.finish_deletions()
        assert {"remains of topic damaged stay for now"} == {
            record.getMessage().partition(":")[0]
            for record in caplog.records
            if record.name == "kledger.topics.deleted_topics"
        }
        left = [topics[1].ledger_name(index) for index in range(2)]
        assert left == here.store.managed_ledger_names()
    engine.word = Unreadable.word
    async with house(engine) as again:
        await again.registry.finish_deletions()
        assert ([], []) == (again.store.managed_ledger_names(), again.store.scan_rows())


async def test_a_partition_that_is_being_opened_leaves_nothing() -> None:
    """Whether its ledger is durable before the deletion or not."""
    for is_held in (True, False):
        engine = FaultyEngine(None)
        async with house(engine) as here:
            topic = await here.registry.create("a", partitions=2)
            hold = engine.hold_next("commit") if is_held else None
            opening = [asyncio.ensure_future(topic.open_partition(index)) for index in range(2)]
            if hold is not None:
                await hold.reached()
            deleting = asyncio.ensure_future(here.registry.delete("a"))
            await asyncio.sleep(0)
            if hold is not None:
                hold.release()
            await deleting
            await here.registry.finish_deletions()
            outcomes = await asyncio.gather(*opening, return_exceptions=True)
            assert [UnknownPartition] * 2 == [type(each) for each in outcomes]
            assert ([], []) == (here.store.managed_ledger_names(), here.store.scan_rows())


async def test_a_closing_store_logs_nothing_and_the_next_start_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = FaultyEngine(None)
    async with house(engine) as here:
        await append(await here.log(), batch("x"))
        await here.registry.delete("orders")
    assert [] == caplog.records
    async with house(engine) as again:
        await again.registry.finish_deletions()
        assert [] == again.store.managed_ledger_names()
