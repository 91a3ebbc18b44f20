"""The broker as a native client sees it: topics, consumers, and both façades on one partition."""

import asyncio

import pytest

from kledger.native.broker import NO_RECORD, RecordPosition, TopicInfo
from kledger.native.errors import (
    ConsumerBusy,
    InvalidArgument,
    KledgerError,
    NotAllowed,
    TopicNotFound,
    Unavailable,
)
from kledger.subscriptions.model import SubscriptionType
from kledger.topics.partition.results import AppendResult
from kledger.topics.partition.transaction_state import TransactionEnd
from tests.batches.words import batch
from tests.native.serving import Link, ack, serving, ticks
from tests.topics.words import all_values

LONG = "persistent://public/default/orders"


# Topics


async def test_a_missing_topic_is_created_when_requested_and_allowed() -> None:
    async with serving() as serving_:
        service = serving_.service
        with pytest.raises(TopicNotFound, match="no topic is called 'orders'"):
            await service.lookup("orders", create=False)
        assert TopicInfo("orders", 1) == await service.lookup(LONG, create=True)
        assert TopicInfo("orders", 1) == await service.lookup("orders", create=False)
        await serving_.topics.registry.create_partitions("orders", 3)
        assert TopicInfo("orders", 3) == await service.lookup(LONG, create=True)
    async with serving(auto_create_topics=False) as serving_:
        with pytest.raises(TopicNotFound):
            await serving_.service.lookup("orders", create=True)


async def test_concurrent_lookups_create_one_topic() -> None:
    async with serving() as serving_:
        found = await asyncio.gather(
            *(serving_.service.lookup(name, create=True) for name in ("orders", LONG, "orders"))
        )
        assert [TopicInfo("orders", 1)] * 3 == found


@pytest.mark.parametrize("name", ["", "a b", "x" * 250, "__consumer_offsets", "a/b"])
async def test_names_that_cannot_be_are_refused(name: str) -> None:
    async with serving() as serving_:
        with pytest.raises(InvalidArgument, match="Topic name is invalid"):
            await serving_.service.lookup(name, create=True)


async def test_the_newest_record_is_returned() -> None:
    async with serving() as serving_:
        log = await serving_.log()
        assert NO_RECORD == await serving_.service.last_record("orders", 0)
        at = await serving_.append("a", "b", "c")
        assert (
            RecordPosition(at, 2) == (await serving_.service.last_record(LONG, 0)).record_position
        )
        await log.delete_records(-1)
        assert NO_RECORD == await serving_.service.last_record("orders", 0)
        at = await serving_.append("d")
        assert (
            RecordPosition(at, 0)
            == (await serving_.service.last_record("orders", 0)).record_position
        )


# Both façades on one partition


async def test_kafka_and_native_clients_read_each_others_records() -> None:
    async with serving() as serving_:
        log = await serving_.log()
        await serving_.append("a", "b")
        link = Link()
        await serving_.consume(link)
        producer = await serving_.service.open_producer(LONG, 0, name="", on_ended=link.on_ended)
        receipt = await producer.send(batch("c", "d"))
        await serving_.append("e")
        await ticks()
        assert ["a", "b", "c", "d", "e"] == link.values()
        assert receipt.position == link.deliveries[1].position
        assert [b"a", b"b", b"c", b"d", b"e"] == await all_values(log)
        assert [] == link.ends


async def test_acknowledged_records_are_not_redelivered() -> None:
    async with serving() as serving_:
        await serving_.log()
        for values in ("ab", "cde", "f"):
            await serving_.append(*values)
        link = Link()
        consumer = await serving_.consume(link)
        await ticks()
        first, second, _ = link.deliveries
        await consumer.acknowledge([ack(first), ack(second, 1)])
        await consumer.close()
        again = Link()
        consumer = await serving_.consume(again)
        await ticks()
        assert ["c", "e", "f"] == again.values()
        await consumer.acknowledge_upto(ack(again.deliveries[-1]))
        await consumer.close()
        stats = await serving_.service.subscription_stats("orders", "s")
        assert (0, 0, ()) == (stats.backlog, stats.unacknowledged, stats.consumers)


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_transaction_markers_are_not_delivered(kind: SubscriptionType) -> None:
    async with serving() as serving_:
        log = await serving_.log()
        places = []
        for sequence, values in enumerate(("ab", "c")):
            appended: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
            data = batch(*values, producer=7, sequence=2 * sequence, transactional=True)
            log.append_nowait(memoryview(data), appended.set_result, is_verified=True)
            position = (await appended).position
            assert position is not None
            places.append(position)
            appended = asyncio.get_running_loop().create_future()
            log.append_marker_nowait(TransactionEnd(7, 0, is_commit=True), appended.set_result)
            assert (await appended).error is None
        assert (
            RecordPosition(places[1], 0)
            == (await serving_.service.last_record("orders", 0)).record_position
        )
        await serving_.service.create_subscription("orders", "s", "earliest")
        peeked = await serving_.service.peek("orders", "s", 9)
        assert places == [position for _, position, _, _ in peeked]
        link = Link()
        consumer = await serving_.consume(link, kind=kind)
        await ticks()
        assert ["a", "b", "c"] == link.values()
        await consumer.acknowledge([ack(each) for each in link.deliveries])
        stats = await serving_.service.subscription_stats("orders", "s")
        assert (0, 0) == (stats.backlog, stats.unacknowledged)
        await consumer.close()
        await serving_.service.reset_subscription(
            "orders", "s", "earliest", partition=0, inclusive=True
        )
        await serving_.service.skip_messages("orders", "s", 3)
        again = Link()
        await serving_.consume(again, kind=kind)
        await ticks()
        assert [] == again.values()
        assert 0 == (await serving_.service.subscription_stats("orders", "s")).backlog


