"""Records of Kafka's transactional producers, as native clients see them."""

from collections.abc import AsyncIterator

import pytest

import kledger
from kledger.testing import Server
from tests.gateway.txn_client import TxnClient
from tests.gateway.wire_client import WireClient
from tests.native.contract.words import SOON_MS, is_quiet, receive_values

TOPIC = "t"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(native="127.0.0.1:0") as server:
        yield server


@pytest.fixture
async def native(server: Server) -> AsyncIterator[kledger.Client]:
    async with kledger.connect(f"kledger://{server.native_address}") as client:
        await client.create_topic(TOPIC)
        yield client


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[WireClient]:
    host, port = server.kafka_address.rsplit(":", 1)
    async with WireClient(host, int(port)) as client:
        yield client


async def begun(wire: WireClient, name: str) -> TxnClient:
    """A producer whose transaction has begun in the topic."""
    producer = TxnClient(wire, name)
    assert 0 == await producer.init()
    assert {0: 0} == await producer.add(0)
    return producer


async def read_all(reader: kledger.Reader) -> list[bytes | None]:
    """Read while `has_message_available` is true."""
    found = []
    while await reader.has_message_available():
        found.append((await reader.read_next(timeout_ms=SOON_MS)).value)
    return found


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
async def test_consumers_see_commits_when_they_are_made_and_no_aborts(
    native: kledger.Client, wire: WireClient, kind: str
) -> None:
    consumer = await native.subscribe(TOPIC, "s", consumer_type=kind, initial_position="earliest")
    good, bad = await begun(wire, "good"), await begun(wire, "bad")
    for number in range(3):
        assert 0 == await bad.produce(b"-")
        assert 0 == await good.produce(b"%d" % number)
    assert await is_quiet(consumer)
    assert 0 == await good.end(commit=True)
    assert await is_quiet(consumer), "the other one began before it"
    assert 0 == await bad.end(commit=False)
    assert [b"0", b"1", b"2"] == await receive_values(consumer, 3)
    assert await is_quiet(consumer)


async def test_readers_see_committed_records_only(native: kledger.Client, wire: WireClient) -> None:
    earliest = await native.create_reader(TOPIC, "earliest")
    latest = await native.create_reader(TOPIC, "latest")
    timed = await native.create_reader(TOPIC, 0)
    readers = (earliest, latest, timed)
    producer = await begun(wire, "x")
    assert 0 == await producer.produce(b"-")
    for reader in readers:
        assert [] == await read_all(reader), "it is open"
    assert 0 == await producer.end(commit=False)
    for reader in readers:
        assert [] == await read_all(reader), "it was aborted"
    await producer.add(0)
    assert 0 == await producer.produce(b"a")
    begins_now = await native.create_reader(TOPIC, "latest")
    assert 0 == await producer.end(commit=True)
    for reader in (*readers, begins_now):
        first = await reader.read_next(timeout_ms=SOON_MS)  # the marker may follow the answer
        assert [b"a"] == [first.value, *await read_all(reader)]


async def test_newest_message_is_one_that_is_committed(
    native: kledger.Client, wire: WireClient
) -> None:
    consumer = await native.subscribe(TOPIC, "s", initial_position="earliest")
    producer = await begun(wire, "x")
    assert 0 == await producer.produce(b"a")
    assert -1 == (await consumer.get_last_message_id()).entry_id
    assert 0 == await producer.end(commit=True)
    message = await consumer.receive(timeout_ms=SOON_MS)
    assert message.id == await consumer.get_last_message_id()
    await producer.add(0)
    assert 0 == await producer.produce(b"-")
    assert 0 == await producer.end(commit=False)
    assert message.id == await consumer.get_last_message_id()
