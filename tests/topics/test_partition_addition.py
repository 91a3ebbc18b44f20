"""New partitions of a topic, and the cursors that stand in them from the first moment on."""

import asyncio

import pytest

from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.topic import Topic
from tests.batches.words import batch
from tests.topics.words import append, open_topics

FSYNC = StoreConfig(durability="fsync")


async def cursors(topic: Topic) -> list[dict[str, int]]:
    """The backlog of the durable cursors of each partition."""
    logs = [await topic.open_partition(index) for index in range(topic.partition_count)]
    return [
        {name: each.backlog for name, each in log.managed_ledger.cursors.items()} for log in logs
    ]


def ledgers_of(store: LedgerStore, topic: str) -> list[str]:
    return sorted(name.split("/")[0] for name in store.managed_ledger_names() if topic in name)


async def test_durable_cursors_begin_at_the_beginning_of_new_partitions() -> None:
    """What was written there before the next consumer came was lost to it."""
    async with open_topics() as opened:
        topic = await opened.registry.create("orders", partitions=2)
        for index, name in ((0, "zero"), (1, "one"), (1, "zero")):
            log = await topic.open_partition(index)
            await append(log, batch("x"))
            await log.managed_ledger.open_cursor(name)
        await (await topic.open_partition(0)).managed_ledger.new_non_durable_cursor()
        await opened.registry.create_partitions("orders", 4)
        await append(await topic.open_partition(2), batch("first"))
        expected = [
            {"zero": 0},
            {"one": 1, "zero": 0},
            {"one": 1, "zero": 1},
            {"one": 0, "zero": 0},
        ]
        assert expected == await cursors(topic)


async def test_topics_without_cursors_cost_nothing() -> None:
    async with open_topics() as opened:
        await opened.registry.create("orders")
        await opened.registry.create_partitions("orders", 50)
        assert [] == list(opened.store.managed_ledger_names())


async def test_cursors_of_partitions_that_were_not_opened_since_the_start_count() -> None:
    async with open_topics() as opened:
        await (await opened.log()).managed_ledger.open_cursor("s")
    async with open_topics(opened.engine) as again:
        topic = await again.registry.create_partitions("orders", 2)
        assert [{"s": 0}, {"s": 0}] == await cursors(topic)


async def test_a_new_partition_is_never_there_without_its_cursors() -> None:
    """Whatever write a crash comes before: there is no partition, or it has the cursor."""
    seen = set()
    for writes in range(12):
        engine = FaultyEngine(None)
        async with open_topics(engine, store_config=FSYNC, is_closed_cleanly=False) as opened:
            await (await opened.log()).managed_ledger.open_cursor("s")
            adding = asyncio.ensure_future(opened.registry.create_partitions("orders", 3))
            hold = None
            for _ in range(writes + 1):
                following = engine.hold_next("sync")
                if hold is not None:
                    hold.release()
                hold = following
                reached = asyncio.ensure_future(hold.reached())
                await asyncio.wait([adding, reached], return_when=asyncio.FIRST_COMPLETED)
                reached.cancel()
            engine.drop_unsynced()
            await asyncio.gather(adding, return_exceptions=True)
        async with open_topics(engine, store_config=FSYNC) as again:
            topic = again.registry.get("orders")
            assert topic is not None
            seen.add(topic.partition_count)
            assert [{"s": 0}] * topic.partition_count == await cursors(topic), writes
    assert {1, 3} == seen


async def test_an_addition_that_fails_leaves_nothing() -> None:
    for commits in range(5):
        engine = FaultyEngine(None)
        async with open_topics(engine) as opened:
            log = await opened.log()
            await log.managed_ledger.open_cursor("s")
            adding = asyncio.ensure_future(opened.registry.create_partitions("orders", 3))
            for _ in range(commits):
                hold = engine.hold_next("commit")
                await hold.reached()
                hold.release()
            engine.fail_next("commit", StorageWriteFailed("full"))
            with pytest.raises(TopicStorageFailed):
                await adding
            assert ["orders-0"] == ledgers_of(opened.store, "orders")
            topic = await opened.registry.create_partitions("orders", 3)
            assert [{"s": 0}] * 3 == await cursors(topic)


async def test_remains_of_an_addition_are_not_used_by_the_next_one() -> None:
    async with open_topics() as opened:
        log = await opened.log()
        topic = opened.registry.all()[0]
        for name in map(topic.ledger_name, (1, 2)):
            await (await opened.store.open_managed_ledger(name)).open_cursor("left")
        await log.managed_ledger.open_cursor("s")
        await opened.registry.create_partitions("orders", 2)
        assert [{"s": 0}, {"s": 0}] == await cursors(topic)
        await opened.registry.delete("orders")
        await opened.registry.finish_deletions()
        assert [] == list(opened.store.managed_ledger_names())


async def test_cursors_made_and_deleted_during_an_addition_are_followed() -> None:
    engine = FaultyEngine(None)
    async with open_topics(engine) as opened:
        ledger = (await opened.log()).managed_ledger
        for name in ("stays", "goes"):
            await ledger.open_cursor(name)
        hold = engine.hold_next("commit")
        adding = asyncio.ensure_future(opened.registry.create_partitions("orders", 2))
        await hold.reached()
        changing = asyncio.gather(ledger.delete_cursor("goes"), ledger.open_cursor("comes"))
        hold.release()
        await changing
        topic = await adding
        assert [{"stays": 0, "comes": 0}] * 2 == await cursors(topic)
