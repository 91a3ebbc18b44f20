"""The guarantees of a reader."""

import asyncio

import pytest

import kledger
from tests.native.contract.words import QUIET_MS, SOON_MS, send, turn_loop, values


async def read(reader: kledger.Reader, count: int) -> list[bytes | None]:
    return [(await reader.read_next(timeout_ms=SOON_MS)).value for _ in range(count)]


async def read_all(reader: kledger.Reader) -> list[bytes | None]:
    """Read while `has_message_available` is true."""
    found = []
    while await reader.has_message_available():
        found += await read(reader, 1)
    return found


async def test_reader_begins_at_either_end(client: kledger.Client, topic: str) -> None:
    await send(client, topic, values(10))
    earliest = await client.create_reader(topic, "earliest")
    latest = await client.create_reader(topic, "latest")
    assert not await latest.has_message_available()
    assert sorted(values(10)) == sorted(each or b"" for each in await read_all(earliest))
    await send(client, topic, [b"new"])
    assert [b"new"] == await read_all(latest)
    assert [b"new"] == await read_all(earliest)


async def test_reader_begins_behind_or_at_a_message(client: kledger.Client) -> None:
    sent = await send(client, "orders", values(10))
    behind = await client.create_reader("orders", sent[3])
    at = await client.create_reader("orders", sent[3], inclusive=True)
    assert await behind.has_message_available()
    assert values(6, first=4) == await read_all(behind)
    assert values(7, first=3) == await read_all(at)
    last = await client.create_reader("orders", sent[9])
    assert not await last.has_message_available()
    last = await client.create_reader("orders", sent[9], inclusive=True)
    assert values(1, first=9) == await read_all(last)


async def test_message_id_cannot_start_a_reader_of_several_partitions(
    client: kledger.Client,
) -> None:
    await client.create_topic("orders", partitions=2)
    (sent,) = await send(client, "orders", [b"v"])
    with pytest.raises(kledger.InvalidArgument):
        await client.create_reader("orders", sent)


async def test_reader_begins_at_a_time(client: kledger.Client, topic: str) -> None:
    producer = await client.create_producer(topic)
    for time in (1_000, 2_000, 3_000):
        await producer.send(b"%d" % time, key=b"k", event_timestamp=time)
    reader = await client.create_reader(topic, 1_500)
    assert [b"2000", b"3000"] == await read_all(reader)
    late = await client.create_reader(topic, 3_001)
    assert not await late.has_message_available()


async def test_reader_times_out(client: kledger.Client, topic: str) -> None:
    await send(client, topic, [b"old"])
    reader = await client.create_reader(topic, "latest")
    with pytest.raises(kledger.Timeout):
        await reader.read_next(timeout_ms=QUIET_MS)
    waiting = asyncio.ensure_future(reader.read_next())
    await send(client, topic, [b"new"])
    assert b"new" == (await asyncio.wait_for(waiting, SOON_MS / 1000)).value


async def test_reader_seeks(client: kledger.Client, topic: str) -> None:
    sent = await send(client, topic, values(10), key=b"k")
    reader = await client.create_reader(topic, "earliest")
    await read(reader, 8)
    await reader.seek(sent[2])
    assert values(8, first=2) == await read_all(reader)
    await reader.seek(sent[2], inclusive=False)
    assert values(7, first=3) == await read_all(reader)
    await reader.seek("earliest")
    assert values(10) == await read_all(reader)
    await reader.seek("earliest")
    await reader.seek("latest")
    assert not await reader.has_message_available()
    await reader.seek(0)
    assert values(10) == await read_all(reader)


async def test_reader_that_seeks_reads_nothing_from_before(
    client: kledger.Client, topic: str
) -> None:
    """Whatever has got how far when it seeks."""
    sent = await send(client, topic, values(20), key=b"k")
    reader = await client.create_reader(topic, "earliest")
    for count in range(10):
        assert values(3, first=count) == await read(reader, 3)
        await turn_loop(3 * count)
        await reader.seek(sent[count + 1])
    assert values(10, first=10) == await read_all(reader)


async def test_reader_reads_more_than_its_queue_holds(client: kledger.Client, topic: str) -> None:
    for first in range(0, 3_000, 1_000):
        await send(client, topic, values(1_000, first=first))
    reader = await client.create_reader(topic, "earliest")
    assert 3_000 == len(set(await read_all(reader)))


async def test_reader_has_no_visible_subscription(client: kledger.Client, topic: str) -> None:
    await send(client, topic, values(3))
    one = await client.create_reader(topic, "earliest")
    other = await client.create_reader(topic, "earliest")
    assert [] == await client.subscriptions(topic)
    assert 3 == len(await read_all(one)) == len(await read_all(other))


async def test_closed_reader_raises(client: kledger.Client, topic: str) -> None:
    reader = await client.create_reader(topic, "earliest")
    waiting = asyncio.ensure_future(reader.read_next())
    await asyncio.sleep(0)
    await reader.close()
    await reader.close()
    with pytest.raises(kledger.AlreadyClosed):
        await waiting
    assert [] == [message async for message in reader]
    with pytest.raises(kledger.AlreadyClosed):
        await reader.seek("earliest")


async def test_reader_makes_no_topic(client: kledger.Client) -> None:
    with pytest.raises(kledger.TopicNotFound):
        await client.create_reader("nowhere", "earliest")
    assert [] == await client.topics()
