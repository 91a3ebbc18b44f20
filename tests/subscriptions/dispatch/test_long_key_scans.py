"""Keys of large entries: looked up off the loop, and never for a revision that is over."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import EARLIEST
from kledger.ledger.commits.store_threads import StoreThreads
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.subscriptions.entry_view import DELIVER_AT
from kledger.subscriptions.model import StartPosition, SubscriptionType
from tests.runtime.dying_processes import DyingProcesses
from tests.runtime.held_pool import HeldPool
from tests.subscriptions.partition_fixture import Client, PartitionFixture

LARGE = 2_000


@asynccontextmanager
async def fixture_with(threads: StoreThreads) -> AsyncIterator[PartitionFixture]:
    made = PartitionFixture(FaultyEngine(None), ManualClock(1_000_000))
    await made.open(threads=threads)
    try:
        yield made
    finally:
        made.engine.release_waiting()
        await made.close()


@asynccontextmanager
async def held_fixture(pool: HeldPool) -> AsyncIterator[PartitionFixture]:
    async with fixture_with(StoreThreads(compute_pool=lambda: pool)) as made:
        try:
            yield made
        finally:
            pool.release()


async def add_large(fixture: PartitionFixture, *, codec: int = 0) -> list[str]:
    values = [str(number) for number in range(LARGE)]
    records = [NewRecord(each.encode(), b"%d" % (int(each) % 5)) for each in values]
    await fixture.ledger.add_entry(bytes(build_batch(records, codec=codec)), message_count=LARGE)
    return values


@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_keys_of_a_large_entry_are_not_scanned_on_the_event_loop(codec: int) -> None:
    pool = HeldPool()
    async with held_fixture(pool) as fixture:
        values = await add_large(fixture, codec=codec)
        subscription = await fixture.subscription()
        pool.release()
        clients = [
            await Client(f"c{number}").join(
                subscription, SubscriptionType.KEY_SHARED, permits=LARGE
            )
            for number in range(2)
        ]
        while sum(len(each.values) for each in clients) < LARGE:  # noqa: ASYNC110 (ticks, no time)
            await asyncio.sleep(0)
        assert sorted(values) == sorted(clients[0].values + clients[1].values)
        assert pool.threads
        assert threading.main_thread() not in pool.threads


async def test_entries_scanned_before_a_reset_are_not_delivered_after_it() -> None:
    pool = HeldPool()
    async with held_fixture(pool) as fixture:
        values = await add_large(fixture)
        subscription = await fixture.subscription()
        client = await Client().join(subscription, SubscriptionType.KEY_SHARED, permits=2 * LARGE)
        while not pool.waiting_count:  # noqa: ASYNC110 (ticks of the event loop, no time)
            await asyncio.sleep(0)
        await subscription.reset(StartPosition(EARLIEST))
        assert [] == client.values
        pool.release()
        again = await Client("again").join(
            subscription, SubscriptionType.KEY_SHARED, permits=2 * LARGE
        )
        assert sorted(values) == sorted(await again.got(LARGE))
        await fixture.quiet()
        assert LARGE == len(again.values) + len(client.values)


@pytest.mark.parametrize("type_", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
async def test_many_headers_are_not_scanned_on_the_event_loop(
    type_: SubscriptionType,
) -> None:
    pool = HeldPool()
    async with held_fixture(pool) as fixture:
        headers = [*[("h", b"")] * LARGE, (DELIVER_AT, b"1500")]
        batch = bytes(build_batch([NewRecord(b"late", headers=headers)]))
        await fixture.ledger.add_entry(batch, message_count=1)
        subscription = await fixture.subscription()
        client = await Client().join(subscription, type_, permits=1)
        while not pool.waiting_count:  # noqa: ASYNC110 (ticks of the event loop, no time)
            await asyncio.sleep(0)
        assert [] == client.values
        pool.release()
        assert ["late"] == await client.got(1)
        assert threading.main_thread() not in pool.threads


@pytest.mark.parametrize(("deaths", "is_by_key"), [(1, True), (5, False)])
async def test_entries_that_end_their_process_are_delivered_whole(
    deaths: int, is_by_key: bool
) -> None:
    """Two entries are scanned together, then twice alone: a process may die for other reasons."""
    threads = StoreThreads(compute_processes=lambda: DyingProcesses(deaths))
    async with fixture_with(threads) as fixture:
        values = [*await add_large(fixture), *await add_large(fixture)]
        subscription = await fixture.subscription()
        one, other = [
            await Client(name).join(subscription, SubscriptionType.KEY_SHARED, permits=2 * LARGE)
            for name in ("one", "other")
        ]
        while len(one.values) + len(other.values) < len(values):  # noqa: ASYNC110 (ticks, no time)
            await asyncio.sleep(0)
        assert sorted(values) == sorted(one.values + other.values)
        if is_by_key:
            assert {int(each) % 5 for each in one.values}.isdisjoint(
                int(each) % 5 for each in other.values
            )
        else:
            assert 0 == len(one.values) % LARGE
