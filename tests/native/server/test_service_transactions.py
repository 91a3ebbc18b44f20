"""Every call of native clients sees committed records only."""

import pytest

from kledger.native.broker import NO_RECORD, RecordPosition
from kledger.native.forwarder.topic_forwarder import ForwardRequest, TopicForwarder
from kledger.runtime.clock import SystemClock
from kledger.runtime.entropy import SystemEntropy
from kledger.subscriptions.model import SubscriptionType
from tests.delivery.transactions import Writer
from tests.native.serving import Link, Serving, ack, serving, ticks

ALL_TYPES = pytest.mark.parametrize("kind", SubscriptionType)


async def writers(serving_: Serving) -> tuple[Writer, Writer]:
    log = await serving_.log()
    return Writer(log, 7), Writer(log, 8)


async def backlog(serving_: Serving) -> int:
    return (await serving_.service.subscription_stats("orders", "s")).backlog


@ALL_TYPES
async def test_commits_come_when_they_are_settled_and_aborts_never(kind: SubscriptionType) -> None:
    async with serving() as serving_:
        one, two = await writers(serving_)
        link = Link()
        consumer = await serving_.consume(link, kind=kind)
        await serving_.append("a")
        await one.write("b", "c")
        await two.write("-")
        await serving_.append("d")
        await ticks()
        assert ["a"] == link.values()
        await two.end(commit=False)
        await one.write("e")
        await ticks()
        assert ["a"] == link.values(), "behind a transaction that is open"
        await one.end(commit=True)
        await ticks()
        assert ["a", "b", "c", "d", "e"] == link.values()
        await consumer.acknowledge([ack(each) for each in link.deliveries])
        await one.write("-", "-")
        await one.end(commit=False)
        await serving_.append("f")
        await ticks()
        assert "f" == link.values()[5]
        assert 1 == await backlog(serving_), "what is hidden was passed over"


@ALL_TYPES
async def test_negatively_acknowledged_records_are_redelivered_behind_an_open_transaction(
    kind: SubscriptionType,
) -> None:
    async with serving() as serving_:
        one, two = await writers(serving_)
        await two.write("-")
        await two.end(commit=False)
        await serving_.append("a")
        await one.write("b")
        link = Link()
        consumer = await serving_.consume(link, kind=kind)
        await ticks()
        consumer.redeliver(None)
        await ticks()
        assert ["a", "a"] == link.values()
        await one.end(commit=True)
        await ticks()
        assert ["a", "a", "b"] == link.values()


async def test_the_newest_record_is_the_newest_that_is_committed() -> None:
    async with serving() as serving_:
        one, two = await writers(serving_)
        await one.write("-")
        assert NO_RECORD == await serving_.service.last_record("orders", 0)
        await one.end(commit=False)
        assert NO_RECORD == await serving_.service.last_record("orders", 0)
        committed = await one.write("a", "b")
        await two.write("-")
        await one.end(commit=True)
        assert (
            RecordPosition(committed, 1)
            == (await serving_.service.last_record("orders", 0)).record_position
        )
        behind = await serving_.append("c")
        assert (
            RecordPosition(committed, 1)
            == (await serving_.service.last_record("orders", 0)).record_position
        )
        await two.end(commit=False)
        assert (
            RecordPosition(behind, 0)
            == (await serving_.service.last_record("orders", 0)).record_position
        )


async def test_peeking_and_skipping_count_committed_records() -> None:
    async with serving() as serving_:
        one, two = await writers(serving_)
        service = serving_.service
        await service.create_subscription("orders", "s", "earliest")
        await one.write("-", "-")
        first = await two.write("a", "b")
        await one.end(commit=False)
        await two.end(commit=True)
        await one.write("c", "d")

        async def peeked() -> list[int]:
            return [records for _, _, _, records in await service.peek("orders", "s", 9)]

        assert [first] == [position for _, position, _, _ in await service.peek("orders", "s", 9)]
        await service.skip_messages("orders", "s", 1)
        assert [0b10] == await peeked()
        await service.skip_messages("orders", "s", 9)
        assert [] == await peeked()
        assert 0 == await backlog(serving_)
        await one.end(commit=True)
        assert [0b11] == await peeked(), "skipping has not gone beyond what could be seen"


