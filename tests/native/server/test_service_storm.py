"""Random clients on one service; afterwards every backlog is what the statistics say."""

import asyncio

import pytest

from kledger.ledger import StoreConfig
from kledger.ledger.testing import FaultyEngine
from kledger.native.broker import ConsumerRequest
from kledger.native.errors import NotAllowed
from kledger.subscriptions.model import SubscriptionType
from tests.native.serving import Link, Serving, serving, ticks
from tests.native.storm import PARTITIONS, SECONDS_MAX, TOPICS, Storm

STEPS = 400


@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_a_storm_of_clients_leaves_everything_in_order(seed: int, *, faults: bool) -> None:
    """Found so far: a task that took the loop for ever, two subscriptions of one cursor, log
    starts that a skip or a reset has undone.
    """
    engine = FaultyEngine(None)
    config = StoreConfig(durability="os", cache_bytes=(0, 1 << 20)[seed % 2])
    async with serving(engine, store_config=config) as serving_:
        for topic in TOPICS:
            await serving_.service.create_topic(topic, PARTITIONS, {})
        storm = Storm(serving_, engine, seed, faults=faults)
        await storm.blow(STEPS)
        assert storm.seen["done"] > STEPS // 10
        engine._armed.clear()  # faults that nothing has run into
        for topic in await serving_.service.topics():
            for name in await serving_.service.subscriptions(topic):
                await check_unacknowledged(serving_, topic, name)


async def check_unacknowledged(serving_: Serving, topic: str, name: str) -> None:
    """A new consumer gets as many records as the statistics say."""
    stats = await serving_.service.subscription_stats(topic, name)
    assert ((), 0) == (stats.consumers, stats.unacknowledged)
    links = []
    for partition in range(PARTITIONS):
        link = Link()
        request = ConsumerRequest(
            topic=topic, partition=partition, subscription=name, type=SubscriptionType.SHARED,
            start="latest", unacked_max=0, unacked_subscription_max=0,
        )  # fmt: skip
        try:
            consumer = await serving_.service.open_consumer(
                request, deliver=link.deliver, on_ended=link.on_ended
            )
        except NotAllowed:
            return  # a reader of that name lingers in one of the partitions
        consumer.add_permits(1_000)
        links.append(link)
    async with asyncio.timeout(SECONDS_MAX):  # threads may be needed to read
        while stats.backlog > sum(len(link.values()) for link in links):
            await ticks()
    await ticks()
    assert stats.backlog == sum(len(link.values()) for link in links)
