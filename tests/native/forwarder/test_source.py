"""The two sources: a cursor, and the consumer of a subscription."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import EARLIEST, AlreadyClosed, LedgerStore, Position, ResetInProgress
from kledger.native.broker import ConsumerRequest, OnEnded, OnReadPosition
from kledger.native.errors import ConsumerBusy, TopicNotFound, Unavailable
from kledger.native.forwarder.forwarder_state import SourceEntry
from kledger.native.forwarder.source import (
    QUEUE_BYTES_MAX,
    QUEUE_RECORDS_FIRST,
    QUEUE_RECORDS_MAX,
    CursorSource,
    LinkSource,
)
from kledger.subscriptions.model import ALL, Deliver, Delivery, SubscriptionType
from tests.native.forwarder.builders import add_batches, ticks, values_of
from tests.native.serving import Serving, serving

BIG = 1 << 20
REQUEST = ConsumerRequest(
    topic="orders", partition=0, subscription="f", type=SubscriptionType.EXCLUSIVE,
    start="earliest",
)  # fmt: skip


@pytest.fixture
async def here() -> AsyncIterator[Serving]:
    async with serving() as opened:
        await opened.append("a", "b", "c")
        await opened.append("d")
        yield opened


def values(entries: list[SourceEntry]) -> list[list[bytes | None]]:
    return [
        [value for index, value in enumerate(values_of(each.data)) if each.records >> index & 1]
        for each in entries
    ]


async def read(source: LinkSource, count: int = 10) -> list[list[bytes | None]]:
    await ticks(50)
    return values(await source.read_or_wait(count, BIG))


async def test_a_consumer_reads_and_acknowledges(here: Serving) -> None:
    source = LinkSource(here.service, REQUEST)
    number = await source.rewind()
    await ticks(50)
    first, second = await source.read_or_wait(10, BIG)
    assert [[b"a", b"b", b"c"], [b"d"]] == values([first, second])
    await source.mark_delete(first, number)
    await source.rewind()
    assert [[b"d"]] == await read(source)
    await source.close()
    await source.close()


async def test_limits_of_a_read(here: Serving) -> None:
    source = LinkSource(here.service, REQUEST)
    await source.rewind()
    assert [[b"a", b"b", b"c"]] == await read(source, 1)
    assert [[b"d"]] == await read(source, 1)
    await source.rewind()
    await ticks(50)
    assert 1 == len(await source.read_or_wait(10, 1))
    await source.close()


async def test_permits_are_returned_with_reads(here: Serving) -> None:
    for value in "efgh":
        await here.append(value)
    source = LinkSource(here.service, REQUEST, records_max=1)
    await source.rewind()
    read_values: list[bytes | None] = []
    while len(read_values) < 8:
        for each in await read(source):
            read_values += each
    assert [b"%c" % each for each in b"abcdefgh"] == read_values
    await source.close()


class PermitCounter:
    """A broker that is its own link, and records permits."""

    def __init__(self) -> None:
        self.deliver: Deliver | None = None
        self.permits: list[int] = []

    async def open_consumer(
        self,
        request: ConsumerRequest,
        *,
        deliver: Deliver,
        on_ended: OnEnded,
        on_read_position: OnReadPosition | None = None,
    ) -> "PermitCounter":
        self.deliver = deliver
        return self

    def add_permits(self, count: int) -> None:
        self.permits.append(count)

    def bring(self, record_count: int, size: int) -> None:
        assert self.deliver is not None
        data = build_batch([NewRecord(bytes(size))] * record_count)
        self.deliver([Delivery(Position(1, 0), data, ALL, 0)])


async def test_larger_records_get_fewer_permits() -> None:
    broker = PermitCounter()
    source = LinkSource(broker, REQUEST)  # type: ignore[arg-type]
    await source.rewind()
    assert [QUEUE_RECORDS_FIRST] == broker.permits
    broker.bring(10, 1)
    await source.read_or_wait(1, BIG)
    assert QUEUE_RECORDS_MAX == sum(broker.permits) - 10
    broker.bring(QUEUE_RECORDS_MAX - 4, 9_000)
    await source.read_or_wait(1, BIG)
    # 16 MiB are about 1,860 of them.
    on_their_way = sum(broker.permits) - 10 - (QUEUE_RECORDS_MAX - 4)
    assert QUEUE_BYTES_MAX // 9_100 < on_their_way < QUEUE_BYTES_MAX // 9_000


async def test_acknowledged_records_are_not_in_the_mask(here: Serving) -> None:
    await here.service.create_subscription("orders", "f", "earliest")
    await here.service.skip_messages("orders", "f", 2)
    source = LinkSource(here.service, REQUEST)
    await source.rewind()
    assert [[b"c"], [b"d"]] == await read(source)
    await source.close()


async def test_a_reset_outdates_earlier_reads(here: Serving) -> None:
    source = LinkSource(here.service, REQUEST)
    number = await source.rewind()
    await ticks(50)
    entries = await source.read_or_wait(10, BIG)
    await source.mark_delete(entries[-1], number)
    waiting = asyncio.ensure_future(source.read_or_wait(10, BIG))
    await ticks()
    await here.service.reset_subscription("orders", "f", "earliest", partition=None, inclusive=True)
    assert [] == await waiting
    assert source.is_outdated(number)
    await source.mark_delete(entries[-1], number)
    new = await source.rewind()
    assert not source.is_outdated(new)
    assert [[b"a", b"b", b"c"], [b"d"]] == await read(source)
    await source.close()


async def test_an_ended_link_fails_reads(here: Serving) -> None:
    source = LinkSource(here.service, REQUEST)
    number = await source.rewind()
    [first, _] = await source.read_or_wait(10, BIG)
    waiting = asyncio.ensure_future(source.read_or_wait(10, BIG))
    await ticks()
    await here.service.delete_topic("orders")
    with pytest.raises(TopicNotFound):
        await waiting
    assert not source.is_outdated(number)
    with pytest.raises(TopicNotFound):
        await source.mark_delete(first, number)
    with pytest.raises(TopicNotFound):
        await source.rewind()
    await source.close()


async def test_a_second_consumer_is_refused_but_the_first_retries(
    here: Serving,
) -> None:
    first, second = LinkSource(here.service, REQUEST), LinkSource(here.service, REQUEST)
    await first.rewind()
    with pytest.raises(ConsumerBusy):
        await second.rewind()
    await first.close()
    await second.rewind()
    with pytest.raises(Unavailable):
        await first.rewind()
    await second.close()


async def test_a_cursor_reads_unacknowledged_entries_and_checks_revisions() -> None:
    async with LedgerStore.open(None) as store:
        ml = await store.open_managed_ledger("orders")
        positions = await add_batches(ml, [b"0", b"1", b"2"])
        cursor = await ml.open_cursor("c", initial=EARLIEST)
        source = CursorSource(cursor)
        number = await source.rewind()
        first = await source.read_or_wait(1, BIG)
        assert [[b"0"]] == values(first)
        await source.mark_delete(first[0], number)
        await source.mark_delete(first[0], number)
        assert positions[0] == cursor.mark_delete_position
        cursor.revision.start()
        assert source.is_outdated(number)
        with pytest.raises(ResetInProgress):
            await source.rewind()
        cursor.revision.end(lambda state: state.rewind())
        assert [[b"1"], [b"2"]] == values(await source.read_or_wait(9, BIG))
        number = await source.rewind()
        await cursor.mark_delete(positions[2])
        await source.mark_delete(SourceEntry(positions[1], b"", -1, 1), number)
        assert positions[2] == cursor.mark_delete_position
        await source.close()
        await source.close()
        with pytest.raises(AlreadyClosed):
            await source.rewind()


async def test_a_cursor_returns_the_mask_of_unacknowledged_records() -> None:
    async with LedgerStore.open(None) as store:
        ml = await store.open_managed_ledger("orders")
        [position] = await add_batches(ml, [b"0"])
        cursor = await ml.open_cursor("c", initial=EARLIEST)
        await cursor.delete_batch_index(position, [0, 2], 4)
        source = CursorSource(cursor)
        await source.rewind()
        [entry] = await source.read_or_wait(1, BIG)
        assert 0b1010 == entry.records
