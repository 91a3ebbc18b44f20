"""Subscribers and publishers whose server is restarted, killed or cut off."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kledger
from kledger.named_topics.subscriber_group import SubscriberGroup
from kledger.process import ServerProcess
from kledger.testing import Server
from tests.native.contract.named_topics.group_functions import is_odd
from tests.native.contract.named_topics.words import (
    SETTINGS,
    Listener,
    publish,
    receive,
    receive_values,
    soon,
    until,
)
from tests.native.contract.words import values
from tests.native.muted_proxy import muted_proxy


async def test_subscriber_goes_on_behind_its_commit_when_its_server_is_restarted(
    tmp_path: Path, port: int
) -> None:
    address = f"127.0.0.1:{port}"
    listener = Listener()
    server = Server(tmp_path, native=address)
    await server.start()
    async with kledger.connect(f"kledger://{address}") as client:
        topic = await client.named_topic("orders", channel_count=2)
        subscriber = await topic.create_subscriber(group="g", listeners=[listener])
        anonymous = await topic.create_subscriber()
        publisher = await topic.create_publisher(order_by=kledger.OrderBy.id(1))
        for value in values(4):
            await publisher.publish(value)
        held = await receive(subscriber, 3)
        await held[1].commit()
        await (await receive(anonymous, 3))[0].commit()
        await server.stop()
        server = Server(tmp_path, native=address)
        await server.start()
        # Elements that were received before can be committed: nobody else has owned the channel.
        assert "committed" == (await held[2].commit()).status
        await publisher.publish(b"4")
        assert [b"3", b"4"] == await receive_values(subscriber, 2)
        assert [b"1", b"2", b"3", b"4"] == await receive_values(anonymous, 4)
        assert 2 == await subscriber.get_remaining_messages()
        await until(lambda: listener.calls.count(("assigned", frozenset({0, 1}))) == 2)
        assert ("lost", frozenset({0, 1})) == listener.calls[1]
    await server.stop()


async def test_group_whose_function_is_not_allowed_any_more_gets_no_subscribers(
    tmp_path: Path,
) -> None:
    async with kledger.embedded(tmp_path, settings=SETTINGS) as client:
        topic = await client.named_topic("orders", channel_count=1)
        await topic.ensure_subscriber_group("g", filter=f"{is_odd.__module__}:is_odd")
        await publish(topic, values(2))
    async with kledger.embedded(tmp_path) as client:
        topic = await client.named_topic("orders")
        message = "filter of group g: expected .* one of the modules .none., got .*is_odd"
        with pytest.raises(kledger.NotAllowed, match=message):
            await topic.create_subscriber(group="g")
        await topic.create_subscriber(group="h")
    async with kledger.embedded(tmp_path, settings=SETTINGS) as client:
        topic = await client.named_topic("orders")
        subscriber = await topic.create_subscriber(group="g")
        assert [b"1"] == await receive_values(subscriber, 1)


async def test_anonymous_subscriber_leaves_nothing_behind_a_restart_of_its_server(
    tmp_path: Path, port: int
) -> None:
    """It may leave before it has noticed the restart."""
    address = f"127.0.0.1:{port}"
    server = Server(tmp_path, native=address)
    await server.start()
    async with kledger.connect(f"kledger://{address}") as client:
        topic = await client.named_topic("orders", channel_count=2)
        subscriber = await topic.create_subscriber()
        await server.stop()
        server = Server(tmp_path, native=address)
        await server.start()
        assert ["orders"] == await client.named_topics()
        await subscriber._membership.leave()
        assert [] == await topic.describe_groups()
    await server.stop()


async def test_subscribers_that_have_lost_their_server_close_at_once(tmp_path: Path) -> None:
    server = Server(tmp_path, native="127.0.0.1:0")
    await server.start()
    url = f"kledger://{server.native_address}"
    async with kledger.connect(url, operation_timeout_ms=600_000) as client:
        topic = await client.named_topic("orders", channel_count=2)
        subscribers = [await topic.create_subscriber(group=group) for group in ("g", None)]
        await server.stop()
        await until(lambda: not any(each.channels for each in subscribers))
        for each in subscribers:
            await soon(each.close())  # a call would wait for the server for ten minutes


async def test_stopping_server_does_not_wait_for_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither a poll that ends by itself nor a grace that is over lets the server stop.
    for limit in (
        "kledger.wiring.STOP_GRACE_MS",
        "kledger.named_topics.service.WAIT_MS_MAX",
        "kledger.native.client.named_topics.channel_polling.POLL_WAIT_MS_MAX",
    ):
        monkeypatch.setattr(limit, 600_000)
    parked = asyncio.Event()
    right_add_wake = SubscriberGroup.add_wake

    def add_wake(group: SubscriberGroup, wake: Callable[[], None]) -> None:
        right_add_wake(group, wake)
        parked.set()

    monkeypatch.setattr(SubscriberGroup, "add_wake", add_wake)
    server = Server(tmp_path, native="127.0.0.1:0")
    await server.start()
    client = kledger.connect(
        f"kledger://{server.native_address}", operation_timeout_ms=600_000, keepalive_ms=600_000
    )
    await client.__aenter__()
    topic = await client.named_topic("orders", channel_count=1)
    subscriber = await topic.create_subscriber(group="g")
    waiting = asyncio.create_task(subscriber.receive())
    await soon(parked.wait())
    await soon(server.stop())
    waiting.cancel()
    await client.__aexit__(None, None, None)


async def test_rows_of_groups_outlive_a_restart_and_those_of_deleted_topics_do_not(
    tmp_path: Path,
) -> None:
    async with kledger.embedded(tmp_path) as client:
        for name in ("kept", "deleted"):
            topic = await client.named_topic(name, channel_count=2, page_bytes=77)
            subscriber = await topic.create_subscriber(group="g")
            positions = await publish(topic, values(3), channel=1)
            await (await receive(subscriber, 2))[1].commit()
        await client.delete_topic("deleted")
    async with kledger.embedded(tmp_path) as client:
        assert ["kept"] == await client.named_topics()
        topic = await client.named_topic("kept")
        assert (2, 77, ["g"]) == (
            topic.channel_count,
            topic.options.page_bytes,
            await topic.subscriber_groups(),
        )
        subscriber = await topic.create_subscriber(group="g")
        assert {1: positions[1]} == await subscriber.get_last_committed()
        # What was committed by all is gone, before the log was trimmed and after the restart.
        assert {1: positions[2]} == await subscriber.seek_to_head(1)
        assert [b"2"] == await receive_values(subscriber, 1)
        again = await client.named_topic("deleted", channel_count=1)
        assert [] == await again.subscriber_groups()


async def test_publisher_stores_nothing_twice_over_a_lost_connection(tmp_path: Path) -> None:
    async with (
        Server(tmp_path, native="127.0.0.1:0") as server,
        muted_proxy(int(server.native_address.rpartition(":")[2])) as proxy,
        kledger.connect(f"kledger://127.0.0.1:{proxy.port}", keepalive_ms=1_000) as client,
    ):
        topic = await client.named_topic("orders", channel_count=1)
        subscriber = await topic.create_subscriber(group="g")
        publisher = await topic.create_publisher()
        sending = [asyncio.create_task(publisher.publish(each)) for each in values(50)]
        await soon(sending[0])
        proxy.cut()
        await soon(asyncio.gather(*sending))
        seen: list[object] = []
        while len(seen) < 50:
            seen += [
                each
                for each in await receive_values(subscriber, 1)
                if each not in seen  # what was received before the cut comes again
            ]
        assert values(50) == seen
        assert 50 == await subscriber.get_remaining_messages()


WORKER = """
import asyncio, sys, kledger

