"""How far a consumer has read, which its deliveries alone do not show."""

import asyncio

import pytest

from kledger.ledger import Position, StoreConfig
from kledger.ledger.testing import FaultyEngine
from kledger.native.errors import InvalidArgument
from kledger.subscriptions.model import SubscriptionType
from tests.delivery.transactions import Writer
from tests.native.serving import Link, Serving, serving, ticks

HANG_SECONDS = 60


async def end_of(serving_: Serving) -> Position:
    [end] = await serving_.service.committed_ends("orders")
    return end


def reached(link: Link) -> Position:
    """Everything before this was delivered, or is not for the consumer."""
    delivered = [each.position.successor for each in link.deliveries]
    return max(delivered + link.read_positions)


async def test_a_consumer_of_an_empty_partition_has_read_everything() -> None:
    async with serving() as serving_:
        await serving_.log()
        link = Link()
        await serving_.consume(link, reports_read_position=True)
        await ticks()
        assert reached(link) >= await end_of(serving_)


async def test_deliveries_show_the_position_by_themselves() -> None:
    async with serving() as serving_:
        link = Link()
        await serving_.log()
        await serving_.consume(link, reports_read_position=True)
        await ticks()
        at_first = list(link.read_positions)
        for value in ("a", "b", "c"):
            await serving_.append(value)
            await ticks()
        assert reached(link) == await end_of(serving_)
        assert at_first == link.read_positions


async def test_markers_and_aborted_records_are_passed() -> None:
    async with serving() as serving_:
        writer = Writer(await serving_.log(), 7)
        link = Link()
        await serving_.append("a")
        await serving_.consume(link, reports_read_position=True)
        await writer.write("-", "-")
        await writer.end(commit=False)
        await ticks()
        assert ["a"] == link.values()
        assert reached(link) >= await end_of(serving_)
        await writer.write("b")
        await writer.end(commit=True)
        await ticks()
        assert ["a", "b"] == link.values()
        assert reached(link) >= await end_of(serving_)


async def test_an_open_transaction_is_an_end_that_can_be_reached() -> None:
    async with serving() as serving_:
        writer = Writer(await serving_.log(), 7)
        link = Link()
        await serving_.consume(link, reports_read_position=True)
        await serving_.append("a")
        begun = await writer.write("b")
        await serving_.append("c")
        await ticks()
        assert begun == await end_of(serving_)
        assert begun == reached(link), "not further than the transaction"
        await writer.end(commit=True)
        await ticks()
        assert reached(link) >= await end_of(serving_)


async def test_records_that_were_deleted_before_they_were_read_are_passed() -> None:
    async with serving() as serving_:
        log = await serving_.log()
        link = Link()
        consumer = await serving_.consume(link, permits=0, reports_read_position=True)
        for value in ("a", "b", "c"):
            await serving_.append(value)
        end = await end_of(serving_)
        await ticks()
        assert reached(link) < end
        await log.delete_records(-1)
        consumer.add_permits(9)
        await ticks()
        assert [] == link.values()
        assert reached(link) >= end


async def test_records_that_are_deleted_while_they_are_read_are_passed() -> None:
    """The read returns nothing and waits, so the read position would not be checked again."""
    engine = FaultyEngine(None)
    async with serving(engine, store_config=StoreConfig(cache_bytes=0)) as serving_:
        log = await serving_.log()
        for value in ("a", "b", "c"):
            await serving_.append(value)
        end = await end_of(serving_)
        link = Link()
        consumer = await serving_.consume(link, permits=0, reports_read_position=True)
        held = engine.hold_next("read")
        consumer.add_permits(9)
        await asyncio.wait_for(held.reached(), HANG_SECONDS)
        await log.delete_records(-1)
        held.release()
        async with asyncio.timeout(HANG_SECONDS):
            while reached(link) < end:  # noqa: ASYNC110 - a thread ends the read
                await asyncio.sleep(0)
        assert [] == link.values()


async def test_the_end_stays_reachable_when_everything_is_deleted_after_it_was_taken() -> None:
    async with serving() as serving_:
        log = await serving_.log()
        for value in ("a", "b"):
            await serving_.append(value)
        end = await end_of(serving_)
        await log.managed_ledger.roll_over()
        await log.delete_records(-1)
        await log.managed_ledger.trim()
        link = Link()
        await serving_.consume(link, reports_read_position=True)
        await ticks()
        assert reached(link) >= end


async def test_a_terminated_partition_is_read_to_its_end() -> None:
    async with serving() as serving_:
        writer = Writer(await serving_.log(), 7)
        await serving_.append("a")
        await writer.write("-")
        await writer.end(commit=False)
        await serving_.service.terminate("orders")
        link = Link()
        await serving_.consume(link, reports_read_position=True)
        await ticks()
        assert ["a"] == link.values()
        assert reached(link) >= await end_of(serving_)


async def test_positions_begin_again_when_everything_is_redelivered() -> None:
    async with serving() as serving_:
        writer = Writer(await serving_.log(), 7)
        link = Link()
        consumer = await serving_.consume(link, reports_read_position=True)
        await writer.write("-")
        await writer.end(commit=False)
        await ticks()
        link.read_positions.clear()
        consumer.redeliver(None)
        await ticks()
        assert reached(link) >= await end_of(serving_)


@pytest.mark.parametrize("kind", ["failover", "shared", "key_shared"])
async def test_only_an_exclusive_consumer_has_a_read_position(kind: str) -> None:
    async with serving() as serving_:
        await serving_.log()
        with pytest.raises(InvalidArgument, match="exclusive"):
            await serving_.consume(Link(), kind=SubscriptionType(kind), reports_read_position=True)
