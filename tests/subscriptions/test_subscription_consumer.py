"""A consumer of a subscription: acknowledging in one step and one write, redelivery, leaving."""

import asyncio

import pytest

from kledger.ledger import Position
from kledger.subscriptions.errors import InvalidRequest, StorageFailed
from kledger.subscriptions.model import ALL, Acknowledgement, SubscriptionType
from kledger.subscriptions.subscription import Subscription
from tests.subscriptions.partition_fixture import Client, PartitionFixture

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = SubscriptionType


@pytest.fixture
async def positions(fixture: PartitionFixture) -> list[Position]:
    return [await fixture.add("a", "b", "c"), await fixture.add("d"), await fixture.add("e", "f")]


@pytest.fixture
async def subscription(fixture: PartitionFixture, positions: list[Position]) -> Subscription:
    return await fixture.subscription()


async def joined(subscription: Subscription, wanted: SubscriptionType) -> Client:
    client = await Client().join(subscription, wanted)
    await client.got(6)
    return client


@pytest.mark.parametrize("wanted", SubscriptionType)
async def test_records_are_acknowledged_one_by_one_and_become_entries(
    fixture: PartitionFixture,
    subscription: Subscription,
    positions: list[Position],
    wanted: SubscriptionType,
) -> None:
    client = await joined(subscription, wanted)
    for value, left in (("c", "abdef"), ("a", "bdef"), ("e", "bdf"), ("f", "bd"), ("b", "d")):
        await client.acknowledge(value)
        assert left == "".join(await fixture.unacknowledged())
        assert len(left) == subscription.stats().unacknowledged
    assert (positions[0], 1) == (
        subscription.cursor.mark_delete_position,
        subscription.cursor.backlog,
    )
    await client.acknowledge("d")
    assert (positions[2], 0) == (
        subscription.cursor.mark_delete_position,
        subscription.cursor.backlog,
    )


