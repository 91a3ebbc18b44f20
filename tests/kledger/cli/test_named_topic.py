"""`kledger named-topic` against a running server."""

import pytest

from kledger.native.client.client import Client
from kledger.process import ServerProcess
from tests.kledger.cli.serving import Capture, Shell
from tests.native.contract.named_topics.words import publish, receive
from tests.native.contract.words import values


@pytest.fixture
def named_topic(server: ServerProcess, capsys: Capture) -> Shell:
    return Shell(server.native_address, capsys, "named-topic")


@pytest.fixture
def orders(named_topic: Shell, topic: str) -> str:
    """A named topic of two channels; its group has committed two of three elements."""

    async def make(client: Client) -> None:
        made = await client.named_topic(topic, channel_count=2, retain_values=True)
        async with await made.create_subscriber(group="workers") as subscriber:
            await publish(made, values(3), channel=1)
            await (await receive(subscriber, 2))[1].commit()

    named_topic.with_client(make)
    return topic


def test_list_and_describe(named_topic: Shell, orders: str) -> None:
    assert orders in named_topic("list").out
    assert orders in named_topic("list", "--json").json["named_topics"]
    lines = named_topic("describe", orders).out
    assert ["channel_count: 2", "retain_values: True", "element_expiry_ms: -"] == lines[:3]
    assert ["GROUP", "CHANNEL", "OWNER", "COMMITTED", "HEAD", "END", "REMAINING"] == lines[
        -3
    ].split()
    assert ["workers", "0", "-", "-", "0", "0", "0"] == lines[-2].split()
    assert ["workers", "1", "-", "1", "0", "3", "1"] == lines[-1].split()
    found = named_topic("describe", orders, "--json").json
    assert (orders, 2, 1) == (
        found["name"],
        found["options"]["channel_count"],
        len(found["groups"]),
    )
    assert {"channel": 1, "owner": None, "committed": 1, "head": 0, "end": 3, "remaining": 1} == (
        found["groups"][0]["channels"][1]
    )


def test_groups_show_their_subscribers(named_topic: Shell, orders: str) -> None:
    assert ["workers", "0", "1", "-", "-"] == named_topic("groups", orders).out[1].split()

    async def while_subscribed(client: Client) -> None:
        topic = await client.find_named_topic(orders)
        subscriber = await topic.create_subscriber(group="workers")
        found = await topic.describe_groups()
        assert [(subscriber.id,)] == [each.subscribers for each in found]
        assert {subscriber.id} == {each.owner for each in found[0].channels}

    named_topic.with_client(while_subscribed)
    assert "workers" == named_topic("groups", orders, "--json").json["groups"][0]["name"]


def test_destroy_group_and_topic(named_topic: Shell, orders: str) -> None:
    result = named_topic("destroy-group", orders, "workers")
    assert (0, [f"group workers of {orders}: destroyed"]) == (result.code, result.out)
    assert 1 == named_topic("destroy-group", orders, "workers").code
    assert [] == named_topic("groups", orders, "--json").json["groups"]
    result = named_topic("destroy", orders)
    assert (0, [f"named topic {orders}: destroyed"]) == (result.code, result.out)
    assert 2 == named_topic("destroy", orders).code
    assert 2 == named_topic("describe", orders).code
    assert 0 == named_topic.of("topic")("create", orders).code
    assert 2 == named_topic("destroy", orders).code, "it is no named topic"
