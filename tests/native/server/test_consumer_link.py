"""A consumer link: the checks of a client's requests, and its end."""

import pytest

from kledger.ledger import Position
from kledger.native.errors import InvalidArgument, SubscriptionNotFound, TopicNotFound
from kledger.subscriptions.model import RecordMask, SubscriptionType
from tests.native.serving import Link, ack, serving, ticks


async def test_requests_of_a_consumer_are_checked() -> None:
    """Permits and masks come from a client, which may be any program."""
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a", "b")
        link = Link()
        consumer = await serving_.consume(link)
        await ticks()
        good = ack(link.deliveries[0], 0, 1)
        for permits in (0, -1, 1 << 21):
            with pytest.raises(InvalidArgument, match="permits"):
                consumer.add_permits(permits)
        for bad in (
            good._replace(batch_size=0),
            good._replace(batch_size=1 << 26),
            good._replace(records=-2),
            good._replace(records=0b100),
            good._replace(position=Position(99, 0)),
        ):
            with pytest.raises(InvalidArgument):
                await consumer.acknowledge([bad])
            with pytest.raises(InvalidArgument):
                await consumer.acknowledge_upto(bad)
        stats = await serving_.service.subscription_stats("orders", "s")
        assert (2, 2) == (stats.backlog, stats.unacknowledged)


@pytest.mark.parametrize("is_durable", [True, False])
async def test_deleting_the_topic_by_any_facade_ends_its_links(is_durable: bool) -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a")
        link = Link()
        consumer = await serving_.consume(link, is_durable=is_durable)
        await ticks()
        await serving_.topics.registry.delete("orders")
        assert [TopicNotFound] == link.end_kinds
        await consumer.acknowledge([ack(link.deliveries[0])])
        consumer.add_permits(1)
        consumer.redeliver(None)
        await consumer.close()
        await ticks()
        assert [TopicNotFound] == link.end_kinds


async def test_deleting_the_subscription_ends_its_links() -> None:
    async with serving() as serving_:
        await serving_.log()
        link = Link()
        await serving_.consume(link)
        await serving_.service.delete_subscription("orders", "s", force=True)
        assert [SubscriptionNotFound] == link.end_kinds


async def test_a_reset_ends_links_which_may_reopen_at_once() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a", "b")
        link = Link()
        old = await serving_.consume(link)
        await ticks()
        await serving_.service.reset_subscription(
            "orders", "s", "earliest", partition=0, inclusive=True
        )
        assert [None] == link.ends
        await old.acknowledge([ack(link.deliveries[0])])
        again = Link()
        await serving_.consume(again)
        await ticks()
        assert (["a", "b"], ["a", "b"]) == (link.values(), again.values())


async def test_closed_links_are_not_called() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a")
        link = Link()
        consumer = await serving_.consume(link)
        await ticks()
        await consumer.close()
        await consumer.close()
        await serving_.append("b")
        await ticks()
        await serving_.topics.registry.delete("orders")
        await ticks()
        assert ([], ["a"]) == (link.ends, link.values())


async def test_redeliveries_show_in_the_statistics() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a", "b", "c")
        await serving_.append("d", "e", "f")
        link = Link()
        consumer = await serving_.consume(link, kind=SubscriptionType.SHARED)
        await ticks()
        consumer.redeliver([RecordMask(Position(99, 0))])  # not this one's
        await ticks()
        assert 0.0 == (await serving_.service.subscription_stats("orders", "s")).redelivery_rate
        consumer.redeliver(None)
        await ticks()
        assert 12 == len(link.values())
        stats = await serving_.service.subscription_stats("orders", "s")
        assert 0.1 == stats.redelivery_rate


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_permits_may_end_before_what_was_read(kind: SubscriptionType) -> None:
    """An entry is delivered while there are permits; later ones wait."""
    async with serving() as serving_:
        await serving_.log()
        for values in ("abc", "def", "ghi", "jkl"):
            await serving_.append(*values)
        link = Link()
        consumer = await serving_.consume(link, kind=kind, permits=4)
        await ticks()
        assert list("abcdef") == link.values()
        await ticks()
        consumer.add_permits(4)
        await ticks()
        assert list("abcdefghi") == link.values()
        consumer.add_permits(2)
        await ticks()
        assert list("abcdefghijkl") == link.values()