async def test_one_acknowledge_call_is_one_write(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    for _ in range(200):
        await fixture.add(*"klmno")
    client = await Client().join(subscription, SHARED, permits=2_000)
    await client.got(1_006)
    commits = fixture.engine.calls["commit"]
    await client.acknowledge(*"abdeklm")
    assert commits + 1 == fixture.engine.calls["commit"]


async def test_overlapping_calls_share_writes(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    """The number of writes must not grow with the number of acknowledgements."""
    for _ in range(100):
        await fixture.add(*"klmno")
    client = await Client().join(subscription, SHARED, permits=2_000)
    await client.got(506)
    commits = fixture.engine.calls["commit"]
    hold = fixture.engine.hold_next("sync")
    calls = [
        asyncio.ensure_future(
            client.consumer.acknowledge([Acknowledgement(delivery.position, 1 << bit, 5)])
        )
        for delivery in client.deliveries[3:]
        for bit in range(5)
    ]
    await hold.reached()
    hold.release()
    await asyncio.gather(*calls)
    assert fixture.engine.calls["commit"] - commits <= 2
    assert list("abcdef") == await fixture.unacknowledged()


@pytest.mark.parametrize("wanted", [EXCLUSIVE, FAILOVER])
@pytest.mark.parametrize(
    ("upto", "left"), [("a", "bcdef"), ("c", "def"), ("d", "ef"), ("e", "f"), ("f", "")]
)
async def test_everything_up_to_a_record_is_acknowledged(
    fixture: PartitionFixture,
    subscription: Subscription,
    wanted: SubscriptionType,
    upto: str,
    left: str,
) -> None:
    client = await joined(subscription, wanted)
    await client.acknowledge_upto(upto)
    assert left == "".join(await fixture.unacknowledged())
    assert len(left) == subscription.stats().unacknowledged
    await client.acknowledge_upto("a")
    assert left == "".join(await fixture.unacknowledged())
    await fixture.crash()
    assert left == "".join(await fixture.unacknowledged())


@pytest.mark.parametrize("wanted", [SHARED, KEY_SHARED])
async def test_acknowledge_upto_is_refused_for_shared_types(
    fixture: PartitionFixture, subscription: Subscription, wanted: SubscriptionType
) -> None:
    client = await joined(subscription, wanted)
    with pytest.raises(InvalidRequest):
        await client.acknowledge_upto("f")
    assert list("abcdef") == await fixture.unacknowledged()


async def test_call_acknowledges_all_or_nothing(
    fixture: PartitionFixture, subscription: Subscription, positions: list[Position]
) -> None:
    client = await joined(subscription, EXCLUSIVE)
    good = Acknowledgement(positions[0], ALL, 3)
    for bad in (
        Acknowledgement(positions[1], 0b10, 1),
        Acknowledgement(positions[2].successor, ALL, 1),
        Acknowledgement(positions[2].successor, 1, 2),
    ):
        with pytest.raises(InvalidRequest):
            await client.consumer.acknowledge([good, bad])
        with pytest.raises(InvalidRequest):
            await client.consumer.acknowledge_upto(bad)
    assert (6, 6) == (len(await fixture.unacknowledged()), subscription.stats().unacknowledged)
    await client.consumer.acknowledge([good, good, Acknowledgement(Position(0, 7), ALL, 1)])
    await client.consumer.acknowledge([])
    assert list("def") == await fixture.unacknowledged()


async def test_acknowledgement_that_was_not_written_raises_and_still_counts(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    client = await joined(subscription, EXCLUSIVE)
    fixture.engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await client.acknowledge("a", "b", "c")
    assert (list("def"), 3) == (await fixture.unacknowledged(), subscription.stats().unacknowledged)
    await client.acknowledge("a")
    await client.acknowledge("d")
    await fixture.crash()
    assert list("ef") == await fixture.unacknowledged()


@pytest.mark.parametrize("wanted", SubscriptionType)
async def test_negatively_acknowledged_records_are_redelivered(
    fixture: PartitionFixture, subscription: Subscription, wanted: SubscriptionType
) -> None:
    client = await joined(subscription, wanted)
    await client.acknowledge("a", "d")
    client.consumer.redeliver(None)
    assert list("abcdefbcef") == await client.got(10)
    assert {1} == {each.redelivery_count for each in client.deliveries[3:]}
    await client.acknowledge(*"bcef")
    assert [] == await fixture.unacknowledged()


@pytest.mark.parametrize("wanted", SubscriptionType)
async def test_records_of_a_consumer_that_leaves_go_to_the_next(
    fixture: PartitionFixture, subscription: Subscription, wanted: SubscriptionType
) -> None:
    client = await joined(subscription, wanted)
    await client.acknowledge("b", "e")
    await client.consumer.close()
    client.consumer.add_permits(5)
    client.consumer.redeliver(None)
    await client.acknowledge("a")
    assert ([], True) == (client.ends, client.consumer.is_ended)
    again = await Client().join(subscription, wanted)
    assert list("acdf") == await again.got(4)


@pytest.mark.parametrize("wanted", SubscriptionType)
async def test_acknowledgement_after_a_rewind_counts(
    fixture: PartitionFixture, subscription: Subscription, wanted: SubscriptionType
) -> None:
    """A rewind is a revision, too; consumers that had joined before it were taken for outdated."""
    if wanted is EXCLUSIVE:
        client = await joined(subscription, wanted)
        client.consumer.redeliver(None)
    else:
        first = await joined(subscription, wanted)
        client = await Client("d").join(subscription, wanted)
        await first.consumer.close()
    await client.got(6)
    await client.acknowledge(*"abcdef")
    assert [] == await fixture.unacknowledged()


async def test_permits_are_checked(subscription: Subscription) -> None:
    client = await joined(subscription, EXCLUSIVE)
    with pytest.raises(InvalidRequest):
        client.consumer.add_permits(0)
