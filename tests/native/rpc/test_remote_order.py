"""Deliveries to a remote consumer, reader or forwarder after a redelivery, a seek or a reset.

A test holds the wire: what the server had handed out before is written, and reaches the client
behind the call. In one process there is no such time.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from kledger.native.broker import Broker, ConsumerLink, ConsumerRequest
from kledger.native.client.client import Client
from kledger.native.client.consumer import Consumer
from kledger.native.config import NativeConfig
from kledger.native.forwarder.source import LinkSource
from kledger.native.rpc.client import RpcClient
from kledger.runtime.signal import Signal
from kledger.subscriptions.model import Delivery, SubscriptionType
from tests.native.forwarder.builders import values_of
from tests.native.recording_broker import Endings
from tests.native.rpc.connected_pair import TEST_SECONDS, PatientClock
from tests.native.rpc.connected_pair import serving as serving_rpc
from tests.native.rpc.held_wire import HeldWire
from tests.native.serving import Serving, ack, serving, ticks

TYPES = ["exclusive", "failover", "shared", "key_shared"]
VALUES = [b"%d" % number for number in range(10)]
STEPS = 150
PERMITS = 5
REQUEST = ConsumerRequest(
    topic="orders",
    partition=0,
    subscription="s",
    type=SubscriptionType.EXCLUSIVE,
    start="earliest",
    consumer_name="c",
)


@dataclass
class Remote:
    """A service, a connection to it, and a client of that connection."""

    opened: Serving
    broker: RpcClient
    wire: HeldWire
    client: Client


@asynccontextmanager
async def remote(config: NativeConfig | None = None) -> AsyncIterator[Remote]:
    async with (
        asyncio.timeout(TEST_SECONDS),
        serving() as opened,
        serving_rpc(opened.service, config=config) as (_, port),
    ):
        broker = RpcClient(f"127.0.0.1:{port}", clock=PatientClock())
        await broker.connect()

        @asynccontextmanager
        async def connected() -> AsyncIterator[Broker]:
            yield broker

        try:
            async with Client(connected()) as client:
                yield Remote(opened, broker, HeldWire(broker._connection), client)
        finally:
            await broker.close()


async def half_received(remote_: Remote, consumer_type: str) -> Consumer:
    """Return a consumer that has received 0 to 4; 5 is on the wire, later ones are unwritten."""
    consumer = await remote_.client.subscribe(
        "orders", "s", consumer_type=consumer_type, initial_position="earliest"
    )
    for value in "01234":
        await remote_.opened.append(value)
    assert VALUES[:5] == [(await consumer.receive()).value for _ in range(5)]
    remote_.wire.hold()
    for value in "56789":
        await remote_.opened.append(value)
    await remote_.wire.reached()
    return consumer


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_redelivery_precedes_deliveries_in_flight(consumer_type: str) -> None:
    async with remote() as remote_:
        consumer = await half_received(remote_, consumer_type)
        await consumer.redeliver_unacknowledged()
        remote_.wire.release()
        again = [await consumer.receive() for _ in range(10)]
        assert VALUES == [each.value for each in again]
        assert [1] * 5 == [each.redelivery_count for each in again[:5]]


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_permits_of_dropped_deliveries_are_granted_again(consumer_type: str) -> None:
    """With a queue of three, one permit that is lost each time would end it in the third round."""
    async with remote() as remote_:
        consumer = await remote_.client.subscribe(
            "orders", "s", consumer_type=consumer_type, initial_position="earliest",
            receiver_queue_size=3,
        )  # fmt: skip
        for value in VALUES:
            await remote_.opened.append(value.decode())
        for _ in range(10):
            assert VALUES[:5] == [(await consumer.receive()).value for _ in range(5)]
            await consumer.redeliver_unacknowledged()
        assert VALUES == [(await consumer.receive()).value for _ in range(10)]


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_reset_by_the_same_client_drops_deliveries_in_flight(
    consumer_type: str,
) -> None:
    async with remote() as remote_:
        consumer = await half_received(remote_, consumer_type)
        await remote_.client.reset_subscription("orders", "s", "earliest")
        remote_.wire.release()
        again = [await consumer.receive() for _ in range(10)]
        assert [(value, 0) for value in VALUES] == [
            (each.value, each.redelivery_count) for each in again
        ]


@pytest.mark.parametrize("consumer_type", TYPES)
async def test_seek_drops_deliveries_in_flight(consumer_type: str) -> None:
    async with remote() as remote_:
        consumer = await half_received(remote_, consumer_type)
        seeking = asyncio.ensure_future(consumer.seek("latest"))
        while consumer.partitions[0].session is not None:  # noqa: ASYNC110 (ticks of the loop)
            await asyncio.sleep(0)
        remote_.wire.release()
        await seeking
        await remote_.opened.append("new")
        assert b"new" == (await consumer.receive()).value


async def test_seek_of_a_reader_drops_deliveries_in_flight() -> None:
    async with remote() as remote_:
        await remote_.opened.append("0")
        reader = await remote_.client.create_reader("orders", "earliest")
        first = await reader.read_next()
        remote_.wire.hold()
        for value in "123":
            await remote_.opened.append(value)
        await remote_.wire.reached()
        seeking = asyncio.ensure_future(reader.seek(first.id))
        await asyncio.sleep(0)
        remote_.wire.release()
        await seeking
        assert VALUES[:4] == [(await reader.read_next()).value for _ in range(4)]
        assert not await reader.has_message_available()


async def test_forwarder_reads_nothing_from_before_a_reset() -> None:
    async with remote() as remote_:
        await remote_.opened.append("0")
        source = LinkSource(remote_.broker, REQUEST)
        number = await source.rewind()
        (entry,) = await source.read_or_wait(10, 1 << 20)
        remote_.wire.hold()
        for value in "123":
            await remote_.opened.append(value)
        await remote_.wire.reached()
        reading = asyncio.ensure_future(source.read_or_wait(10, 1 << 20))
        await asyncio.sleep(0)
        await remote_.broker.reset_subscription(
            "orders", "s", "earliest", partition=None, inclusive=True
        )
        assert source.is_outdated(number)
        remote_.wire.release()
        assert [] == await reading
        await source.mark_delete(entry, number)
        await source.rewind()
        found: list[bytes | None] = []
        while len(found) < 4:
            for each in await source.read_or_wait(10, 1 << 20):
                found += values_of(each.data)
        assert VALUES[:4] == found
        await source.close()


class Storm:
    """One consumer that reads, acknowledges and redelivers, over a wire that is held and released.

    It returns a permit for every record that it gets; a lost or doubled permit adds up.
    """

    def __init__(self, remote_: Remote, kind: SubscriptionType, seed: int) -> None:
        self.redelivered = 0
        self._remote = remote_
        self._kind = kind
        self._random = random.Random(seed)
        self._appended = 0
        self._acknowledged: set[str] = set()
        self._outstanding: list[str] = []  # what must come, and in which order
        self._taken: list[tuple[str, Delivery]] = []  # since the last redelivery
        self._changed = Signal()
        self._link: ConsumerLink

    async def blow(self, steps: int) -> None:
        request = replace(REQUEST, type=self._kind)
        self._link = await self._remote.broker.open_consumer(
            request, deliver=self._deliver, on_ended=Endings()
        )
        self._link.add_permits(PERMITS)
        for _ in range(steps):
            await self._random.choice(
                (self._append, self._append, self._acknowledge, self._ask_again, self._hold)
            )()
            await ticks(self._random.choice((0, 1, 3, 10, 40)))
        self._remote.wire.release()
        while self._outstanding:
            await self._changed.wait()
        await ticks(200)
        assert len(self._acknowledged) + len(self._taken) == self._appended

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            (value,) = values_of(each.data)
            assert value is not None
            name = value.decode()
            assert name in self._outstanding, f"{name} came twice, or was acknowledged"
            if self._kind is SubscriptionType.EXCLUSIVE:
                assert self._outstanding[0] == name
            self._outstanding.remove(name)
            self._taken.append((name, each))
            self._link.add_permits(1)
        self._changed.notify()

    async def _append(self) -> None:
        for _ in range(self._random.randrange(1, 6)):
            name = str(self._appended)
            self._appended += 1
            self._outstanding.append(name)
            await self._remote.opened.append(name)

    async def _acknowledge(self) -> None:
        if not self._taken:
            return
        # Answers travel by the same wire.
        self._remote.wire.release()
        acknowledged = self._taken[: self._random.randrange(1, 5)]
        del self._taken[: len(acknowledged)]
        self._acknowledged |= {name for name, _ in acknowledged}
        await self._link.acknowledge([ack(each, size=1) for _, each in acknowledged])

    async def _ask_again(self) -> None:
        self.redelivered += 1
        self._taken.clear()
        names = map(str, range(self._appended))
        self._outstanding = [each for each in names if each not in self._acknowledged]
        self._link.redeliver(None)

    async def _hold(self) -> None:
        if self._random.random() < 0.5:
            self._remote.wire.hold()
        else:
            self._remote.wire.release()


@pytest.mark.parametrize("kind", list(SubscriptionType))
@pytest.mark.parametrize("seed", range(5))
async def test_a_storm_of_redeliveries_keeps_order_and_permits(
    kind: SubscriptionType, seed: int
) -> None:
    config = NativeConfig(delivery_bytes_max=(1_000, 1 << 20)[seed % 2])
    async with remote(config) as remote_:
        await remote_.opened.log()
        storm = Storm(remote_, kind, seed)
        await storm.blow(STEPS)
        assert storm.redelivered > STEPS // 20
