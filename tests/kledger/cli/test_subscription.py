"""`kledger subscription` against a running server."""

import asyncio

import pytest

from kledger.native.client.client import Client
from kledger.process import ServerProcess
from tests.kledger.cli.serving import Capture, Shell


@pytest.fixture
def subscription(server: ServerProcess, capsys: Capture) -> Shell:
    return Shell(server.native_address, capsys, "subscription")


@pytest.fixture
def orders(subscription: Shell, topic: str) -> str:
    """A topic with four messages, and a subscription `s` that has seen none."""
    subscription.send(topic, b"a", b"b", b"c", b"d", key=b"k")
    assert 0 == subscription("create", topic, "s", "--from", "earliest").code
    return topic


def backlog(subscription: Shell, topic: str, name: str = "s") -> int:
    return int(subscription("stats", topic, name, "--json").json["backlog"])


def peeked(subscription: Shell, topic: str) -> list[str]:
    found = subscription("peek", topic, "s", "--json").json["messages"]
    return [each["value"] for each in found]


def test_create_list_and_delete(subscription: Shell, orders: str) -> None:
    result = subscription("create", orders, "late")
    assert (0, [f"subscription late of {orders}: exists"]) == (result.code, result.out)
    assert ["late", "s"] == subscription("list", orders).out
    assert {"topic": orders, "subscriptions": ["late", "s"]} == subscription(
        "list", orders, "--json"
    ).json
    assert (0, 4) == (backlog(subscription, orders, "late"), backlog(subscription, orders))
    result = subscription("delete", orders, "late")
    assert (0, [f"subscription late of {orders}: deleted"]) == (result.code, result.out)
    assert ["s"] == subscription("list", orders).out


def test_stats(subscription: Shell, orders: str) -> None:
    headings, line = subscription("stats", orders).out
    names = "NAME TYPE BACKLOG UNACKNOWLEDGED REDELIVERED/S REVISIONS CONSUMERS"
    assert names.split() == headings.split()
    assert ["s", "-", "4", "0", "0.0"] == line.split()[:5]
    assert [headings, line] == subscription("stats", orders, "s").out
    found = subscription("stats", orders, "--json").json
    assert [("s", None, 4, [], False)] == [
        (each["name"], each["type"], each["backlog"], each["consumers"], each["is_under_revision"])
        for each in found["subscriptions"]
    ]


def test_stats_while_it_is_consumed(subscription: Shell, orders: str) -> None:
    async def consuming(client: Client) -> None:
        consumer = await client.subscribe(orders, "s", consumer_type="shared", consumer_name="me")
        for _ in range(4):
            await consumer.receive(timeout_ms=60_000)
        _, line = (await asyncio.to_thread(subscription, "stats", orders, "s")).out
        assert ["s", "shared", "4", "4", "me"] == [*line.split()[:4], line.split()[-1]]

    subscription.with_client(consuming)


def test_peek_shows_and_changes_nothing(subscription: Shell, orders: str) -> None:
    lines = subscription("peek", orders, "s", "--count", 2).out
    assert 2 == len(lines)
    assert lines[0].endswith('key[1]="k" value[1]="a" header:"h"[1]="1"')
    assert " partition=0 offset=0 timestamp=" in lines[0]
    [first, *_] = subscription("peek", orders, "s", "--json").json["messages"]
    assert (0, 0, "k", "a", [["h", "1"]]) == (
        first["partition"], first["offset"], first["key"], first["value"], first["headers"],
    )  # fmt: skip
    assert 4 == backlog(subscription, orders)


def test_skip_and_clear(subscription: Shell, orders: str) -> None:
    assert 0 == subscription("skip", orders, "s", 3).code
    assert (["d"], 1) == (peeked(subscription, orders), backlog(subscription, orders))
    assert 0 == subscription("clear", orders, "s").code
    assert ([], 0) == (peeked(subscription, orders), backlog(subscription, orders))


def test_reset(subscription: Shell, orders: str) -> None:
    ids = [each["id"] for each in subscription("peek", orders, "s", "--json").json["messages"]]
    for place, expected in (
        (["latest"], []),
        (["earliest"], ["a", "b", "c", "d"]),
        ([ids[2]], ["c", "d"]),
        ([ids[2], "--after"], ["d"]),
        ([ids[1].rsplit(":", 2)[0]], ["b", "c", "d"]),
        (["1000"], ["a", "b", "c", "d"]),
        (["2999-01-01T00:00:00Z"], []),
        (["2001-01-01T00:00:00+01:00"], ["a", "b", "c", "d"]),
    ):
        result = subscription("reset", orders, "s", *place)
        assert (0, []) == (result.code, result.err)
        assert expected == peeked(subscription, orders), place


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "nowhere"], "no topic is called 'nowhere'"),
        (["stats", "{}", "nobody"], "has no subscription 'nobody'"),
        (["skip", "{}", "s", "0"], "expected a number from 1 on, got '0'"),
        (["reset", "{}", "s", "tomorrow"], "got 'tomorrow'"),
        (["reset", "{}", "s", "2026-01-31T12:00:00"], "with its zone"),
        (["reset", "{}", "s", "1:2:3:4:5"], "got '1:2:3:4:5'"),
        (["reset", "{}", "s", "1:1:0:7"], "partition"),
        (["peek", "{}", "s", "--count", "x"], "got 'x'"),
        (["create", "{}"], "required: NAME"),
    ],
)
def test_mistakes(subscription: Shell, orders: str, words: list[str], message: str) -> None:
    result = subscription(*(word.format(orders) for word in words))
    assert (2, [], 1) == (result.code, result.out, len(result.err)), result.err
    assert message in result.err[0]


def test_a_subscription_with_consumers_is_deleted_by_force(
    subscription: Shell, orders: str
) -> None:
    async def consuming(client: Client) -> None:
        await client.subscribe(orders, "s", consumer_name="me")
        result = await asyncio.to_thread(subscription, "delete", orders, "s")
        assert (1, 1) == (result.code, len(result.err))
        assert result.err[0].endswith("has consumers: me")
        result = await asyncio.to_thread(subscription, "delete", orders, "s", "--force")
        assert 0 == result.code

    subscription.with_client(consuming)
