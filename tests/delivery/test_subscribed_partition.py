"""When a partition ends and why, and what it does for its subscriptions."""

import pytest

from kledger.delivery.errors import (
    PartitionClosed,
    PartitionDeleted,
    PartitionEnded,
    ServerStopping,
)
from kledger.delivery.model import EARLIEST
from kledger.runtime.containment import NamedUnit
from kledger.subscriptions.model import StartPosition
from tests.batches.words import batch
from tests.contained import Contained
from tests.delivery.partitions import partition_directory
from tests.delivery.transactions import Writer
from tests.topics.words import append


async def test_listeners_are_called_once_when_the_topic_is_deleted() -> None:
    async with partition_directory() as (opened, partitions):
        log = await opened.log()
        partition = await partitions.open("orders", 0)
        ends: list[PartitionEnded] = []
        partition.add_listener(ends.append)
        removed: list[PartitionEnded] = []
        partition.add_listener(removed.append)
        partition.remove_listener(removed.append)
        await append(log, batch("a"))
        assert ([], None) == (ends, partition.end_error)
        await opened.registry.delete("orders")
        assert [PartitionDeleted] == [type(each) for each in ends]
        assert "topic orders was deleted" == str(partition.end_error)
        await partitions.close()
        assert ([partition.end_error], []) == (ends, removed)


async def test_listeners_get_the_stop_of_the_server() -> None:
    async with partition_directory() as (opened, partitions):
        await opened.log()
        partition = await partitions.open("orders", 0)
        ends: list[PartitionEnded] = []
        partition.add_listener(ends.append)
        await partitions.close()
        await opened.registry.close()
        assert [ServerStopping] == [type(each) for each in ends]


async def test_fault_of_a_listener_closes_its_unit_only(contained: Contained) -> None:
    async with partition_directory() as (opened, partitions):
        await opened.log()
        partition = await partitions.open("orders", 0)
        closed: list[str] = []
        ends: list[PartitionEnded] = []

        def fail(_end: PartitionEnded) -> None:
            raise ZeroDivisionError

        unit = NamedUnit("link", "of a test", lambda: closed.append("link"))
        partition.add_listener(fail, unit)
        partition.add_listener(ends.append)
        await opened.registry.delete("orders")
        assert (["link"], [PartitionDeleted]) == (closed, [type(each) for each in ends])
        assert [ZeroDivisionError] == [type(each) for each in contained.errors]


async def test_redeliveries_are_counted_per_subscription() -> None:
    async with partition_directory() as (opened, partitions):
        log = await opened.log()
        partition = await partitions.open("orders", 0)
        at = (await append(log, batch("a"))).position
        assert at is not None
        one = await partition.subscriptions.open("one", start=StartPosition(at))
        other = await partition.subscriptions.open("other", start=StartPosition(at))
        partition.count_redelivered(one, 90)
        partition.count_redelivered(one, 30)
        assert (2.0, 0.0) == (partition.redelivery_rate(one), partition.redelivery_rate(other))
        opened.clock.advance(60_000)
        assert 0.0 == partition.redelivery_rate(one)


async def test_records_deleted_while_a_target_is_looked_up_are_acknowledged() -> None:
    """A log start that is raised between finding the first record and going there."""
    async with partition_directory() as (opened, partitions):
        log = await opened.log()
        partition = await partitions.open("orders", 0)
        await append(log, batch("a", "b"))
        at = (await append(log, batch("c", "d"))).position
        subscription = await partition.open_subscription("s", "latest")

        async def reset_too_late(start_position: StartPosition) -> None:
            await log.delete_records(3)
            await subscription.reset(start_position)

        await partition._at_target("earliest", reset_too_late, is_inclusive=True)
        (delivery,) = await subscription.peek(9)
        assert (at, 0b10) == (delivery.position, delivery.records)
        assert 1 == await partition.backlog(subscription)


async def test_only_listeners_keep_an_idle_partition_open() -> None:
    async with partition_directory() as (opened, partitions):
        log = await opened.log()
        partition = await partitions.open("orders", 0)
        ends: list[PartitionEnded] = []
        partition.add_listener(ends.append)
        for _ in range(5):
            await opened.registry.close_idle_partitions(2)
        assert ([], False) == (ends, log.is_closed)
        partition.remove_listener(ends.append)
        subscription = await partition.open_subscription("s", EARLIEST)
        partition.add_listener(ends.append, keeps_open=False)
        for _ in range(3):
            await opened.registry.close_idle_partitions(2)
        assert (True, True) == (log.is_closed, subscription.is_closed)
        assert [PartitionClosed] == [type(each) for each in ends]
        again = await partitions.open("orders", 0)
        assert (False, ["s"]) == (again is partition, again.subscriptions.names())


@pytest.mark.parametrize("is_open_transaction", [False, True])
async def test_cleared_backlog_is_what_is_visible(is_open_transaction: bool) -> None:
    async with partition_directory() as (opened, partitions):
        log = await opened.log()
        partition = await partitions.open("orders", 0)
        await append(log, batch("a"))
        subscription = await partition.open_subscription("s", EARLIEST)
        if is_open_transaction:
            writer = Writer(log, 7)
            await writer.write("b")
        await partition.clear_backlog(subscription)
        assert 0 == await partition.backlog(subscription)
        if is_open_transaction:
            await writer.end(commit=True)
            assert [0b1] == [each.records for each in await subscription.peek(9)]
