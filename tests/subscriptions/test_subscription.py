"""A subscription: which consumers may join, setting its position, and what survives a crash."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kledger.ledger import EARLIEST, LATEST, Position, StoreConfig
from kledger.subscriptions.errors import (
    ConsumerBusy,
    InvalidRequest,
    StorageFailed,
    SubscriptionClosed,
    SubscriptionFenced,
)
from kledger.subscriptions.model import ConsumerOptions, StartPosition, SubscriptionType
from kledger.subscriptions.subscription import PEEK_ENTRIES_MAX, Subscription
from tests.subscriptions.partition_fixture import BEGINNING, Client, PartitionFixture, values_of

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = SubscriptionType


@pytest.fixture
async def positions(fixture: PartitionFixture) -> list[Position]:
    return [await fixture.add("a", "b", "c"), await fixture.add("d"), await fixture.add("e", "f")]


@pytest.fixture
async def subscription(fixture: PartitionFixture, positions: list[Position]) -> Subscription:
    return await fixture.subscription()


async def joined(
    subscription: Subscription, wanted: SubscriptionType = EXCLUSIVE, name: str = "c"
) -> Client:
    return await Client(name).join(subscription, wanted)


# Joining


async def test_type_is_that_of_first_consumer_while_any_is_connected(
    subscription: Subscription,
) -> None:
    assert subscription.type is None
    for wanted in SubscriptionType:
        client = await joined(subscription, wanted)
        assert wanted is subscription.type
        for other in set(SubscriptionType) - {wanted}:
            with pytest.raises(ConsumerBusy, match=wanted):
                await joined(subscription, other)
        assert list("abcdef") == await client.got(6)
        await client.consumer.close()
        await client.consumer.close()
        assert subscription.type is None
        assert [] == client.ends


async def test_exclusive_has_one_consumer(subscription: Subscription) -> None:
    client = await joined(subscription)
    with pytest.raises(ConsumerBusy):
        await joined(subscription)
    assert 1 == subscription.consumer_count
    await client.consumer.close()
    await joined(subscription)


async def test_refused_consumer_leaves_nothing(subscription: Subscription) -> None:
    with pytest.raises(InvalidRequest):
        await subscription.add_consumer(
            ConsumerOptions(name="c"),
            SHARED,
            deliver=lambda deliveries: None,
            on_ended=lambda error: None,
            unacked_subscription_max=-1,
        )
    with pytest.raises(InvalidRequest):
        await subscription.add_consumer(
            ConsumerOptions(name="c", key_ranges=((9, 3),)),
            KEY_SHARED,
            deliver=lambda deliveries: None,
            on_ended=lambda error: None,
        )
    assert (0, None) == (subscription.consumer_count, subscription.type)
    client = await joined(subscription, EXCLUSIVE)
    assert list("abcdef") == await client.got(6)


async def test_number_of_consumers_is_limited(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    small = Subscription("s", subscription.cursor, subscription._context, consumers_max=2)
    first = await joined(small, SHARED)
    await joined(small, SHARED)
    with pytest.raises(ConsumerBusy, match="2"):
        await joined(small, SHARED)
    await first.consumer.close()
    await joined(small, SHARED)
    await small.close()


async def test_options_are_those_of_first_consumer(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    """Later ones with other options were given another dispatcher, and everything twice."""
    first = await Client("a").join(subscription, SHARED, failover_delay_ms=1)
    await first.got(6)
    second = await Client("b").join(subscription, SHARED, failover_delay_ms=2)
    await fixture.quiet()
    assert [] == second.values
    await first.consumer.close()
    assert list("abcdef") == sorted(await second.got(6))


# Setting the position

SETTINGS: dict[str, tuple[Callable[[Subscription], Awaitable[None]], str]] = {
    "reset to the beginning": (lambda s: s.reset(BEGINNING), "abcdef"),
    "reset to the end": (lambda s: s.reset(StartPosition(LATEST)), ""),
    "clear the backlog": (lambda s: s.clear_backlog(), ""),
    "rewind": (lambda s: s.rewind(), "acdf"),
    "skip one": (lambda s: s.skip(1), "cdf"),
    "skip three": (lambda s: s.skip(3), "f"),
    "skip all": (lambda s: s.skip(4), ""),
    "skip more than there is": (lambda s: s.skip(40), ""),
}


@pytest.mark.parametrize("wanted", SubscriptionType)
@pytest.mark.parametrize("setting", SETTINGS)
async def test_setting_the_position_disconnects_consumers_which_join_again(
    fixture: PartitionFixture, subscription: Subscription, wanted: SubscriptionType, setting: str
) -> None:
    act, expected = SETTINGS[setting]
    client = await joined(subscription, wanted)
    await client.got(6)
    await client.acknowledge("b", "e")
    number = subscription.cursor.revision.number
    await act(subscription)
    assert ([None], True) == (client.ends, client.consumer.is_ended)
    assert number < subscription.cursor.revision.number
    assert expected == "".join(await fixture.unacknowledged())
    again = await joined(subscription, wanted)
    assert expected == "".join(await again.got(len(expected)))
    await fixture.crash()
    assert expected == "".join(await fixture.unacknowledged())


@pytest.mark.parametrize(
    ("index", "expected"), [(0, "abcdef"), (1, "bcdef"), (2, "cdef"), (3, "def")]
)
async def test_reset_into_a_batch_delivers_the_rest_of_it(
    fixture: PartitionFixture,
    subscription: Subscription,
    positions: list[Position],
    index: int,
    expected: str,
) -> None:
    await subscription.clear_backlog()
    await subscription.reset(StartPosition(positions[0], index, 3))
    client = await joined(subscription)
    assert expected == "".join(await client.got(len(expected)))
    await fixture.crash()
    assert expected == "".join(await fixture.unacknowledged())


async def test_invalid_positions_and_counts_are_refused(
    subscription: Subscription, positions: list[Position]
) -> None:
    client = await joined(subscription)
    for place in (
        StartPosition(positions[0], 4, 3),
        StartPosition(positions[0], -1, 3),
        StartPosition(positions[0], 1, 0),
    ):
        with pytest.raises(InvalidRequest):
            await subscription.reset(place)
    for count in (0, -1):
        with pytest.raises(InvalidRequest):
            await subscription.skip(count)
    for count in (0, PEEK_ENTRIES_MAX + 1):
        with pytest.raises(InvalidRequest):
            await subscription.peek(count)
    assert ([], False) == (client.ends, subscription.is_fenced)


async def test_joining_and_setting_are_refused_while_the_position_is_set(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    client = await joined(subscription)
    await client.got(6)
    hold = fixture.engine.hold_next("sync")
    resetting = asyncio.ensure_future(subscription.reset(StartPosition(LATEST)))
    await hold.reached()
    assert subscription.is_fenced
    assert [None] == client.ends
    for call in (
        subscription.reset(BEGINNING),
        subscription.skip(1),
        subscription.clear_backlog(),
        subscription.rewind(),
        joined(subscription),
        joined(subscription, SHARED),
    ):
        with pytest.raises(SubscriptionFenced):
            await call
    stats = subscription.stats()
    assert (True, ()) == (stats.is_under_revision, stats.consumers)
    hold.release()
    await resetting
    assert not subscription.is_fenced
    assert [] == await fixture.unacknowledged()
    await joined(subscription)


async def test_reset_whose_caller_is_cancelled_is_completed(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    """The fence stayed for ever."""
    hold = fixture.engine.hold_next("sync")
    resetting = asyncio.ensure_future(subscription.reset(StartPosition(LATEST)))
    await hold.reached()
    resetting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resetting
    assert subscription.is_fenced
    hold.release()
    await fixture.quiet()
    assert not subscription.is_fenced
    assert [] == await fixture.unacknowledged()


@pytest.mark.parametrize("setting", list(SETTINGS)[:3])
async def test_reset_that_was_not_written_changes_nothing(
    fixture: PartitionFixture, subscription: Subscription, setting: str
) -> None:
    client = await joined(subscription)
    await client.got(6)
    await client.acknowledge("a", "d")
    fixture.engine.fail_next("commit")
    with pytest.raises(StorageFailed):
        await SETTINGS[setting][0](subscription)
    assert ([None], False) == (client.ends, subscription.is_fenced)
    again = await joined(subscription)
    assert list("bcef") == await again.got(4)


async def test_skipping_where_nothing_can_be_read_changes_nothing(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    await fixture.crash()  # nothing is in memory then
    found = fixture.partition.get("s")
    assert found is not None
    fixture.engine.fail_next("read")
    with pytest.raises(StorageFailed):
        await found.skip(2)
    assert not found.is_fenced
    assert list("abcdef") == await fixture.unacknowledged()


async def test_reset_that_waits_for_the_lock_fails_when_closed(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    hold = fixture.engine.hold_next("sync")
    deleting = asyncio.ensure_future(fixture.partition.delete("s"))
    await hold.reached()
    with pytest.raises(SubscriptionClosed):
        await subscription.reset(BEGINNING)
    hold.release()
    await deleting


async def test_deletion_waits_for_a_reset(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    """The reset wrote a cursor that was deleted: it was there again after a restart."""
    hold = fixture.engine.hold_next("sync")
    resetting = asyncio.ensure_future(subscription.reset(StartPosition(LATEST)))
    await hold.reached()
    deleting = asyncio.ensure_future(fixture.partition.delete("s"))
    await asyncio.sleep(0)
    hold.release()
    await asyncio.gather(resetting, deleting)
    assert fixture.partition.get("s") is None
    await fixture.crash()
    assert [] == fixture.partition.names()


# Late words


@pytest.mark.parametrize("setting", SETTINGS)
async def test_calls_of_an_ended_consumer_have_no_effect(
    fixture: PartitionFixture, subscription: Subscription, setting: str
) -> None:
    act, expected = SETTINGS[setting]
    client = await joined(subscription)
    await client.got(6)
    await client.acknowledge("b", "e")
    await act(subscription)
    await client.acknowledge(*"abcdef")
    await client.acknowledge_upto("f")
    client.nack("a")
    client.consumer.add_permits(5)
    await client.consumer.close()
    assert expected == "".join(await fixture.unacknowledged())
    assert [None] == client.ends


async def test_acknowledgement_under_way_during_a_reset_returns_without_effect(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    client = await joined(subscription)
    await client.got(6)
    hold = fixture.engine.hold_next("sync")
    first = asyncio.ensure_future(client.acknowledge("a"))
    await hold.reached()
    second = asyncio.ensure_future(client.acknowledge("b", "d"))
    await asyncio.sleep(0)
    resetting = asyncio.ensure_future(subscription.reset(BEGINNING))
    await asyncio.sleep(0)
    third = asyncio.ensure_future(client.acknowledge("f"))
    await asyncio.sleep(0)
    hold.release()
    await asyncio.gather(first, second, third, resetting)
    assert list("abcdef") == await fixture.unacknowledged()
    await fixture.crash()
    assert list("abcdef") == await fixture.unacknowledged()


# Ending


async def test_subscription_with_consumers_is_closed_by_force_only(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    client = await joined(subscription)
    with pytest.raises(ConsumerBusy):
        await subscription.close(force=False)
    assert [] == client.ends
    await subscription.close()
    await subscription.close()
    assert [SubscriptionClosed] == [type(each) for each in client.ends]
    assert subscription.is_closed
    assert fixture.partition.get("s") is None
    again = await fixture.subscription()
    assert list("abcdef") == await (await joined(again)).got(6)


async def test_join_that_waits_for_the_lock_fails_when_closed(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    await (await joined(subscription, SHARED)).consumer.close()
    hold = fixture.engine.hold_next("sync")
    deleting = asyncio.ensure_future(fixture.partition.delete("s"))
    await hold.reached()
    joining = asyncio.ensure_future(joined(subscription))
    await asyncio.sleep(0)
    hold.release()
    await deleting
    with pytest.raises(SubscriptionClosed):
        await joining


# Telling


async def test_stats_count_consumers_records_and_revisions(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    stats = subscription.stats()
    assert (None, 3, 0, (), 0, 0, 0, False) == (
        stats.type,
        stats.backlog_entries,
        stats.unacknowledged,
        stats.consumers,
        stats.redelivered,
        stats.delayed,
        stats.revision_num,
        stats.is_under_revision,
    )
    clients = [await joined(subscription, SHARED, name) for name in ("left", "right")]
    await fixture.quiet()
    both = clients[0].values + clients[1].values
    assert list("abcdef") == sorted(both)
    for client in clients:
        await client.acknowledge("d", "e")
    stats = subscription.stats()
    assert (SHARED, 2, 4, ("left", "right")) == (
        stats.type,
        stats.backlog_entries,
        stats.unacknowledged,
        stats.consumers,
    )
    for client in clients:
        client.nack("a", "b")
    await fixture.quiet()
    assert 2 == subscription.stats().redelivered
    await subscription.rewind()
    for wanted in (EXCLUSIVE, SHARED):
        client = await joined(subscription, wanted)
        await client.consumer.close()
    assert 2 == subscription.stats().redelivered, "what was counted stays counted"


async def test_consumers_are_counted_among_the_metrics(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    def shown(name: str) -> list[int]:
        found = fixture.store.metrics.snapshot().items()
        return [value for each, value in found if each.startswith(f"{name}{{")]

    client = await joined(subscription, SHARED)
    await fixture.quiet()
    client.nack("a", "b")
    await fixture.quiet()
    await client.acknowledge("a")
    assert [5] == shown("pulsar_subscription_unacked_messages")
    assert [2] == shown("subscription_redelivered")
    await subscription.close()
    assert [] == shown("pulsar_subscription_unacked_messages")


async def test_peek_returns_unacknowledged_entries_and_changes_nothing(
    fixture: PartitionFixture, subscription: Subscription, positions: list[Position]
) -> None:
    client = await joined(subscription)
    await client.got(6)
    await client.acknowledge("b", "d")
    found = await subscription.peek(1)
    assert [(positions[0], 0b101, 0)] == [
        (d.position, d.records, d.redelivery_count) for d in found
    ]
    assert ["a", "c", "e", "f"] == [
        v for each in await subscription.peek(9) for v in values_of(each)
    ]
    assert 4 == subscription.stats().unacknowledged


# After a crash


@pytest.mark.parametrize("wanted", SubscriptionType)
async def test_after_a_crash_only_acknowledged_records_are_not_redelivered(
    fixture: PartitionFixture, subscription: Subscription, wanted: SubscriptionType
) -> None:
    client = await joined(subscription, wanted)
    await client.got(6)
    await client.acknowledge("b", "f")
    hold = fixture.engine.hold_next("sync")
    lost = asyncio.ensure_future(client.acknowledge("a", "d"))
    await hold.reached()
    await fixture.crash()
    await asyncio.gather(lost, return_exceptions=True)
    assert [SubscriptionClosed] == [type(each) for each in client.ends]
    found = fixture.partition.get("s")
    assert found is not None
    again = await joined(found, wanted)
    assert list("acde") == await again.got(4)
    await fixture.quiet()
    assert list("acde") == again.values


async def test_call_interrupted_by_a_crash_raises(
    fixture: PartitionFixture, subscription: Subscription
) -> None:
    client = await joined(subscription)
    await client.got(6)
    hold = fixture.engine.hold_next("sync")
    calls = [
        asyncio.ensure_future(call)
        for call in (client.acknowledge("a"), client.acknowledge_upto("d"))
    ]
    await hold.reached()
    await fixture.crash()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [SubscriptionClosed] * 2 == [type(each) for each in outcomes]


async def test_with_a_pace_flushed_acknowledgements_survive(fixture: PartitionFixture) -> None:
    await fixture.close()
    again = PartitionFixture(fixture.engine, fixture.clock)
    await again.open(store_config=StoreConfig(cursor_persist_per_second=1))
    for value in "abc":
        await again.add(value)
    client = await joined(await again.subscription())
    await client.got(3)
    await client.acknowledge("a")
    await client.acknowledge("b")
    await again.crash()
    assert ["b", "c"] == await again.unacknowledged()
    client = await joined(await again.subscription())
    await client.got(2)
    await client.acknowledge("c")
    await again.restart()
    assert ["b"] == await again.unacknowledged()
    await again.close()


async def test_setting_the_position_of_an_empty_log_is_harmless(fixture: PartitionFixture) -> None:
    subscription = await fixture.subscription("empty")
    for act, _ in SETTINGS.values():
        await act(subscription)
    client = await joined(subscription)
    await fixture.add("x")
    assert ["x"] == await client.got(1)
    assert EARLIEST != subscription.cursor.mark_delete_position
