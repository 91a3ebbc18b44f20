"""An entry reader over the ends of its links; its guarantees are tested by the contract."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.ledger import Position
from kledger.native.broker import EARLIEST, ConsumerRequest, RecordPosition, TopicInfo
from kledger.native.client.entry_reader import EntryReader, ReadEntry, ReadPosition
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.errors import AlreadyClosed, TopicNotFound, Unavailable
from kledger.subscriptions.model import ALL, Acknowledgement
from tests.native.client_builders import Rig, delivery, rig, ticks
from tests.native.recording_broker import RecordingLink

PREFETCH = 10


@asynccontextmanager
async def reading(partition_count: int = 1) -> AsyncIterator[tuple[Rig, EntryReader]]:
    async with rig() as rig_:
        options = SubscribeOptions.for_reader(
            "r", EARLIEST, is_inclusive=True, receiver_queue_size=PREFETCH
        )
        topic = TopicInfo("orders", partition_count)
        reader = EntryReader(rig_.services, topic, options, partition_refresh_ms=1_000)
        await reader.open()
        try:
            yield rig_, reader
        finally:
            await reader.close()


def requests(it: Rig) -> list[ConsumerRequest]:
    return [call[1] for call in it.broker.calls if call[0] == "open_consumer"]


async def read(reader: EntryReader, count: int) -> list[ReadEntry | ReadPosition]:
    async with asyncio.timeout(60):
        return [await reader.read() for _ in range(count)]


def pos(entry_id: int) -> Position:
    return Position(5, entry_id)


async def test_entries_and_read_positions_keep_their_order() -> None:
    async with reading() as (it, reader):
        [link] = it.broker.links
        first, second = delivery(1, b"a", b"b"), delivery(4, b"c")
        link.on_read_position(pos(0))
        link.on_read_position(pos(1))
        link.deliver([first])
        link.on_read_position(pos(3))
        link.on_read_position(pos(4))
        link.deliver([second])
        assert [
            ReadPosition(0, pos(1)), ReadEntry(0, first), ReadPosition(0, pos(4)),
            ReadEntry(0, second),
        ] == await read(reader, 4)  # fmt: skip


async def test_next_link_begins_behind_the_last_entry_that_was_read() -> None:
    async with reading() as (it, reader):
        link = it.broker.links[0]
        link.deliver([delivery(1, b"a"), delivery(2, b"b"), delivery(3, b"c")])
        link.on_read_position(pos(9))
        await read(reader, 1)
        link.on_ended(Unavailable("lost"))
        link.on_read_position(pos(9))
        await it.pass_ms(200)
        again = it.broker.links[1]
        request = requests(it)[1]
        assert (RecordPosition(pos(1)), False) == (request.start, request.is_start_inclusive)
        second = delivery(2, b"b")
        again.deliver([second])
        assert [ReadEntry(0, second)] == await read(reader, 1)


async def test_permits_return_and_read_entries_are_acknowledged() -> None:
    async with reading() as (it, reader):
        link: RecordingLink = it.broker.links[0]
        assert PREFETCH == link.permits
        link.deliver([delivery(each, b"a", b"b") for each in range(1, 4)])
        await read(reader, 3)
        await ticks()
        assert PREFETCH + 6 == link.permits
        acknowledged = [call for call in it.broker.calls if call[1] == "acknowledge_upto"]
        assert [("r", "acknowledge_upto", Acknowledgement(pos(3), ALL, 0))] == acknowledged


async def test_final_error_is_raised_behind_what_was_delivered() -> None:
    async with reading(2) as (it, reader):
        entry = delivery(1, b"a")
        it.broker.links[0].deliver([entry])
        it.broker.links[1].on_ended(TopicNotFound("deleted"))
        assert [ReadEntry(0, entry)] == await read(reader, 1)
        with pytest.raises(TopicNotFound):
            await reader.read()


async def test_new_partitions_are_read_from_the_beginning_once() -> None:
    async with reading() as (it, reader):
        await asyncio.gather(reader.add_partitions_upto(2), it.pass_ms(1_000))
        await ticks()
        assert [0, 1, 2] == [each.partition for each in requests(it)], "the broker has three"
        assert {EARLIEST} == {each.start for each in requests(it)}
        entry = delivery(1, b"a")
        it.broker.links[2].deliver([entry])
        assert [ReadEntry(2, entry)] == await read(reader, 1)


async def test_new_partition_that_cannot_be_opened_is_tried_again() -> None:
    async with reading() as (it, reader):
        it.broker.fail_open = Unavailable("not now")
        with pytest.raises(Unavailable):
            await reader.add_partitions_upto(2)
        it.broker.fail_open = None
        await reader.add_partitions_upto(2)
        assert [0, 1, 1] == [each.partition for each in requests(it)]


async def test_closed_reader_raises() -> None:
    async with reading() as (it, reader):
        waiting = asyncio.ensure_future(reader.read())
        await ticks()
        await reader.close()
        with pytest.raises(AlreadyClosed):
            await waiting
        with pytest.raises(AlreadyClosed):
            await reader.add_partitions_upto(2)
        assert it.broker.links[0].is_closed
