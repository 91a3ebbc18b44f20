"""Which partition a client gets, and when it goes."""

import asyncio

import pytest

from kledger.native.errors import InvalidArgument, TopicNotFound, Unavailable
from kledger.runtime.tasks import Supervisor
from tests.native.serving import directory
from tests.topics.words import house


async def test_all_who_ask_get_the_same_partition() -> None:
    async with house() as opened:
        await opened.registry.create("orders", partitions=3)
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        one, other, third = await asyncio.gather(
            partitions.open("orders", 1),
            partitions.open("persistent://public/default/orders", 1),
            partitions.open("orders", 2),
        )
        assert one is other
        assert ("orders-1", "orders-2") == (one.name, third.name)
        assert [one, third] == (await partitions.open_all("public/default/orders"))[1:]
        await partitions.close()
        await supervisor.close()


async def test_what_does_not_exist_is_refused() -> None:
    async with house() as opened:
        await opened.registry.create("orders", partitions=2)
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        for index in (-1, 2):
            with pytest.raises(InvalidArgument, match=f"expected 0 to 1, got {index}"):
                await partitions.open("orders", index)
        for name in ("missing", "", "persistent://other/ns/orders"):
            with pytest.raises(TopicNotFound, match="no topic is called"):
                await partitions.open(name, 0)
        await partitions.close()
        with pytest.raises(Unavailable, match="stopping"):
            await partitions.open("orders", 0)
        await supervisor.close()


async def test_a_topic_made_again_gets_a_new_partition() -> None:
    async with house() as opened:
        await opened.registry.create("orders")
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        old = await partitions.open("orders", 0)
        await opened.registry.delete("orders")
        with pytest.raises(TopicNotFound):
            await partitions.open("orders", 0)
        await opened.registry.create("orders")
        assert old is not await partitions.open("orders", 0)
        await partitions.close()
        await supervisor.close()