async def test_an_open_transaction_joins_the_backlog_when_committed() -> None:
    async with serving() as serving_:
        one, _ = await writers(serving_)
        await serving_.service.create_subscription("orders", "s", "earliest")
        await serving_.append("a")
        await one.write("b", "c")
        await serving_.append("d")
        assert 1 == await backlog(serving_)
        await one.end(commit=True)
        assert 5 == await backlog(serving_), "its marker counts until a consumer comes"
        link = Link()
        await serving_.consume(link)
        await ticks()
        assert ["a", "b", "c", "d"] == link.values()
        assert 4 == await backlog(serving_)


async def test_acknowledgements_of_invisible_records_are_ignored() -> None:
    async with serving() as serving_:
        one, _ = await writers(serving_)
        link = Link()
        consumer = await serving_.consume(link)
        await serving_.append("a")
        await one.write("b")
        beyond = await serving_.append("c", "d")
        await ticks()
        (delivery,) = link.deliveries
        await consumer.acknowledge([ack(delivery)._replace(position=beyond, batch_size=2)])
        assert 1 == await backlog(serving_)


@pytest.mark.parametrize("way", ["clear", "reset", "new"])
async def test_latest_is_before_open_transactions(way: str) -> None:
    """A new subscription gets records committed later, and nothing else."""
    async with serving() as serving_:
        one, two = await writers(serving_)
        service = serving_.service
        await serving_.append("old")
        if way != "new":
            await service.create_subscription("orders", "s", "earliest")
        await one.write("a")
        await two.write("-")
        await serving_.append("b")
        if way == "clear":
            await service.clear_backlog("orders", "s")
        elif way == "reset":
            await service.reset_subscription(
                "orders", "s", "latest", partition=None, inclusive=True
            )
        link = Link()
        await serving_.consume(link, start="latest")
        await ticks()
        assert ([], 0) == (link.values(), await backlog(serving_))
        await two.end(commit=False)
        await one.end(commit=True)
        await ticks()
        assert ["a", "b"] == link.values()


async def test_going_into_an_aborted_or_an_open_transaction() -> None:
    async with serving() as serving_:
        one, two = await writers(serving_)
        aborted = await one.write("-", "-")
        await serving_.append("a")
        await one.end(commit=False)
        is_open = await two.write("b", "c", "d")
        link = Link()
        await serving_.consume(link)
        await ticks()
        for target, expected in (
            (RecordPosition(aborted, 1), ["a"]),
            (RecordPosition(is_open, 1), []),
        ):
            await serving_.service.reset_subscription(
                "orders", "s", target, partition=0, inclusive=True
            )
            link = Link()
            await serving_.consume(link)
            await ticks()
            assert expected == link.values()
        await two.end(commit=True)
        await ticks()
        assert ["c", "d"] == link.values()


async def test_aborted_records_are_hidden_after_a_restart() -> None:
    async with serving() as serving_:
        one, two = await writers(serving_)
        await serving_.service.create_subscription("orders", "s", "earliest")
        await one.write("-")
        await serving_.append("a")
        await one.end(commit=False)
        await two.write("b")
        topic = serving_.topics.registry.get("orders")
        assert topic is not None
        await topic.close_partition(0)
        reopened = await serving_.log()
        assert reopened is not one.log
        link = Link()
        await serving_.consume(link)
        await ticks()
        assert ["a"] == link.values()
        two.log = reopened
        await two.end(commit=True)
        await ticks()
        assert ["a", "b"] == link.values()


async def test_forwarding_copies_committed_records_in_order() -> None:
    async with serving() as serving_:
        one, two = await writers(serving_)
        await serving_.append("a")
        await one.write("-")
        await two.write("b")
        await serving_.append("c")
        await one.end(commit=False)
        await two.end(commit=True)
        await one.write("later")
        request = ForwardRequest(source="orders", target="copy", subscription="s", start="earliest")
        forwarding = TopicForwarder(
            request,
            serving_.service,
            serving_.service,
            clock=SystemClock(),
            entropy=SystemEntropy(),
        )
        await forwarding.open()
        await forwarding.run(until_caught_up=True)
        copied = Link()
        await serving_.consume(copied, topic="copy", subscription="look")
        await ticks()
        assert ["a", "b", "c"] == copied.values()
        log = await serving_.log("copy")
        assert (3, 3) == (log.high_watermark, log.last_stable_offset)
