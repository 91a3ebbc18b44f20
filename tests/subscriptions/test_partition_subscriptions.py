"""All subscriptions of a partition: created, found, deleted, closed, ended with the partition."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kledger import ledger
from kledger.ledger import EARLIEST, LATEST, Position
from kledger.subscriptions.dispatch.dispatcher import RETRY_MAX_MS
from kledger.subscriptions.errors import (
    ConsumerBusy,
    InvalidRequest,
    StorageFailed,
    SubscriptionClosed,
    SubscriptionNotFound,
    SubscriptionsError,
)
from kledger.subscriptions.model import StartPosition, SubscriptionType
from kledger.subscriptions.partition_subscriptions import PartitionSubscriptions
from kledger.subscriptions.subscription import NON_DURABLE_IDLE_MS
from tests.subscriptions.dispatch.builders import data_of
from tests.subscriptions.partition_fixture import BEGINNING, SECONDS_MAX, Client, PartitionFixture


@pytest.fixture
async def positions(fixture: PartitionFixture) -> list[Position]:
    return [await fixture.add("a", "b", "c"), await fixture.add("d"), await fixture.add("e", "f")]


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize(
    ("entry", "inside", "expected"),
    [
        (EARLIEST, (0, 0), "abcdef"),
        (LATEST, (0, 0), ""),
        (0, (0, 0), "abcdef"),
        (0, (0, 3), "abcdef"),
        (0, (2, 3), "cdef"),
        (0, (3, 3), "def"),
        (1, (1, 1), "ef"),
        (2, (1, 2), "f"),
        (2, (2, 2), ""),
        (Position(99, 7), (1, 2), ""),
        (Position(-1, 5), (1, 2), "abcdef"),
    ],
)
async def test_new_subscription_begins_at_its_start(
    fixture: PartitionFixture,
    positions: list[Position],
    entry: int | Position,
    inside: tuple[int, int],
    expected: str,
    *,
    is_durable: bool,
) -> None:
    position = positions[entry] if isinstance(entry, int) else entry
    subscription = await fixture.subscription(
        start=StartPosition(position, *inside), is_durable=is_durable
    )
    assert is_durable is subscription.is_durable
    assert expected == "".join(await fixture.unacknowledged())
    await fixture.add("g")
    assert f"{expected}g" == "".join(await fixture.unacknowledged())


async def test_start_of_an_existing_subscription_is_ignored(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    first = await fixture.subscription(start=StartPosition(positions[1]))
    assert first is await fixture.subscription(start=BEGINNING)
    assert ["d", "e", "f"] == await fixture.unacknowledged()


async def test_subscription_is_not_found_before_it_is_at_its_start(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    """A second subscription was made of its cursor, and both delivered the same."""
    found = []
    opening = asyncio.ensure_future(fixture.subscription(start=StartPosition(positions[1])))
    while not opening.done():
        found.append(fixture.partition.get("s"))
        await asyncio.sleep(0)
    subscription = await opening
    assert len(found) > 3
    assert {None, subscription} >= set(found)
    assert subscription is fixture.partition.get("s")


async def test_only_durable_subscriptions_survive_a_crash(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    await fixture.subscription("inside", start=StartPosition(positions[0], 1, 3))
    await fixture.subscription("reader", is_durable=False)
    assert ["inside"] == fixture.partition.names()
    await fixture.crash()
    assert ["inside"] == fixture.partition.names()
    assert list("bcdef") == await fixture.unacknowledged("inside")
    assert fixture.partition.get("reader") is None


@pytest.mark.parametrize("wanted", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
@pytest.mark.parametrize("ending", [PartitionFixture.crash, PartitionFixture.restart])
async def test_delayed_records_keep_their_time_over_a_restart(
    fixture: PartitionFixture,
    wanted: SubscriptionType,
    ending: Callable[[PartitionFixture], Awaitable[None]],
) -> None:
    now_ms = fixture.clock.now_ms()
    late, early = [
        await fixture.ledger.add_entry(data_of((b"k",), now_ms + delay_ms))
        for delay_ms in (500, 300)
    ]
    before = await Client().join(await fixture.subscription(), wanted)
    await fixture.quiet()
    fixture.clock.advance(200)
    await ending(fixture)
    subscription = fixture.partition.get("s")
    assert subscription is not None
    client = await Client().join(subscription, wanted)
    async with asyncio.timeout(SECONDS_MAX):
        while subscription.stats().delayed < 2:
            await fixture.quiet()
    for advance_ms, expected in ((99, []), (1, [early]), (199, [early]), (1, [early, late])):
        fixture.clock.advance(advance_ms)
        await fixture.quiet()
        await client.got(len(expected))
        assert expected == [each.position for each in client.deliveries]
    assert [] == before.deliveries


async def test_any_durable_cursor_is_a_subscription(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    await fixture.ledger.open_cursor("other", initial=EARLIEST)
    assert ["other"] == fixture.partition.names()
    assert list("abcdef") == await fixture.unacknowledged("other")
    cursor = fixture.ledger.cursors["other"]
    await cursor.close()
    await fixture.partition.close()
    again = PartitionSubscriptions(
        fixture.ledger,
        partition_index=0,
        clock=fixture.clock,
        timers=fixture.timers,
        supervisor=fixture.supervisor,
    )
    assert again.get("other") is None
    assert not (await again.open("other", start=StartPosition(LATEST))).cursor.is_closed
    await again.delete("other")
    assert [] == again.names()
    await again.close()


async def test_overlapping_openings_are_one_subscription(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    opened = await asyncio.gather(*(fixture.subscription() for _ in range(5)))
    assert 1 == len({id(each) for each in opened})


async def test_opening_whose_caller_is_cancelled_is_completed(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    """It was cancelled between the cursor and its position: the next one got everything."""
    hold = fixture.engine.hold_next("commit")
    opening = asyncio.ensure_future(fixture.subscription(start=StartPosition(positions[0], 2, 3)))
    await hold.reached()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    hold.release()
    await fixture.subscription(start=BEGINNING)
    assert list("cdef") == await fixture.unacknowledged()


async def test_opening_interrupted_by_a_crash_is_complete_or_undone(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    """It stood at the beginning for the length of a write."""
    for before in range(3):
        name = f"s{before}"
        for _ in range(before):
            await fixture.quiet()
        opening = asyncio.ensure_future(
            fixture.subscription(name, start=StartPosition(positions[0], 2, 3))
        )
        hold = None
        for _ in range(before + 1):
            if hold is not None:
                hold.release()
            hold = fixture.engine.hold_next("sync")
            await asyncio.wait(
                [opening, asyncio.ensure_future(hold.reached())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        await fixture.crash()
        await asyncio.gather(opening, return_exceptions=True)
        subscription = fixture.partition.get(name)
        unacknowledged = (
            None if subscription is None else "".join(await fixture.unacknowledged(name))
        )
        assert [None, "cdef", "cdef"][before] == unacknowledged


async def test_invalid_names_and_kinds_are_refused(fixture: PartitionFixture) -> None:
    with pytest.raises(InvalidRequest):
        await fixture.subscription("")
    await fixture.subscription("durable")
    await fixture.subscription("reader", is_durable=False)
    with pytest.raises(InvalidRequest, match="durable"):
        await fixture.subscription("durable", is_durable=False)
    with pytest.raises(InvalidRequest, match="not durable"):
        await fixture.subscription("reader")


@pytest.mark.parametrize("is_durable", [True, False])
async def test_invalid_start_creates_nothing(
    fixture: PartitionFixture, positions: list[Position], *, is_durable: bool
) -> None:
    """The cursor was created before its start was checked, and stayed."""
    for index, size in ((4, 3), (-1, 3), (1, 0)):
        with pytest.raises(InvalidRequest):
            await fixture.subscription(
                start=StartPosition(positions[0], index, size), is_durable=is_durable
            )
    assert ([], None) == (fixture.partition.names(), fixture.partition.get("s"))
    assert not fixture.ledger.has_cursors


async def test_start_that_was_not_written_creates_nothing(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    hold = fixture.engine.hold_next("commit")
    opening = asyncio.ensure_future(fixture.subscription(start=StartPosition(positions[1])))
    await hold.reached()
    hold.fail()
    with pytest.raises(StorageFailed):
        await opening
    assert [] == fixture.partition.names()
    await fixture.subscription(start=StartPosition(positions[2]))
    assert ["e", "f"] == await fixture.unacknowledged()


async def test_closing_whose_caller_is_cancelled_is_completed(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    """A reader's subscription stayed for ever, with its cursor."""
    subscription = await fixture.subscription(is_durable=False)
    client = await Client().join(subscription)
    leaving = asyncio.ensure_future(client.consumer.close())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await fixture.quiet()
    assert (fixture.partition.get("s"), True) == (None, subscription.cursor.is_closed)


