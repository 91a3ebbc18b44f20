"""One topic and its open partitions."""

import asyncio

import pytest

from tests.topics.words import house
from topics.errors import UnknownPartition, UnknownTopic
from topics.topic import unknown_topic


async def test_partition_is_opened_once_for_all_who_want_it() -> None:
    async with house() as here:
        topic = await here.registry.create("a", partitions=2)
        assert topic.partition(0) is None
        first, second = await asyncio.gather(topic.open_partition(0), topic.open_partition(0))
        assert first is second is topic.partition(0) is await topic.open_partition(0)
        assert (0, "a", topic.id) == (first.index, first.topic, first.topic_id)
        assert [first] == topic.open_partitions()


@pytest.mark.parametrize("index", [-1, 2, 1 << 31])
async def test_partitions_that_do_not_exist(index: int) -> None:
    async with house() as here:
        topic = await here.registry.create("a", partitions=2)
        assert topic.partition(index) is None
        with pytest.raises(UnknownPartition, match=r"expected 0 to 1"):
            await topic.open_partition(index)


async def test_deletion_during_opening_is_noticed() -> None:
    async with house() as here:
        topic = await here.registry.create("a")
        opening = asyncio.ensure_future(topic.open_partition(0))
        await asyncio.sleep(0)
        await here.registry.delete("a")
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
        assert isinstance(outcome, UnknownPartition) or getattr(outcome, "is_closed", False)
        assert topic.is_deleted


async def test_configs_reach_open_partitions() -> None:
    async with house() as here:
        topic = await here.registry.create("a")
        log = await topic.open_partition(0)
        await here.registry.alter_configs("a", {"max.message.bytes": "100"})
        assert 100 == log.config.size_max


def test_unknown_topic_names_it() -> None:
    assert "'x'" in str(unknown_topic("x"))
    assert UnknownTopic is type(unknown_topic("x"))
