"""What listeners of a partition hear, and when."""

import pytest

from kledger.native.broker import EARLIEST
from kledger.native.errors import KledgerError, TopicNotFound, Unavailable
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.errors import SubscriptionClosed
from kledger.subscriptions.model import StartPosition
from tests.batches.words import batch
from tests.freed import without_collection
from tests.native.serving import Link, ack, directory, serving, turns
from tests.topics.words import append, house


async def test_listeners_hear_once_that_the_topic_was_deleted_and_of_nothing_else() -> None:
    async with house() as opened:
        log = await opened.log()
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        served = await partitions.open("orders", 0)
        heard: list[KledgerError] = []
        served.add_listener(heard.append)
        left: list[KledgerError] = []
        served.add_listener(left.append)
        served.remove_listener(left.append)
        await append(log, batch("a"))
        assert [] == heard
        await opened.registry.delete("orders")
        assert [TopicNotFound] == [type(each) for each in heard]
        with pytest.raises(TopicNotFound, match="orders was deleted"), served.translating():
            raise SubscriptionClosed("the cursor is closed")
        await turns()
        await partitions.close()
        assert ([TopicNotFound], []) == ([type(each) for each in heard], left)
        await supervisor.close()


async def test_a_server_that_stops_is_unavailable() -> None:
    async with house() as opened:
        await opened.log()
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        served = await partitions.open("orders", 0)
        heard: list[KledgerError] = []
        served.add_listener(heard.append)
        with pytest.raises(Unavailable, match="the cursor is closed"), served.translating():
            raise SubscriptionClosed("the cursor is closed")
        await partitions.close()
        with pytest.raises(Unavailable, match="stopping"), served.translating():
            raise SubscriptionClosed("the cursor is closed")
        await opened.registry.close()
        assert [Unavailable] == [type(each) for each in heard]
        await supervisor.close()


async def test_redeliveries_are_counted_per_subscription() -> None:
    async with house() as opened:
        log = await opened.log()
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        served = await partitions.open("orders", 0)
        at = (await append(log, batch("a"))).position
        assert at is not None
        one = await served.subscriptions.open("one", start=StartPosition(at))
        other = await served.subscriptions.open("other", start=StartPosition(at))
        served.count_redelivered(one, 90)
        served.count_redelivered(one, 30)
        assert (2.0, 0.0) == (served.redelivery_rate(one), served.redelivery_rate(other))
        opened.clock.advance(60_000)
        assert 0.0 == served.redelivery_rate(one)
        await partitions.close()
        await supervisor.close()


async def test_what_goes_while_a_place_is_looked_for_is_owed_to_nobody() -> None:
    """A log start that is raised between finding the first record and going there."""
    async with house() as opened:
        log = await opened.log()
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        served = await partitions.open("orders", 0)
        await append(log, batch("a", "b"))
        at = (await append(log, batch("c", "d"))).position
        subscription = await served.open_subscription("s", "latest")

        async def reset_too_late(start_position: StartPosition) -> None:
            await log.delete_records(3)
            await subscription.reset(start_position)

        await served._at_target("earliest", reset_too_late, is_inclusive=True)
        (delivery,) = await subscription.peek(9)
        assert (at, 0b10) == (delivery.position, delivery.records)
        assert 1 == await served.backlog(subscription)
        await partitions.close()
        await supervisor.close()


async def test_links_keep_the_partition_open_and_nothing_else() -> None:
    async with house() as opened:
        log = await opened.log()
        supervisor = Supervisor()
        partitions = directory(opened, supervisor)
        served = await partitions.open("orders", 0)
        heard: list[KledgerError] = []
        served.add_listener(heard.append)
        for _ in range(5):
            await opened.registry.close_idle_partitions(2)
        assert ([], False) == (heard, log.is_closed)
        served.remove_listener(heard.append)
        subscription = await served.open_subscription("s", EARLIEST)
        for _ in range(3):
            await opened.registry.close_idle_partitions(2)
        assert (True, True) == (log.is_closed, subscription.is_closed)
        again = await partitions.open("orders", 0)
        assert (False, ["s"]) == (again is served, again.subscriptions.names())
        await partitions.close()
        await supervisor.close()


async def test_a_partition_that_is_closed_while_idle_is_freed() -> None:
    """What is closed so that its memory is free must not wait for a garbage collection."""
    async with serving() as here:
        await here.append("a", "b")
        link = Link()
        consumer = await here.consume(link)
        await turns()
        await consumer.acknowledge([ack(link.deliveries[0])])
        await consumer.close()
        log = await here.log()
        with without_collection() as freed:
            freed.watch(log=log, ledger=log.managed_ledger, cursor=log.managed_ledger.cursors["s"])
            del log, consumer
            await here.house.registry.all()[0].close_partition(0)
            await turns()
            assert [] == freed.left()