async def test_number_of_subscriptions_is_limited(fixture: PartitionFixture) -> None:
    partition = PartitionSubscriptions(
        fixture.ledger,
        partition_index=0,
        clock=fixture.clock,
        timers=fixture.timers,
        supervisor=fixture.supervisor,
        subscriptions_max=2,
    )
    await partition.open("a")
    await partition.open("b", is_durable=False)
    with pytest.raises(InvalidRequest, match="2"):
        await partition.open("c")
    with pytest.raises(InvalidRequest, match="2"):
        await partition.open("c", is_durable=False)
    await partition.open("a")
    await partition.delete("b")
    await partition.open("c")
    await partition.close()


async def test_deleted_subscription_does_not_return(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    await fixture.subscription()
    await fixture.partition.delete("s")
    for _ in range(2):
        assert fixture.partition.get("s") is None
        assert [] == fixture.partition.names()
        with pytest.raises(SubscriptionNotFound):
            await fixture.partition.delete("s")
        await fixture.crash()
    await fixture.subscription(start=StartPosition(LATEST))
    assert [] == await fixture.unacknowledged()


async def test_subscription_being_closed_can_be_deleted(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    """It was refused as closed until the closing had ended."""
    subscription = await fixture.subscription()
    await Client().join(subscription)
    closing = asyncio.ensure_future(subscription.close())
    await asyncio.sleep(0)
    await fixture.partition.delete(subscription.name)
    await closing
    assert [] == fixture.partition.names()


async def test_subscription_with_consumers_is_deleted_by_force_only(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    client = await Client().join(await fixture.subscription())
    with pytest.raises(ConsumerBusy):
        await fixture.partition.delete("s")
    assert [] == client.ends
    await fixture.partition.delete("s", force=True)
    assert [SubscriptionClosed] == [type(each) for each in client.ends]
    assert fixture.partition.get("s") is None
    await client.acknowledge(*client.values)


async def test_deletion_that_was_not_written_changes_nothing(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    subscription = await fixture.subscription()
    fixture.engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await fixture.partition.delete("s")
    assert subscription is fixture.partition.get("s")
    client = await Client().join(subscription)
    assert list("abcdef") == await client.got(6)


@pytest.mark.parametrize("is_durable", [True, False])
async def test_non_durable_subscription_ends_with_its_last_consumer(
    fixture: PartitionFixture, positions: list[Position], *, is_durable: bool
) -> None:
    subscription = await fixture.subscription(is_durable=is_durable)
    shared = SubscriptionType.SHARED
    clients = [await Client(name).join(subscription, shared) for name in "ab"]
    await clients[0].consumer.close()
    assert subscription is fixture.partition.get("s")
    await clients[1].consumer.close()
    assert (subscription if is_durable else None) is fixture.partition.get("s")
    assert is_durable is not subscription.cursor.is_closed


async def test_non_durable_subscription_without_consumers_is_closed_after_a_while(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    """A reader that sought found a new subscription at its old position."""
    subscription = await fixture.subscription(is_durable=False)
    client = await Client().join(subscription)
    fixture.clock.advance(10 * NON_DURABLE_IDLE_MS)
    await fixture.quiet()
    assert subscription is fixture.partition.get("s")
    await subscription.reset(StartPosition(positions[1]))
    assert ([None], subscription) == (client.ends, fixture.partition.get("s"))
    fixture.clock.advance(NON_DURABLE_IDLE_MS - 1)
    await fixture.quiet()
    again = await Client().join(subscription)
    assert list("def") == await again.got(3)
    await subscription.reset(StartPosition(positions[1]))
    fixture.clock.advance(NON_DURABLE_IDLE_MS)
    await fixture.quiet()
    assert fixture.partition.get("s") is None
    assert subscription.cursor.is_closed
    with pytest.raises(SubscriptionClosed):
        await Client().join(subscription)


async def test_name_can_be_opened_again_while_it_is_being_closed(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    subscription = await fixture.subscription(is_durable=False)
    client = await Client().join(subscription)
    leaving = asyncio.ensure_future(client.consumer.close())
    await asyncio.sleep(0)
    again = await fixture.subscription(is_durable=False, start=StartPosition(positions[2]))
    assert again is not subscription
    await leaving
    assert again is fixture.partition.get("s")
    assert ["e", "f"] == await fixture.unacknowledged()


async def ended_by_closing(fixture: PartitionFixture) -> None:
    await asyncio.gather(fixture.partition.close(), fixture.partition.close())


async def ended_by_the_ledger(fixture: PartitionFixture) -> None:
    await fixture.ledger.close()


async def ended_by_deletion(fixture: PartitionFixture) -> None:
    await fixture.store.delete_managed_ledger("orders")


async def ended_by_another_owner(fixture: PartitionFixture) -> None:
    await fixture.store.open_managed_ledger("orders")


@pytest.mark.parametrize(
    "end", [ended_by_closing, ended_by_the_ledger, ended_by_deletion, ended_by_another_owner]
)
async def test_all_subscriptions_end_with_the_partition(
    fixture: PartitionFixture, positions: list[Position], end: object
) -> None:
    clients = [
        await Client().join(await fixture.subscription(name, is_durable=name != "reader"))
        for name in ("a", "b", "reader")
    ]
    subscriptions = [fixture.partition.get(name) for name in ("a", "b", "reader")]
    assert callable(end)
    await end(fixture)
    await fixture.quiet()
    for client in clients:
        assert [SubscriptionClosed] == [type(each) for each in client.ends]
        await client.acknowledge(*client.values)
        await client.consumer.close()
    for subscription in subscriptions:
        assert subscription is not None
        assert subscription.cursor.is_closed
        with pytest.raises(SubscriptionClosed):
            await Client().join(subscription)
        with pytest.raises(SubscriptionClosed):
            await subscription.reset(BEGINNING)
    for call in (fixture.subscription("new"), fixture.partition.delete("a")):
        with pytest.raises(SubscriptionClosed):
            await call
    assert fixture.partition.get("a") is None
    assert 0 == len(fixture.timers)


async def test_closed_subscriptions_leave_nothing(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    for number in range(20):
        subscription = await fixture.subscription(f"s{number}", is_durable=bool(number % 2))
        client = await Client().join(subscription)
        await client.got(6)
        await client.acknowledge("b", "e")
        await client.consumer.close()
        if number % 2:
            await fixture.partition.delete(f"s{number}")
    await fixture.quiet()
    assert ({}, 0) == (fixture.partition._open, len(fixture.timers))
    assert {"timers"} >= {task.get_name() for task in fixture.supervisor._tasks}
    assert {} == dict(fixture.ledger.cursors)
    assert 1 == len(fixture.ledger._listeners), "the partition itself"


async def test_closing_that_cannot_write_still_ends(
    fixture: PartitionFixture, positions: list[Position]
) -> None:
    client = await Client().join(await fixture.subscription())
    await client.got(6)
    fixture.engine.fail_next("commit")
    acknowledging = asyncio.ensure_future(client.acknowledge("a"))
    await asyncio.sleep(0)
    await fixture.partition.close()
    outcomes = await asyncio.gather(acknowledging, return_exceptions=True)
    assert all(each is None or isinstance(each, SubscriptionsError) for each in outcomes)


async def test_delivery_resumes_after_a_failed_deletion_of_the_log(
    fixture: PartitionFixture,
) -> None:
    """It is fenced for a while; consumers that read meanwhile never read again."""
    await fixture.add("a", "b")
    client = await Client().join(await fixture.subscription(), permits=0)
    hold = fixture.engine.hold_next("commit")
    deleting = asyncio.ensure_future(fixture.store.delete_managed_ledger("orders"))
    await hold.reached()
    client.consumer.add_permits(10)
    for _ in range(10):
        await asyncio.sleep(0)
    hold.fail()
    with pytest.raises(ledger.StorageFailed):
        await deleting
    fixture.clock.advance(RETRY_MAX_MS)
    assert ["a", "b"] == await client.got(2)


async def test_fenced_log_has_no_subscriptions(fixture: PartitionFixture) -> None:
    """Its cursors are still there to be looked at, so a consumer joined and waited for ever."""
    await fixture.subscription()
    before = fixture.ledger
    await fixture.open_partition("orders", ledger.ManagedLedgerConfig())
    late = PartitionSubscriptions(
        before,
        partition_index=0,
        clock=fixture.clock,
        timers=fixture.timers,
        supervisor=fixture.supervisor,
    )
    with pytest.raises(SubscriptionClosed):
        await late.open("s")
    assert late.get("s") is None
