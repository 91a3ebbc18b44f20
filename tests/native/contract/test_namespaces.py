"""Namespaces and policies."""

from collections.abc import Sequence

import pytest

import kledger
from tests.native.contract.words import receive_values, send, values

PRIORITY = "managedLedgerDataReadPriority"
LAG = "managedLedgerOffloadDeletionLagMs"


async def test_namespaces_come_and_go(client: kledger.Client) -> None:
    assert ["public/default"] == await client.namespaces()
    await client.create_namespace("shop/eu")
    assert ["public/default", "shop/eu"] == await client.namespaces()
    with pytest.raises(kledger.NamespaceExists):
        await client.create_namespace("shop/eu")
    await client.create_topic("shop/eu/orders")
    with pytest.raises(kledger.NotAllowed):
        await client.delete_namespace("shop/eu")
    await client.delete_topic("persistent://shop/eu/orders")
    await client.delete_namespace("shop/eu")
    assert ["public/default"] == await client.namespaces()
    with pytest.raises(kledger.NamespaceNotFound):
        await client.delete_namespace("shop/eu")
    with pytest.raises(kledger.NotAllowed):
        await client.delete_namespace("public/default")


@pytest.mark.parametrize("name", ["", "shop", "a/b/c", "shop/..", "shop/a b", "x" * 250 + "/y"])
async def test_bad_namespaces_are_refused(client: kledger.Client, name: str) -> None:
    with pytest.raises(kledger.InvalidArgument):
        await client.create_namespace(name)
    assert ["public/default"] == await client.namespaces()


async def test_topics_of_a_namespace_are_topics_of_their_own(client: kledger.Client) -> None:
    await client.create_namespace("shop/eu")
    for topic in ("orders", "shop/eu/orders"):
        await client.create_topic(topic, partitions=3)
    assert ["orders", "shop/eu/orders"] == await client.topics()
    producer = await client.create_producer("persistent://shop/eu/orders")
    assert "shop/eu/orders" == producer.topic
    await producer.send(b"eu", key=b"a")
    await send(client, "orders", [b"plain"])
    consumer = await client.subscribe("shop/eu/orders", "s", initial_position="earliest")
    assert [b"eu"] == await receive_values(consumer, 1)
    assert "shop/eu/orders" == (await client.topic_stats("shop/eu/orders")).name
    view = await client.create_table_view("shop/eu/orders")
    assert [(b"a", b"eu")] == list(view.items())


async def test_a_topic_needs_its_namespace(client: kledger.Client) -> None:
    for call in (
        client.create_topic("shop/eu/orders"), client.create_producer("shop/eu/orders"),
        client.subscribe("shop/eu/orders", "s"), client.policies("shop/eu"),
        client.set_policies("shop/eu", {"compactionThreshold": "1"}),
    ):  # fmt: skip
        with pytest.raises(kledger.NamespaceNotFound):
            await call
    assert [] == await client.topics()


async def test_a_named_topic_of_a_namespace(client: kledger.Client) -> None:
    await client.create_namespace("shop/eu")
    topic = await client.named_topic("shop/eu/jobs", channel_count=1)
    subscriber = await topic.create_subscriber(group="workers")
    await (await topic.create_publisher()).publish(b"job")
    element = await subscriber.receive()
    assert element is not None
    assert b"job" == element.value
    assert ["shop/eu/jobs"] == await client.named_topics()


async def test_compaction_of_a_topic_of_a_namespace(client: kledger.Client) -> None:
    await client.create_namespace("shop/eu")
    await client.create_topic("shop/eu/states")
    await send(client, "shop/eu/states", values(5), key=b"k")
    await client.compact("shop/eu/states")
    reader = await client.create_reader("shop/eu/states", "earliest", read_compacted=True)
    assert values(1, first=4) == [(await reader.read_next(timeout_ms=60_000)).value]


async def test_policies_are_shown_at_the_level_that_has_them(client: kledger.Client) -> None:
    await client.create_namespace("shop/eu")
    await client.create_topic("shop/eu/orders")
    await client.set_policies(
        "shop/eu", {PRIORITY: "tiered-storage-first", "compactionThreshold": 7}
    )
    await client.set_policies("persistent://shop/eu/orders", {LAG: "5"})
    assert {PRIORITY: "tiered-first", "compactionThreshold": "7"} == await client.policies(
        "shop/eu"
    )
    assert {LAG: "5"} == await client.policies("shop/eu/orders")
    assert {} == await client.policies("public/default")
    await client.set_policies("shop/eu", {PRIORITY: None, "compactionThreshold": "8"})
    assert {"compactionThreshold": "8"} == await client.policies("shop/eu")


async def test_policies_of_the_default_namespace(client: kledger.Client, topic: str) -> None:
    await client.set_policies("public/default", {PRIORITY: "bookkeeper-first"})
    assert {PRIORITY: "bookkeeper-first"} == await client.policies("public/default")
    assert {} == await client.policies(topic)


@pytest.mark.parametrize("name", ["shop/eu", "shop/eu/orders"])
@pytest.mark.parametrize(
    ("policies", "allowed"),
    [
        ({"retention.ms": "1"}, (PRIORITY, "compactionThreshold")),
        ({"nonsense": None}, (PRIORITY, "managedLedgerOffloadThresholdInBytes")),
        ({PRIORITY: "fastest"}, ("tiered-first", "bookkeeper-first")),
        ({"managedLedgerOffloadThresholdInSeconds": "-2"}, ("at least -1",)),
        ({"compactionThreshold": "many"}, ("compactionThreshold",)),
    ],
)
async def test_refused_policies_change_nothing(
    client: kledger.Client, name: str, policies: dict[str, str | None], allowed: Sequence[str]
) -> None:
    await client.create_namespace("shop/eu")
    await client.create_topic("shop/eu/orders")
    await client.set_policies(name, {LAG: "5"})
    with pytest.raises(kledger.InvalidArgument) as caught:
        await client.set_policies(name, {LAG: "6", **policies})
    assert all(word in str(caught.value) for word in allowed)
    assert {LAG: "5"} == await client.policies(name)


async def test_policies_of_what_does_not_exist(client: kledger.Client) -> None:
    for name, error in (
        ("orders", kledger.TopicNotFound), ("shop/eu/orders", kledger.TopicNotFound),
        ("shop/eu", kledger.NamespaceNotFound), ("shop/..", kledger.InvalidArgument),
    ):  # fmt: skip
        with pytest.raises(error):
            await client.policies(name)
        with pytest.raises(error):
            await client.set_policies(name, {"compactionThreshold": "1"})
