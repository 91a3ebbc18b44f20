"""Clients and servers as processes that are killed, stopped and restarted."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kledger
from kledger.native.client.client import Client
from kledger.native.client.consumer import Consumer
from kledger.native.errors import Unavailable
from kledger.native.rpc.client import RpcClient
from kledger.process import ServerProcess, arguments_for
from tests.native.muted_proxy import muted_proxy
from tests.native.recording_broker import Endings

pytestmark = pytest.mark.slow

TEST_SECONDS = 240
KEEPALIVE_MS = 5_000
NOTICED_SECONDS = 60
"""Twice the time above, and whatever a busy machine adds: otherwise it is never noticed."""

HALF_ACKNOWLEDGING = """
import asyncio, sys, kledger

async def main():
    async with kledger.connect(sys.argv[1]) as client:
        consumer = await client.subscribe(
            "orders", "bills", consumer_type="shared", initial_position="earliest",
            receiver_queue_size=30,
        )
        for number in range(20):
            message = await consumer.receive()
            if number % 2:
                await consumer.acknowledge(message)
                print(message.value.decode(), flush=True)
        print("done", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def half_acknowledging(url: str) -> Iterator[tuple[subprocess.Popen[str], set[bytes]]]:
    """Run a consumer that acknowledges half of its messages; yield it and these messages."""
    command = [sys.executable, "-c", HALF_ACKNOWLEDGING, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            acknowledged = {
                line.strip().encode() for line in iter(process.stdout.readline, "done\n")
            }
            assert 10 == len(acknowledged)
            yield process, acknowledged
        finally:
            process.kill()


async def subscribe(client: Client) -> Consumer:
    return await client.subscribe(
        "orders", "bills", consumer_type="shared", initial_position="earliest"
    )


async def everything_else_arrives(url: str, values: set[bytes], acknowledged: set[bytes]) -> None:
    async with kledger.connect(url) as client:
        consumer = await subscribe(client)
        seen: list[bytes] = []
        while len(seen) < len(values - acknowledged):
            message = await consumer.receive()
            await consumer.acknowledge(message)
            seen.append(message.value or b"")
        assert sorted(values - acknowledged) == sorted(seen)
        stats = await client.subscription_stats("orders", "bills")
        assert (0, 0) == (stats.backlog, stats.unacknowledged)


async def produce(url: str) -> set[bytes]:
    values = {b"%d" % number for number in range(100)}
    async with kledger.connect(url) as client:
        producer = await client.create_producer("orders")
        await asyncio.gather(*map(producer.send, values))
    return values


async def test_messages_of_a_killed_consumer_are_redelivered() -> None:
    with ServerProcess("--memory", native="127.0.0.1:0") as server:
        url = f"kledger://{server.native_address}"
        async with asyncio.timeout(TEST_SECONDS):
            values = await produce(url)
            with half_acknowledging(url) as (process, acknowledged):
                process.kill()
                await everything_else_arrives(url, values, acknowledged)


async def test_consumer_that_stands_still_is_noticed() -> None:
    """Its connection stays open: only unanswered pings reveal it."""
    arguments = arguments_for({"native.keepalive_ms": KEEPALIVE_MS})
    with ServerProcess("--memory", *arguments, native="127.0.0.1:0") as server:
        url = f"kledger://{server.native_address}"
        async with asyncio.timeout(TEST_SECONDS):
            values = await produce(url)
            with half_acknowledging(url) as (process, acknowledged):
                process.send_signal(signal.SIGSTOP)
                async with asyncio.timeout(NOTICED_SECONDS):
                    await everything_else_arrives(url, values, acknowledged)


async def test_stopped_server_is_detected_and_reconnected() -> None:
    ended = Endings()
    with ServerProcess("--memory", native="127.0.0.1:0") as server:
        client = RpcClient(server.native_address, keepalive_ms=KEEPALIVE_MS)
        await client.connect()
        await client.create_topic("orders", 1, {})
        await client.open_producer("orders", 0, name="p", on_ended=ended)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(NOTICED_SECONDS):
                assert isinstance(await ended.first(), Unavailable)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        async with asyncio.timeout(TEST_SECONDS):
            link = await client.open_producer("orders", 0, name="p", on_ended=ended)
            await link.close()
            await client.close()
    assert 1 == len(ended.seen)


async def test_clients_go_on_when_a_killed_server_is_back(tmp_path: Path, port: int) -> None:
    """No sent message is lost, no confirmed acknowledgement is forgotten."""
    address = f"127.0.0.1:{port}"
    values = [b"%d" % number for number in range(400)]
    arguments = ("--data", str(tmp_path / "data"))
    async with asyncio.timeout(TEST_SECONDS):
        first = await asyncio.to_thread(ServerProcess(*arguments, native=address).start)
        async with kledger.connect(f"kledger://{address}") as client:
            producer = await client.create_producer("orders")
            consumer = await subscribe(client)
            half_seen = asyncio.Event()

            async def send() -> None:
                for value in values:
                    await producer.send(value)

            acknowledged: set[kledger.MessageId] = set()

            async def receive() -> None:
                seen: set[bytes] = set()
                while len(seen) < len(values):
                    message = await consumer.receive()
                    assert message.id not in acknowledged
                    seen.add(message.value or b"")
                    try:
                        await consumer.acknowledge(message)
                    except Unavailable:
                        continue  # it may come again, or not
                    acknowledged.add(message.id)
                    if len(seen) == len(values) // 2:
                        half_seen.set()

            work = [asyncio.ensure_future(send()), asyncio.ensure_future(receive())]
            await half_seen.wait()
            await asyncio.to_thread(first.kill)
            second = await asyncio.to_thread(ServerProcess(*arguments, native=address).start)
            try:
                await asyncio.gather(*work)
                while (await client.subscription_stats("orders", "bills")).backlog:
                    message = await consumer.receive()
                    assert message.id not in acknowledged
                    await consumer.acknowledge(message)
            finally:
                await asyncio.to_thread(second.stop)


async def until_stored(url: str, count: int) -> None:
    """Return when the log has so many records."""
    async with kledger.connect(url) as observer:
        found = 0
        while found != count:
            (partition,) = (await observer.topic_stats("orders")).partitions
            found = partition.end_offset


@pytest.mark.parametrize("is_batching", [True, False])
async def test_batches_that_a_killed_server_has_not_answered_are_stored_once(
    tmp_path: Path, port: int, is_batching: bool
) -> None:
    """Everything is stored, no answer arrives, and the server is killed and restarted."""
    address, arguments = f"127.0.0.1:{port}", ("--data", str(tmp_path / "data"))
    first = await asyncio.to_thread(ServerProcess(*arguments, native=address).start)
    async with asyncio.timeout(TEST_SECONDS), muted_proxy(port) as proxy:
        url = f"kledger://127.0.0.1:{proxy.port}"
        async with kledger.connect(url) as client:
            producer = await client.create_producer("orders", batching=is_batching)
            await producer.send(b"first")
            proxy.is_muted = True
            sends = [producer.send_nowait(b"%d" % number) for number in range(50)]
            await until_stored(f"kledger://{address}", 51)
            await asyncio.to_thread(first.kill)
            second = await asyncio.to_thread(ServerProcess(*arguments, native=address).start)
            proxy.is_muted = False
            proxy.cut()
            try:
                sent = await asyncio.gather(*sends)
                assert list(range(1, 51)) == [each.offset for each in sent]
                last = await producer.send(b"last")
                assert 51 == last.offset
                reader = await client.create_reader("orders", "earliest")
                received = [await reader.read_next() for _ in range(52)]
                assert sent == [each.id for each in received[1:51]]
                assert [b"%d" % number for number in range(50)] == [
                    each.value for each in received[1:51]
                ]
            finally:
                await asyncio.to_thread(second.stop)
