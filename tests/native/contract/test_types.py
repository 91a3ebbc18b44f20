"""Dispatch by type: exclusive, failover, shared, key-shared."""

import asyncio

import pytest

import kledger
from tests.native.contract.words import (
    QUIET_MS,
    SOON_MS,
    divided,
    is_quiet,
    receive,
    receive_values,
    send,
    values,
)

TYPES = ["exclusive", "failover", "shared", "key_shared"]


async def drain(consumer: kledger.Consumer) -> list[kledger.Message]:
    """Receive all available messages."""
    found: list[kledger.Message] = []
    while more := await consumer.batch_receive(1_000, timeout_ms=QUIET_MS):
        found += more
    return found


@pytest.mark.parametrize("other", TYPES)
async def test_exclusive_refuses_a_second_consumer(
    client: kledger.Client, topic: str, other: str
) -> None:
    one = await client.subscribe(topic, "s")
    with pytest.raises(kledger.ConsumerBusy):
        await client.subscribe(topic, "s", consumer_type=other)
    await send(client, topic, [b"v"])
    assert [b"v"] == await receive_values(one, 1)
    await one.close()
    assert [b"v"] == await receive_values(await client.subscribe(topic, "s"), 1)


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in TYPES for b in TYPES if a != b])
async def test_types_do_not_mix(client: kledger.Client, one: str, other: str) -> None:
    await client.subscribe("orders", "s", consumer_type=one)
    with pytest.raises(kledger.ConsumerBusy):
        await client.subscribe("orders", "s", consumer_type=other)


async def test_subscriptions_are_independent(client: kledger.Client, topic: str) -> None:
    consumers = [await client.subscribe(topic, name) for name in ("a", "b", "c")]
    await send(client, topic, values(10))
    for consumer in consumers:
        assert set(values(10)) == set(await receive_values(consumer, 10))


async def test_failover_activates_the_next_consumer(
    client: kledger.Client,
) -> None:
    one, two = [
        await client.subscribe(
            "orders", "s", consumer_type="failover", consumer_name=name, failover_delay_ms=0
        )
        for name in ("a", "b")
    ]
    await send(client, "orders", values(10))
    received = await receive(one, 10)
    assert await is_quiet(two)
    await one.acknowledge_cumulative(received[5])
    await one.close()
    assert values(4, first=6) == await receive_values(two, 4)


async def test_failover_spreads_the_partitions(client: kledger.Client) -> None:
    await client.create_topic("orders", partitions=4)
    one, two = [
        await client.subscribe(
            "orders", "s", consumer_type="failover", consumer_name=name, failover_delay_ms=0
        )
        for name in ("a", "b")
    ]
    await asyncio.gather(*(send(client, "orders", values(5), key=b"%d" % n) for n in range(40)))
    got_one, got_two = await divided([one, two], 200)
    assert 200 == len({each.id for each in [*got_one, *got_two]})
    for partition in range(4):
        assert (partition in {m.partition for m in got_one}) != (
            partition in {m.partition for m in got_two}
        )
    assert got_one
    assert got_two


async def test_shared_divides(client: kledger.Client, topic: str) -> None:
    one, two = [
        await client.subscribe(topic, "s", consumer_type="shared", receiver_queue_size=10)
        for _ in range(2)
    ]
    producer = await client.create_producer(topic, batching=False)
    await asyncio.gather(*(producer.send(each) for each in values(100)))
    # A consumer that does not read gets no more than its queue holds.
    firsts = [*await receive(two, 1), *await receive(one, 1)]
    found = [firsts, *await divided([one, two], 98)]
    assert sorted(values(100)) == sorted(m.value or b"" for each in found for m in each)
    assert await is_quiet(one)
    assert await is_quiet(two)


async def test_shared_serves_the_higher_priority_first(client: kledger.Client) -> None:
    high = await client.subscribe("orders", "s", consumer_type="shared", priority_level=0)
    await send(client, "orders", [b"the permits have arrived"])
    await receive(high, 1)
    low = await client.subscribe("orders", "s", consumer_type="shared", priority_level=1)
    await send(client, "orders", values(20))
    assert values(20) == await receive_values(high, 20)
    assert await is_quiet(low)


async def test_key_shared_keeps_a_key_with_one_consumer_in_order(
    client: kledger.Client, topic: str
) -> None:
    consumers = [await client.subscribe(topic, "s", consumer_type="key_shared") for _ in range(3)]
    keys = [b"key-%d" % number for number in range(12)]
    await asyncio.gather(*(send(client, topic, values(10), key=key) for key in keys))
    owners: dict[bytes, set[int]] = {key: set() for key in keys}
    found: dict[bytes, list[bytes | None]] = {key: [] for key in keys}
    for number, got in enumerate(await divided(consumers, 120)):
        for message in got:
            assert message.key is not None
            owners[message.key].add(number)
            found[message.key].append(message.value)
    assert {1} == {len(each) for each in owners.values()}
    assert {key: values(10) for key in keys} == found


async def test_sticky_ranges_decide_and_must_not_overlap(client: kledger.Client) -> None:
    low = await client.subscribe(
        "orders", "s", consumer_type="key_shared", key_ranges=[(0, 32_767)]
    )
    with pytest.raises(kledger.ConsumerAssign):
        await client.subscribe("orders", "s", consumer_type="key_shared", key_ranges=[(5, 5)])
    high = await client.subscribe(
        "orders", "s", consumer_type="key_shared", key_ranges=[(32_768, 65_535)]
    )
    keys = [b"key-%d" % number for number in range(20)]
    await asyncio.gather(*(send(client, "orders", [b"v"], key=key) for key in keys))
    got_low, got_high = await divided([low, high], 20)
    assert got_low
    assert got_high
    assert sorted(keys) == sorted(each.key or b"" for each in [*got_low, *got_high])


async def test_too_many_unacknowledged_stop_the_flow(client: kledger.Client) -> None:
    consumer = await client.subscribe(
        "orders", "s", consumer_type="shared", max_unacked=10, receiver_queue_size=2
    )
    producer = await client.create_producer("orders", batching=False)
    await asyncio.gather(*(producer.send(each) for each in values(30)))
    received = [*await receive(consumer, 10), *await drain(consumer)]
    assert len(received) < 15
    for message in received:
        await consumer.acknowledge(message)
    assert await consumer.batch_receive(1, timeout_ms=SOON_MS)


async def test_names_of_the_consumers_are_in_the_statistics(
    client: kledger.Client, topic: str
) -> None:
    names = {"b", "a"}
    for name in names:
        await client.subscribe(topic, "s", consumer_type="shared", consumer_name=name)
    stats = await client.subscription_stats(topic, "s")
    assert (names, "shared") == (set(stats.consumers), stats.type)