# Consumers: where they begin


@pytest.mark.parametrize(
    ("entry", "index", "is_inclusive", "expected"),
    [
        (0, 1, True, ["b", "c", "d"]),
        (0, 1, False, ["c", "d"]),
        (0, -1, True, ["a", "b", "c", "d"]),
        (1, 0, False, ["d"]),
        (1, 1, False, []),
    ],
)
@pytest.mark.parametrize("is_durable", [True, False])
async def test_a_new_subscription_begins_at_its_target(
    entry: int, index: int, is_inclusive: bool, expected: list[str], is_durable: bool
) -> None:
    async with serving() as serving_:
        await serving_.log()
        at = [await serving_.append("a", "b"), await serving_.append("c", "d")]
        link = Link()
        await serving_.consume(
            link,
            start=RecordPosition(at[entry], index),
            is_start_inclusive=is_inclusive,
            is_durable=is_durable,
        )
        await ticks()
        assert expected == link.values()
        await serving_.append("later")
        await ticks()
        assert [*expected, "later"] == link.values()


async def test_existing_subscription_continues_at_its_position() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.service.create_subscription("orders", "s", "earliest")
        await serving_.append("a")
        link = Link()
        await serving_.consume(link, start="latest")
        await ticks()
        assert ["a"] == link.values()


async def test_subscription_at_latest_gets_later_records_only() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a")
        link = Link()
        await serving_.consume(link, start="latest")
        await serving_.append("b")
        await ticks()
        assert ["b"] == link.values()


# Consumers: refusals


async def test_consumers_that_exclude_each_other_are_refused() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.consume(Link(), consumer_name="first")
        with pytest.raises(ConsumerBusy):
            await serving_.consume(Link())
        with pytest.raises(ConsumerBusy):
            await serving_.consume(Link(), kind=SubscriptionType.SHARED)
        with pytest.raises(NotAllowed, match="is durable, the consumer wants one that is not"):
            await serving_.consume(Link(), is_durable=False)
        stats = await serving_.service.subscription_stats("orders", "s")
        assert ("exclusive", ("first",)) == (stats.type, stats.consumers)


async def test_consumers_without_a_name_get_one_of_their_own() -> None:
    async with serving() as serving_:
        await serving_.log()
        for _ in range(2):
            await serving_.consume(Link(), kind=SubscriptionType.SHARED)
        stats = await serving_.service.subscription_stats("orders", "s")
        assert 2 == len(set(stats.consumers))


async def test_wrong_consumer_requests_are_refused() -> None:
    async with serving() as serving_:
        await serving_.log()
        with pytest.raises(TopicNotFound):
            await serving_.consume(Link(), topic="missing")
        with pytest.raises(InvalidArgument, match="partition of orders"):
            await serving_.consume(Link(), partition=1)
        with pytest.raises(InvalidArgument, match="subscription"):
            await serving_.consume(Link(), subscription="")
        assert [] == await serving_.service.subscriptions("orders")


# The end


async def test_closing_the_service_ends_every_link_and_refuses_new_ones() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a", "b")
        one, other = Link(), Link()
        consumer = await serving_.consume(one)
        await ticks()
        await consumer.acknowledge([ack(one.deliveries[0], 0)])
        await serving_.service.open_producer("orders", 0, name="", on_ended=other.on_ended)
        await serving_.service.close()
        await serving_.service.close()
        assert ([Unavailable], [Unavailable]) == (one.end_kinds, other.end_kinds)
        with pytest.raises(Unavailable, match="stopping"):
            await serving_.consume(Link())
        with pytest.raises(Unavailable, match="stopping"):
            await serving_.service.lookup("orders", create=True)


async def test_only_native_errors_are_raised() -> None:
    """Every call raises Unavailable after the store has failed."""
    async with serving() as serving_:
        log = await serving_.log()
        await serving_.append("a")
        await serving_.consume(Link())
        await log.managed_ledger.close()
        with pytest.raises(KledgerError):
            await serving_.service.last_record("orders", 0)
