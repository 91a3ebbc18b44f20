"""What a table view waits for when its last records are such that no consumer gets them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

import kledger
from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kledger.ledger.testing import FaultyEngine
from kledger.testing import Server
from tests.gateway.txn_client import TxnClient
from tests.gateway.wire_client import WireClient
from tests.native.contract.words import SOON_MS, send, turn_loop

SOON = SOON_MS / 1000
TOPIC = "t"


class Clients(NamedTuple):
    """A native client and a Kafka client of one server."""

    native: kledger.Client
    kafka: WireClient

    async def producer(self, name: str) -> TxnClient:
        """Begin a transaction in the topic."""
        producer = TxnClient(self.kafka, name)
        assert 0 == await producer.init()
        assert {0: 0} == await producer.add(0)
        return producer

    async def delete_records(self) -> None:
        """Delete everything there is in partition 0."""
        asked = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(offset=-1)])
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=SOON_MS)
        (found,) = (await self.kafka.ask(request, 2)).topics[0].partitions
        assert 0 == found.error_code


@pytest.fixture(params=["embedded", "remote"])
async def clients(request: pytest.FixtureRequest) -> AsyncIterator[Clients]:
    if request.param == "embedded":
        async with (
            kledger.embedded(None, kafka="127.0.0.1:0") as native,
            connected(native.kafka_address) as kafka,
        ):
            await native.create_topic(TOPIC)
            yield Clients(native, kafka)
        return
    async with (
        Server(native="127.0.0.1:0") as server,
        kledger.connect(f"kledger://{server.native_address}") as remote,
        connected(server.kafka_address) as kafka,
    ):
        await remote.create_topic(TOPIC)
        yield Clients(remote, kafka)


def connected(address: str) -> WireClient:
    host, port = address.rsplit(":", 1)
    return WireClient(host, int(port))


async def refreshed(view: kledger.TableView) -> dict[bytes, bytes]:
    await asyncio.wait_for(view.refresh(), SOON)
    return dict(view.items())


async def loaded(clients: Clients) -> dict[bytes, bytes]:
    """Return what a new view has."""
    async with await asyncio.wait_for(clients.native.create_table_view(TOPIC), SOON) as view:
        return dict(view.items())


async def test_pitfall_markers_and_aborted_records_at_the_end_are_passed(clients: Clients) -> None:
    view = await clients.native.create_table_view(TOPIC)
    await send(clients.native, TOPIC, [b"1"], key=b"a")
    aborting = await clients.producer("aborting")
    for _ in range(3):
        assert 0 == await aborting.produce(b"-", key=b"a")
    assert 0 == await aborting.end(commit=False)
    assert {b"a": b"1"} == await refreshed(view) == await loaded(clients)
    committing = await clients.producer("committing")
    assert 0 == await committing.produce(b"2", key=b"a")
    assert 0 == await committing.end(commit=True)
    while b"2" != view.get("a"):  # the marker may follow the answer
        assert b"a" in await refreshed(view)
    assert {b"a": b"2"} == await refreshed(view) == await loaded(clients)


async def test_pitfall_topic_of_markers_alone_loads(clients: Clients) -> None:
    aborting = await clients.producer("aborting")
    assert 0 == await aborting.produce(b"-", key=b"a")
    assert 0 == await aborting.end(commit=False)
    assert {} == await loaded(clients)


async def test_what_follows_an_open_transaction_is_not_waited_for(clients: Clients) -> None:
    view = await clients.native.create_table_view(TOPIC)
    await send(clients.native, TOPIC, [b"1"], key=b"a")
    open_one = await clients.producer("open")
    assert 0 == await open_one.produce(b"2", key=b"b")
    await send(clients.native, TOPIC, [b"3"], key=b"a")
    assert {b"a": b"1"} == await refreshed(view) == await loaded(clients)
    assert 0 == await open_one.end(commit=True)
    while b"b" not in view:  # the marker may follow the answer
        assert {b"a"} <= (await refreshed(view)).keys()
    assert {b"a": b"3", b"b": b"2"} == await refreshed(view)


async def test_pitfall_last_records_were_deleted_before_the_view_has_read_them(
    clients: Clients,
) -> None:
    view = await clients.native.create_table_view(TOPIC)
    released = asyncio.Event()

    async def slow(_key: bytes, _value: bytes | None) -> None:
        await released.wait()

    view.listen(slow)
    producer = await clients.native.create_producer(TOPIC, max_pending=50_000)
    for number in range(30_000):  # more than a view prefetches
        producer.send_nowait(b"%d" % number, key=b"a")
    await producer.flush()
    refreshing = asyncio.ensure_future(view.refresh())
    await turn_loop()
    await clients.delete_records()
    released.set()
    await asyncio.wait_for(refreshing, SOON)
    assert {} == await loaded(clients)
    await send(clients.native, TOPIC, [b"new"], key=b"a")
    assert {b"a": b"new"} == await refreshed(view) == await loaded(clients)


async def test_pitfall_everything_was_deleted_when_the_view_is_created(clients: Clients) -> None:
    await send(clients.native, TOPIC, [b"1"], key=b"a")
    await clients.delete_records()
    assert {} == await loaded(clients)


@pytest.mark.parametrize("last", ["superseded", "removal", "keyless", "aborted"])
async def test_pitfall_last_message_is_not_in_what_a_compaction_has_kept(
    clients: Clients, last: str
) -> None:
    """The end of the partition is that of an entry of which no record is left, or none is shown."""
    native = clients.native
    before = await native.create_table_view(TOPIC)
    await send(native, TOPIC, [b"1"], key=b"a")
    await send(native, TOPIC, [b"2"], key=b"b")
    expected = {b"a": b"1", b"b": b"2"}
    if last == "superseded":  # the log ends in front of it
        await native.compact(TOPIC)
        await send(native, TOPIC, [b"3"], key=b"b")
        expected[b"b"] = b"3"
    elif last == "removal":
        await send(native, TOPIC, [b""], key=b"b")
        del expected[b"b"]
    elif last == "keyless":
        await send(native, TOPIC, [b"3"])
    else:
        producer = await clients.producer("txn")
        assert 0 == await producer.produce(b"3", key=b"b")
        assert 0 == await producer.end(commit=False)
    await native.compact(TOPIC)
    assert "success" == (await native.compaction_status(TOPIC)).state
    assert expected == await loaded(clients)
    after = await asyncio.wait_for(native.create_table_view(TOPIC), SOON)
    for view in (before, after):
        assert expected == await refreshed(view)


@pytest.mark.parametrize("transport", ["embedded", "remote"])
async def test_read_that_fails_is_repeated(transport: str) -> None:
    engine = FaultyEngine(None)
    settings = {"storage.cache_bytes": 0}
    async with AsyncExitStack() as stack:
        client: kledger.Client = kledger.embedded(None, engine=engine, settings=settings)
        if transport == "remote":
            server = Server(native="127.0.0.1:0", engine=engine, settings={**settings})
            await stack.enter_async_context(server)
            client = kledger.connect(f"kledger://{server.native_address}")
        await stack.enter_async_context(client)
        await client.create_topic(TOPIC)
        await send(client, TOPIC, [b"1"], key=b"a")
        async with await asyncio.wait_for(client.create_table_view(TOPIC), SOON) as view:
            begun = engine.calls["read"]
            for _ in range(3):
                engine.fail_next("read")
            await send(client, TOPIC, [b"2"], key=b"a")
            assert {b"a": b"2"} == await refreshed(view)
            assert engine.calls["read"] >= begun + 4


class First:
    """Keeps the first message of each key."""

    def should_keep_left(self, previous: kledger.Message | None, current: kledger.Message) -> bool:
        return True

    def on_skip(
        self, key: bytes, previous: kledger.Message | None, current: kledger.Message
    ) -> None:
        pass


async def test_pitfall_last_records_without_a_key_or_skipped_ones_are_passed(
    clients: Clients,
) -> None:
    view = await clients.native.create_table_view(TOPIC, strategy=First())
    await send(clients.native, TOPIC, [b"1", b"2"], key=b"a")
    assert {b"a": b"1"} == await refreshed(view)
    await send(clients.native, TOPIC, [b"3"])
    assert {b"a": b"1"} == await refreshed(view) == dict(view.items())


async def test_record_in_the_middle_of_a_batch_begins_the_log(clients: Clients) -> None:
    """The records before it are in the stored batch, and not in the table."""
    producer = await clients.native.create_producer(TOPIC, max_pending=3_000)
    sent = [producer.send_nowait(b"v", key=b"%d" % number) for number in range(3_000)]
    await producer.flush()
    middle = next(
        number
        for number, each in enumerate(sent)
        if number > 1_100 and each.result().batch_index == 5
    )
    asked = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(offset=middle)])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=SOON_MS)
    await clients.kafka.ask(request, 2)
    assert {b"%d" % number for number in range(middle, 3_000)} == (await loaded(clients)).keys()
