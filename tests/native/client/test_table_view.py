"""A table view over faults; its guarantees are tested by the contract."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.ledger import Position
from kledger.native.broker import EARLIEST, TopicInfo
from kledger.native.client.entry_reader import EntryReader
from kledger.native.client.subscribe_options import SubscribeOptions
from kledger.native.client.table_view import LISTENERS_MAX, REFRESHES_MAX, TableView
from kledger.native.errors import AlreadyClosed, Full, InvalidArgument, Unavailable, Unreadable
from kledger.subscriptions.model import ALL, Delivery
from tests.native.client_builders import Rig, damaged, long_delivery, rig, ticks
from tests.native.recording_broker import RecordingBroker

HANG_SECONDS = 60


class Ends(RecordingBroker):
    """Says that the one partition ends here."""

    end = Position(5, 0)

    async def committed_ends(self, topic: str) -> list[Position]:
        await self._answer(None, "committed_ends", topic)
        return [self.end]


@asynccontextmanager
async def viewing(*, keep_messages: bool = False) -> AsyncIterator[tuple[Rig, Ends, TableView]]:
    broker = Ends()
    async with rig(broker) as it:
        options = SubscribeOptions.for_reader("v", EARLIEST, is_inclusive=True)
        topic = TopicInfo("orders", 1)
        reader = EntryReader(it.services, topic, options, partition_refresh_ms=60_000)
        view = TableView(
            it.services,
            reader,
            strategy=None,
            keep_messages=keep_messages,
            on_closed=lambda _: None,
        )
        opening = asyncio.ensure_future(view.load(None))
        await ticks()
        broker.links[0].on_read_position(broker.end)
        await opening
        try:
            yield it, broker, view
        finally:
            await view.close()


def entry(entry_id: int, *records: NewRecord, codec: Codec = Codec.NONE) -> Delivery:
    return Delivery(Position(5, entry_id), build_batch(records, codec=codec), ALL, 0)


async def test_refresh_survives_the_loss_of_the_link() -> None:
    async with viewing() as (it, broker, view):
        broker.end = Position(5, 2)
        refreshing = asyncio.ensure_future(view.refresh())
        await ticks()
        broker.links[0].deliver([entry(0, NewRecord(b"1", b"a"))])
        await ticks()
        broker.links[0].on_ended(Unavailable("lost"))
        await it.pass_ms(200)
        assert not refreshing.done()
        broker.links[1].deliver([entry(1, NewRecord(b"2", b"a"))])
        await asyncio.wait_for(refreshing, HANG_SECONDS)
        assert b"2" == view.get("a")


async def test_refresh_fails_when_the_server_does_not_say_the_ends() -> None:
    async with viewing() as (_, broker, view):
        broker.fail_next = Unavailable("lost")
        with pytest.raises(Unavailable):
            await view.refresh()
        await view.refresh()


async def test_close_does_not_wait_for_the_ends_of_a_refresh() -> None:
    async with viewing() as (_, broker, view):
        broker.hold_open = asyncio.Event()
        refreshing = asyncio.ensure_future(view.refresh())
        await broker.happened("committed_ends", "orders")
        await view.close()
        with pytest.raises(AlreadyClosed):
            await asyncio.wait_for(refreshing, HANG_SECONDS)


@pytest.mark.parametrize("keep_messages", [False, True])
@pytest.mark.parametrize(
    "bad",
    [damaged(0), long_delivery(0, count=3_000, is_damaged=True)],
    ids=["short", "long"],
)
async def test_damaged_batch_ends_the_view(bad: Delivery, keep_messages: bool) -> None:
    """A table that lacks records without saying so would be worse."""
    async with viewing(keep_messages=keep_messages) as (_, broker, view):
        broker.end = Position(5, 1)
        refreshing = asyncio.ensure_future(view.refresh())
        await ticks()
        broker.links[0].deliver([bad])
        with pytest.raises(Unreadable):
            await asyncio.wait_for(refreshing, HANG_SECONDS)
        with pytest.raises(Unreadable):
            await view.refresh()


@pytest.mark.parametrize("keep_messages", [False, True])
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [3, 5_000])
async def test_records_of_every_batch_are_applied(
    codec: Codec, count: int, keep_messages: bool
) -> None:
    async with viewing(keep_messages=keep_messages) as (_, broker, view):
        broker.end = Position(5, 1)
        records = [NewRecord(b"v" * 100, b"%d" % each) for each in range(count)]
        broker.links[0].deliver([entry(0, *records, codec=codec)])
        await asyncio.wait_for(view.refresh(), HANG_SECONDS)
        assert [each.key for each in records] == list(view)


async def test_only_the_records_of_the_mask_are_applied() -> None:
    async with viewing() as (_, broker, view):
        broker.end = Position(5, 1)
        records = [NewRecord(b"v", b"%d" % each) for each in range(2_500)]
        wanted = {0, 999, 1_000, 2_499}
        mask = sum(1 << each for each in wanted)
        broker.links[0].deliver([entry(0, *records)._replace(records=mask)])
        await asyncio.wait_for(view.refresh(), HANG_SECONDS)
        assert {b"%d" % each for each in wanted} == view.keys()


async def test_other_tasks_run_while_a_long_batch_is_applied() -> None:
    async with viewing() as (_, broker, view):
        sizes = set[int]()
        broker.end = Position(5, 1)
        records = [NewRecord(b"v", b"%d" % each) for each in range(20_000)]
        broker.links[0].deliver([entry(0, *records)])
        while len(view) < len(records):
            sizes.add(len(view))
            await asyncio.sleep(0)
        assert len(sizes) > 10


async def test_other_tasks_run_while_a_snapshot_is_passed_to_a_function() -> None:
    async with viewing() as (_, broker, view):
        broker.end = Position(5, 1)
        records = [NewRecord(b"v", b"%d" % each) for each in range(5_000)]
        broker.links[0].deliver([entry(0, *records)])
        await view.refresh()
        seen: list[bytes] = []
        work = asyncio.ensure_future(view.for_each(lambda key, _: seen.append(key)))
        sizes = set[int]()
        while not work.done():
            await asyncio.sleep(0)
            sizes.add(len(seen))
        assert {1_000, 2_000, 3_000, 4_000, 5_000} <= sizes


async def test_listeners_and_refreshes_have_a_limit() -> None:
    async with viewing() as (_, broker, view):
        with pytest.raises(InvalidArgument):
            view.listen("print")  # type: ignore[arg-type]
        for _ in range(LISTENERS_MAX):
            view.listen(lambda _key, _value: None)
        with pytest.raises(Full):
            view.listen(lambda _key, _value: None)
        broker.end = Position(5, 1)
        waiting = [asyncio.ensure_future(view.refresh()) for _ in range(REFRESHES_MAX)]
        await ticks()
        with pytest.raises(Full):
            await view.refresh()
        broker.links[0].on_read_position(broker.end)
        await asyncio.wait_for(asyncio.gather(*waiting), HANG_SECONDS)
        await view.refresh()
