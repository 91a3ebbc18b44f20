"""Which partition a caller gets, and when it is closed."""

import asyncio

import pytest

from kledger.delivery.errors import PartitionIndexOutOfRange, ServerStopping
from kledger.topics import UnknownTopic
from tests.delivery.partitions import partition_directory


async def test_overlapping_calls_get_the_same_partition() -> None:
    async with partition_directory() as (opened, partitions):
        await opened.registry.create("orders", partitions=3)
        one, other, third = await asyncio.gather(
            partitions.open("orders", 1),
            partitions.open("persistent://public/default/orders", 1),
            partitions.open("orders", 2),
        )
        assert one is other
        assert ("orders-1", "orders-2") == (one.name, third.name)
        assert [one, third] == (await partitions.open_all("public/default/orders"))[1:]


async def test_what_does_not_exist_is_refused() -> None:
    async with partition_directory() as (opened, partitions):
        await opened.registry.create("orders", partitions=2)
        for index in (-1, 2):
            with pytest.raises(PartitionIndexOutOfRange, match=f"expected 0 to 1, got {index}"):
                await partitions.open("orders", index)
        for name in ("missing", "", "persistent://other/ns/orders"):
            with pytest.raises(UnknownTopic, match="no topic is called"):
                await partitions.open(name, 0)
        await partitions.close()
        with pytest.raises(ServerStopping, match="stopping"):
            await partitions.open("orders", 0)


async def test_broker_of_a_cluster_applies_changes_of_others_before_it_refuses() -> None:
    async with partition_directory() as (opened, partitions):
        looks = 0

        async def refresh() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                await opened.registry.create("orders", partitions=1)
            elif looks == 2:
                await opened.registry.create_partitions("orders", 2)

        partitions.refresh = refresh
        assert "orders-0" == (await partitions.open("orders", 0)).name
        assert 2 == len(await partitions.open_all("orders") + [await partitions.open("orders", 1)])
        assert 2 == looks
        with pytest.raises(PartitionIndexOutOfRange):
            await partitions.open("orders", 2)
        assert 3 == looks


async def test_topic_created_again_gets_a_new_partition() -> None:
    async with partition_directory() as (opened, partitions):
        await opened.registry.create("orders")
        old = await partitions.open("orders", 0)
        await opened.registry.delete("orders")
        with pytest.raises(UnknownTopic):
            await partitions.open("orders", 0)
        await opened.registry.create("orders")
        assert old is not await partitions.open("orders", 0)
