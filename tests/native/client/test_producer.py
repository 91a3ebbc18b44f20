"""A producer over its partitions; its guarantees are tested by the contract."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.batches.reader import iterate_records
from kledger.native.broker import TopicInfo
from kledger.native.client.producer import Producer
from kledger.native.errors import AlreadyClosed, Full, InvalidArgument, Unavailable
from tests.native.client_builders import Rig, rig, ticks


@asynccontextmanager
async def producing(
    *, max_pending: int = 10, partitions: int = 1
) -> AsyncIterator[tuple[Rig, Producer, list[Producer]]]:
    async with rig() as rig_:
        on_closed: list[Producer] = []
        producer = Producer(
            rig_.services,
            TopicInfo("orders", partitions),
            producer_name=None,
            batching=True,
            max_pending=max_pending,
            on_closed=on_closed.append,
        )
        await producer.open()
        yield rig_, producer, on_closed
        await producer.close()
        assert [producer] == on_closed


async def test_messages_in_flight_are_limited() -> None:
    async with producing(max_pending=2) as (rig_, producer, _):
        hold = rig_.broker.links[0].hold = asyncio.Event()
        sends = [asyncio.ensure_future(producer.send(b"%d" % n)) for n in range(5)]
        await ticks()
        counts = [len(list(iterate_records(each))) for each in rig_.broker.batches]
        assert [2] == counts
        sends[3].cancel()
        hold.set()
        await producer.flush()
        values = [r.value for each in rig_.broker.batches for r in iterate_records(each)]
        assert [b"0", b"1", b"2", b"4"] == values


async def test_send_nowait_raises_full_until_the_queue_has_space() -> None:
    async with producing(max_pending=2) as (rig_, producer, _):
        hold = rig_.broker.links[0].hold = asyncio.Event()
        first = [producer.send_nowait(b"%d" % n) for n in range(2)]
        with pytest.raises(Full, match="2 of 2 messages"):
            producer.send_nowait(b"full")
        await ticks()
        hold.set()
        assert [0, 1] == [each.offset for each in await asyncio.gather(*first)]
        await ticks()
        await producer.send_nowait(b"2")
        values = [r.value for each in rig_.broker.batches for r in iterate_records(each)]
        assert [b"0", b"1", b"2"] == values


async def test_send_nowait_does_not_overtake_a_send_that_waits() -> None:
    async with producing(max_pending=1) as (rig_, producer, _):
        hold = rig_.broker.links[0].hold = asyncio.Event()
        sends = [asyncio.ensure_future(producer.send(b"%d" % n)) for n in range(2)]
        await ticks()
        with pytest.raises(Full):
            producer.send_nowait(b"full")
        hold.set()
        await asyncio.gather(*sends)


async def test_send_nowait_raises_wrong_arguments_at_once() -> None:
    async with producing() as (rig_, producer, _):
        with pytest.raises(InvalidArgument):
            producer.send_nowait("text")  # type: ignore[arg-type]
        cancelled = producer.send_nowait(b"v")
        cancelled.cancel()
        await ticks()
        await producer.close()
        assert [] == rig_.broker.batches
        with pytest.raises(AlreadyClosed):
            producer.send_nowait(b"late")


async def test_partition_that_cannot_be_opened_closes_the_others() -> None:
    async with rig() as rig_:
        producer = Producer(
            rig_.services,
            TopicInfo("orders", 3),
            producer_name=None,
            batching=True,
            max_pending=1,
            on_closed=lambda _: None,
        )
        rig_.broker.fail_next = Unavailable("no")
        with pytest.raises(Unavailable):
            await producer.open()
        assert [True, True] == [each.is_closed for each in rig_.broker.links]


async def test_new_partitions_are_used() -> None:
    """The broker's topic has three; this producer knew of one."""
    async with producing(partitions=1) as (rig_, producer, _):
        await rig_.pass_ms(rig_.services.partition_refresh_ms)
        assert 3 == len(rig_.broker.links)
        found = [(await producer.send(b"v")).partition for _ in range(6)]
        assert [0, 1, 2] * 2 == found


async def test_failed_producer_raises_to_all_senders() -> None:
    async with producing(max_pending=1) as (rig_, producer, _):
        rig_.broker.links[0].hold = asyncio.Event()
        sends = [asyncio.ensure_future(producer.send(b"v")) for _ in range(2)]
        await ticks()
        producer.fail(Unavailable("broken"))
        for each in [*sends, producer.send(b"v")]:
            with pytest.raises(Unavailable, match="broken"):
                await each


async def test_cancelled_close_continues() -> None:
    """It ends with the client at the latest, so that no caller waits for ever."""
    async with producing(max_pending=1) as (rig_, producer, _):
        rig_.broker.links[0].hold = asyncio.Event()
        sends = [asyncio.ensure_future(producer.send(b"v")) for _ in range(2)]
        await ticks()
        closing = asyncio.ensure_future(producer.close())
        await ticks()
        closing.cancel()
        await ticks()
        assert not sends[0].done()
        await rig_.services.supervisor.close()
        for each in sends:
            with pytest.raises(AlreadyClosed):
                await each
        assert rig_.broker.links[0].is_closed


async def test_leaving_the_context_closes() -> None:
    async with producing() as (_, producer, on_closed):
        async with producer:
            await producer.send(b"v")
        assert [producer] == on_closed
        assert ("orders", None) == (producer.topic, producer.producer_name)