async def main():
    async with kledger.connect(sys.argv[1]) as client:
        subscriber = await client.create_subscriber("orders", group="workers")
        print("ready", flush=True)
        while True:
            element = await subscriber.receive()
            result = await element.commit()
            if result.is_success:
                print(element.value.decode(), flush=True)

asyncio.run(main())
"""


class Worker:
    """A process that receives and commits; it prints what is committed."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE
        )

    def lines(self, count: int) -> list[bytes]:
        """Wait for as many lines."""
        assert self._process.stdout is not None
        return [self._process.stdout.readline().strip() for _ in range(count)]

    def kill(self) -> list[bytes]:
        """Kill it; return what it has printed since."""
        assert self._process.stdout is not None
        self._process.kill()
        with self._process:
            return [line.strip() for line in self._process.stdout]


@pytest.mark.slow
async def test_kills_of_server_and_workers_lose_nothing_and_repeat_nothing_committed(
    tmp_path: Path, port: int
) -> None:
    address = f"127.0.0.1:{port}"
    url = f"kledger://{address}"
    server = ServerProcess("--data", str(tmp_path), native=address).start()
    try:
        async with kledger.connect(url, operation_timeout_ms=60_000) as client:
            topic = await client.named_topic("orders", channel_count=3, subscriber_timeout_ms=1_000)
            await topic.ensure_subscriber_group("workers")
            publisher = await topic.create_publisher(order_by="round_robin")
            done: list[bytes] = []
            for number in range(3):
                worker = Worker(url)
                await asyncio.to_thread(worker.lines, 1)
                for value in values(30, first=30 * number):
                    await publisher.publish(value)
                done += await asyncio.to_thread(worker.lines, 20)
                if number == 1:
                    server.kill()
                    server = ServerProcess("--data", str(tmp_path), native=address).start()
                done += await asyncio.to_thread(worker.kill)
            subscriber = await topic.create_subscriber(group="workers")
            rest: list[bytes] = []
            while await subscriber.get_remaining_messages() or len(subscriber.channels) < 3:
                batch = await subscriber.receive_batch(100)
                rest += [each.value for each in batch if (await each.commit()).is_success]
        assert len(rest) == len(set(rest))
        assert set() == set(done) & set(rest)
        # A worker may be killed between its commit and its line.
        assert len(set(values(90)) - set(done) - set(rest)) <= 3
    finally:
        server.kill()
