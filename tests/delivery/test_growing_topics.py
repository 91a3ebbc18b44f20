"""Topics of several brokers that get partitions: what subscriptions find in them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kledger.delivery.model import EARLIEST, LATEST
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import FaultyEngine
from kledger.topics import TopicsError
from tests.batches.words import batch
from tests.delivery.sharing_brokers import BROKERS, SharingBroker, broker, brokers
from tests.topics.words import append


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[list[SharingBroker]]:
    """Three brokers; broker 0 leads the one partition of `orders`."""
    async with brokers(tmp_path, [FaultyEngine(None) for _ in BROKERS]) as running:
        await running[0].registry.create("orders", partitions=1, assigned=[0])
        yield running


async def create(at: SharingBroker, index: int, name: str = "s") -> None:
    """Open a durable subscription as a client does that wants what comes from now on."""
    await (await at.partitions.open("orders", index)).open_subscription(name, LATEST)


async def delete(at: SharingBroker, index: int, name: str = "s") -> None:
    await (await at.partitions.open("orders", index)).delete_subscription(name)


async def grow(at: SharingBroker, total: int, leaders: Sequence[int]) -> None:
    await at.tables.refresh()
    await at.registry.create_partitions("orders", total, leaders)


async def backlogs(at: SharingBroker, index: int) -> dict[str, int]:
    """Append a batch to a partition, and return how many batches each subscription lacks."""
    await at.tables.refresh()
    topic = at.registry.get("orders")
    assert topic is not None
    log = topic.partition_for_append(index) or await topic.open_partition(index)
    assert None is (await append(log, batch("v"))).error
    return {name: each.backlog for name, each in log.managed_ledger.cursors.items()}


@pytest.mark.parametrize("decider", BROKERS)
async def test_subscriptions_get_all_of_a_new_partition(
    cluster: list[SharingBroker], decider: int
) -> None:
    """What was sent to it before the next consumer came was lost to them."""
    await create(cluster[0], 0)
    await grow(cluster[decider], 3, [1, 2])
    assert [{"s": 1}, {"s": 1}] == [await backlogs(cluster[each], each) for each in (1, 2)]


async def test_a_partition_that_is_opened_to_be_read_has_them_too(
    cluster: list[SharingBroker],
) -> None:
    await create(cluster[0], 0)
    await grow(cluster[0], 2, [1])
    opened = await cluster[1].partitions.open("orders", 1)
    assert ["s"] == opened.subscriptions.names()


async def test_a_subscription_that_is_younger_than_a_partition_begins_where_it_wants(
    cluster: list[SharingBroker],
) -> None:
    await grow(cluster[0], 2, [1])
    await create(cluster[0], 0)
    assert {} == await backlogs(cluster[1], 1)
    await create(cluster[1], 1)
    assert {"s": 1} == await backlogs(cluster[1], 1)


async def test_a_deleted_subscription_is_not_in_new_partitions(
    cluster: list[SharingBroker],
) -> None:
    await grow(cluster[0], 2, [1])
    for name in ("s", "kept"):
        for index in (0, 1):
            await create(cluster[index], index, name)
    for index in (0, 1):
        await delete(cluster[index], index)
    await grow(cluster[0], 3, [2])
    assert {"kept": 1} == await backlogs(cluster[2], 2)


async def test_a_deleted_subscription_does_not_come_back(cluster: list[SharingBroker]) -> None:
    """Its new partition has no record, and is opened again."""
    await create(cluster[0], 0)
    await grow(cluster[0], 2, [1])
    await create(cluster[1], 1)
    for index in (0, 1):
        await delete(cluster[index], index)
    topic = cluster[1].registry.get("orders")
    assert topic is not None
    await topic.close_partition(1)
    assert {} == await backlogs(cluster[1], 1)


async def test_a_crash_before_the_first_record_loses_no_subscription(tmp_path: Path) -> None:
    """Whatever commit it comes before: the next opening makes what is missing."""
    outcomes = set()
    for commits in range(5):
        engines = [FaultyEngine(None) for _ in BROKERS]
        folder = tmp_path / str(commits)
        folder.mkdir()
        async with brokers(folder, engines) as running:
            await running[0].registry.create("orders", partitions=1, assigned=[0])
            for name in ("a", "b"):
                await create(running[0], 0, name)
            await grow(running[0], 2, [1])
            opening = asyncio.ensure_future(running[1].partitions.open("orders", 1))
            await let_commit(engines[1], commits, opening)
            engines[1].fail_next("commit", StorageWriteFailed("full"))
            (outcome,) = await asyncio.gather(opening, return_exceptions=True)
            outcomes.add(isinstance(outcome, TopicsError))
        engines[1].disarm()
        async with broker(folder, 1, engines[1]) as again:
            assert {"a": 1, "b": 1} == await backlogs(again, 1)
    assert {True, False} == outcomes


async def let_commit(
    engine: FaultyEngine, count: int, until: "asyncio.Future[SubscribedPartition]"
) -> None:
    """Let an engine make some commits, or fewer if there are no more."""
    for _ in range(count):
        hold = engine.hold_next("commit")
        reached = asyncio.ensure_future(hold.reached())
        waited: list[asyncio.Future[Any]] = [until, reached]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        hold.release()
        reached.cancel()


async def test_a_topic_that_was_created_again_begins_without_them(
    cluster: list[SharingBroker],
) -> None:
    await create(cluster[0], 0)
    await cluster[0].registry.delete("orders")
    await cluster[0].registry.create("orders", partitions=1, assigned=[0])
    await grow(cluster[0], 2, [1])
    assert {} == await backlogs(cluster[1], 1)
    assert [] == [key for key, _ in cluster[0].tables.scan_rows(b"C")]


async def test_overlapping_calls_register_a_name_once(cluster: list[SharingBroker]) -> None:
    await grow(cluster[0], 3, [1, 2])
    await asyncio.gather(*(create(cluster[index], index) for index in BROKERS))
    assert 1 == len(cluster[0].tables.scan_rows(b"C"))


async def test_a_topic_has_a_limited_number_of_them(
    cluster: list[SharingBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kledger.topics.topic_cursors.CURSORS_OF_TOPIC_MAX", 2)
    for name in "aab":
        await create(cluster[0], 0, name)
    with pytest.raises(TopicsError, match="orders: expected at most 2"):
        await create(cluster[0], 0, "c")
    opened = await cluster[0].partitions.open("orders", 0)
    assert ["a", "b"] == opened.subscriptions.names()


async def test_what_is_not_durable_is_not_registered(cluster: list[SharingBroker]) -> None:
    opened = await cluster[0].partitions.open("orders", 0)
    await opened.open_subscription("reader", EARLIEST, is_durable=False)
    assert [] == cluster[0].tables.scan_rows(b"C")
