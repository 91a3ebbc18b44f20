"""The subscriptions of a partition that closes go with it, without a garbage collection."""

import asyncio

import pytest

from kledger.subscriptions.model import SubscriptionType
from tests.freed import without_collection
from tests.subscriptions.partition_fixture import Client, PartitionFixture


@pytest.mark.parametrize("kind", list(SubscriptionType))
async def test_subscriptions_of_a_closed_ledger_are_freed(
    fixture: PartitionFixture, kind: SubscriptionType
) -> None:
    with without_collection() as freed:
        await fixture.add("a", "b")
        durable = await fixture.subscription("s")
        brief = await fixture.subscription("t", is_durable=False)
        client = await Client().join(durable, kind)
        await client.got(2)
        await client.acknowledge("a")
        await durable.rewind()  # lets its consumer go
        assert client.ends
        freed.watch(
            ledger=fixture.ledger, partition=fixture.partition, durable=durable, brief=brief
        )
        freed.watch(cursor=durable.cursor, hold=client.consumer)
        del durable, brief, client
        await fixture.ledger.close()
        await fixture.quiet()
        await fixture.open_partition("orders", fixture.ledger.config)
        await asyncio.sleep(0)
        assert [] == freed.left()
