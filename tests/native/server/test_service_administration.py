"""Topics and subscriptions as wholes."""

import asyncio
from collections.abc import Callable

import pytest

from kledger.ledger import Position
from kledger.ledger.engine.memory import MemoryEngine
from kledger.native.broker import (
    NO_RECORD,
    LedgerStats,
    PartitionStats,
    RecordLocation,
    RecordPosition,
    SeekTarget,
)
from kledger.native.errors import (
    ConsumerBusy,
    InvalidArgument,
    SubscriptionFenced,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
    TopicTerminated,
)
from kledger.subscriptions.model import SubscriptionType
from kledger.subscriptions.subscription import PEEK_ENTRIES_MAX
from kledger.topics.errors import PartitionTerminated
from tests.batches.words import NOW_MS, batch
from tests.native.serving import Link, Serving, ack, serving, ticks
from tests.topics.words import append

LONG = "persistent://public/default/orders"


async def backlog(serving_: Serving, name: str = "s", topic: str = "orders") -> int:
    return (await serving_.service.subscription_stats(topic, name)).backlog


async def unacknowledged(serving_: Serving, name: str = "s") -> list[str]:
    """The records that a new consumer gets and does not acknowledge."""
    link = Link()
    consumer = await serving_.consume(link, subscription=name)
    await ticks()
    await consumer.close()
    return link.values()


# Topics


async def test_topics_are_made_listed_and_deleted() -> None:
    async with serving() as serving_:
        service = serving_.service
        await service.create_topic("persistent://public/default/b", 2, {"retention.ms": "5000"})
        await service.create_topic("a", 1, {})
        assert ["a", "b"] == await service.topics()
        made = serving_.topics.registry.get("b")
        assert made is not None
        assert (2, {"retention.ms": "5000"}) == (made.partition_count, made.configs)
        with pytest.raises(TopicExists):
            await service.create_topic("b", 1, {})
        await service.delete_topic("persistent://public/default/b")
        assert (["a"], [made.id]) == (await service.topics(), serving_.forgotten)
        with pytest.raises(TopicNotFound):
            await service.delete_topic("b")


@pytest.mark.parametrize(
    ("name", "partitions", "config"),
    [
        ("a b", 1, {}),
        ("a", 0, {}),
        ("a", -1, {}),
        ("a", 100_001, {}),
        ("a", 1, {"retention": "5"}),
        ("a", 1, {"retention.ms": "soon"}),
    ],
)
async def test_topics_that_cannot_be_are_refused(
    name: str, partitions: int, config: dict[str, str]
) -> None:
    async with serving() as serving_:
        with pytest.raises(InvalidArgument):
            await serving_.service.create_topic(name, partitions, config)
        assert [] == await serving_.service.topics()


async def test_a_topic_has_numbers() -> None:
    async with serving() as serving_:
        log = await serving_.log(partitions=2)
        await serving_.append("a", "b", "c")
        await log.delete_records(1)
        await serving_.service.create_subscription("orders", "s", "earliest")
        stats = await serving_.service.topic_stats(LONG)
        assert ("orders", ("s",)) == (stats.name, stats.subscriptions)
        size = len(batch("a", "b", "c"))
        (ledger,) = log.managed_ledger.ledgers
        reads = {"cache": 1, "primary": 0, "tier": 0}
        first, second = stats.partitions
        only = LedgerStats(ledger.ledger_id, 1, size, None, False, False)
        assert PartitionStats(1, 3, size, (only,), reads) == first
        assert (0, 0, 0, reads) == (*second[:3], {**second.reads, "cache": 1})
        with pytest.raises(TopicNotFound):
            await serving_.service.topic_stats("missing")


async def test_terminated_topic_refuses_batches_and_can_be_read() -> None:
    """Neither by one façade nor by the other, and not after a restart."""
    engine = MemoryEngine()
    async with serving(engine) as serving_:
        await serving_.log(partitions=2)
        at = await serving_.append("a", "b")
        ends = await serving_.service.terminate(LONG)
        assert [RecordLocation(RecordPosition(at, 1), 2, 1), NO_RECORD] == ends
        assert ends == await serving_.service.terminate("orders")
    async with serving(engine) as serving_:
        for index in (0, 1):
            result = await append(await serving_.log(index=index), batch("c"))
            assert isinstance(result.error, PartitionTerminated)
            with pytest.raises(TopicTerminated):
                await serving_.service.open_producer("orders", index, name="", on_ended=print)
        assert ["a", "b"] == await unacknowledged(serving_)
        nothing = Link()
        await serving_.consume(nothing, partition=1)
        await ticks()
        assert ([], []) == (nothing.values(), nothing.ends)


# Subscriptions: making, looking, removing


async def test_stored_subscriptions_are_listed_before_a_client_connects() -> None:
    engine = MemoryEngine()
    async with serving(engine) as serving_:
        await serving_.log()
        await serving_.append("a", "b", "c")
        await serving_.service.create_subscription("orders", "b", "earliest")
        await serving_.service.create_subscription("orders", "a", "latest")
        link = Link()
        consumer = await serving_.consume(link, subscription="b")
        await serving_.consume(Link(), subscription="not durable", is_durable=False)
        await ticks()
        await consumer.acknowledge([ack(link.deliveries[0], 1)])
    async with serving(engine) as serving_:
        assert ["a", "b"] == await serving_.service.subscriptions(LONG)
        stats = await serving_.service.subscription_stats("orders", "b")
        assert (None, 2, 0, ()) == (
            stats.type,
            stats.backlog,
            stats.unacknowledged,
            stats.consumers,
        )
        assert ["a", "c"] == await unacknowledged(serving_, "b")


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", ["a", "b", "c"]), ("latest", []), (NOW_MS + 1, ["b", "c"]), (1 << 60, [])],
)
async def test_a_subscription_is_made_at_a_target(start: SeekTarget, expected: list[str]) -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a", "b", "c")
        await serving_.service.create_subscription("orders", "s", start)
        await serving_.service.create_subscription("orders", "s", "latest")
        assert len(expected) == await backlog(serving_)
        assert expected == await unacknowledged(serving_)


async def test_a_message_cannot_be_the_target_of_several_partitions() -> None:
    async with serving() as serving_:
        await serving_.log(partitions=2)
        at = await serving_.append("a", "b")
        record_position = RecordPosition(at, 1)
        with pytest.raises(InvalidArgument, match="one partition"):
            await serving_.service.create_subscription("orders", "s", record_position)
        await serving_.service.create_subscription("orders", "s", "latest")
        reset = serving_.service.reset_subscription
        with pytest.raises(InvalidArgument, match="one partition"):
            await reset("orders", "s", record_position, partition=None, inclusive=True)
        await reset("orders", "s", record_position, partition=0, inclusive=True)
        assert ["b"] == await unacknowledged(serving_)
        with pytest.raises(InvalidArgument, match="partition of orders"):
            await reset("orders", "s", record_position, partition=2, inclusive=True)


async def test_a_subscription_with_consumers_is_deleted_only_by_force() -> None:
    async with serving() as serving_:
        await serving_.log(partitions=2)
        await serving_.service.create_subscription("orders", "s", "latest")
        link = Link()
        await serving_.consume(link, partition=1, consumer_name="me")
        with pytest.raises(ConsumerBusy, match="has consumers: me"):
            await serving_.service.delete_subscription("orders", "s", force=False)
        assert (["s"], []) == (await serving_.service.subscriptions("orders"), link.ends)
        assert 0 == await backlog(serving_)
        await serving_.service.delete_subscription("orders", "s", force=True)
        assert ([], [SubscriptionNotFound]) == (
            await serving_.service.subscriptions("orders"),
            link.end_kinds,
        )


async def test_missing_topics_and_subscriptions_are_not_found() -> None:
    async with serving() as serving_:
        await serving_.log()
        service = serving_.service
        for call in (
            service.subscription_stats("orders", "s"),
            service.delete_subscription("orders", "s", force=True),
            service.reset_subscription("orders", "s", 0, partition=None, inclusive=True),
            service.reset_subscription("orders", "s", 0, partition=0, inclusive=True),
            service.skip_messages("orders", "s", 1),
            service.clear_backlog("orders", "s"),
            service.peek("orders", "s", 1),
        ):
            with pytest.raises(SubscriptionNotFound, match="orders has no subscription 's'"):
                await call


async def test_numbers_are_of_all_partitions_together() -> None:
    async with serving() as serving_:
        await serving_.log(partitions=2)
        await serving_.append("a", "b", index=0)
        await serving_.append("c", "d", "e", index=1)
        one, other = Link(), Link()
        await serving_.consume(one, partition=0, kind=SubscriptionType.SHARED, consumer_name="x")
        second = await serving_.consume(
            other, partition=1, kind=SubscriptionType.SHARED, consumer_name="y"
        )
        await serving_.consume(
            Link(), partition=1, kind=SubscriptionType.SHARED, consumer_name="x", permits=0
        )
        await ticks()
        await second.acknowledge([ack(other.deliveries[0], 0)])
        stats = await serving_.service.subscription_stats("orders", "s")
        assert ("shared", 4, 4, ("x", "y"), False) == (
            stats.type,
            stats.backlog,
            stats.unacknowledged,
            stats.consumers,
            stats.is_under_revision,
        )
        await serving_.service.clear_backlog("orders", "s")
        again = await serving_.service.subscription_stats("orders", "s")
        assert again.revision_num > stats.revision_num


async def test_peeking_changes_nothing() -> None:
    async with serving() as serving_:
        await serving_.log(partitions=2)
        first = await serving_.append("a", "b")
        second = await serving_.append("c")
        await serving_.append("d")
        other = await serving_.append("e", index=1)
        await serving_.service.create_subscription("orders", "s", "earliest")
        link = Link()
        consumer = await serving_.consume(link)
        await ticks()
        await consumer.acknowledge([ack(link.deliveries[0], 0)])
        for _ in range(2):
            peeked = await serving_.service.peek("orders", "s", 2)
            assert [
                (0, first, bytes(batch("a", "b"))[61:], 0b10),
                (0, second, bytes(batch("c"))[61:], 0b1),
                (1, other, bytes(batch("e"))[61:], 0b1),
            ] == [(index, at, data[61:], records) for index, at, data, records in peeked]
        for count in (0, PEEK_ENTRIES_MAX + 1):
            with pytest.raises(InvalidArgument, match="count"):
                await serving_.service.peek("orders", "s", count)


# Subscriptions: setting where they stand


@pytest.mark.parametrize(
    ("target", "inclusive", "expected"),
    [
        (lambda at: "earliest", True, ["a", "b", "c", "d", "e"]),
        (lambda at: "latest", True, []),
        (lambda at: NOW_MS + 1, True, ["b", "c", "d", "e"]),
        (lambda at: RecordPosition(at[1], 1), True, ["d", "e"]),
        (lambda at: RecordPosition(at[1], 1), False, ["e"]),
        (lambda at: RecordPosition(at[0]), False, ["c", "d", "e"]),
    ],
)
async def test_a_reset_leads_to_its_target(
    target: Callable[[list[Position]], SeekTarget], inclusive: bool, expected: list[str]
) -> None:
    async with serving() as serving_:
        await serving_.log()
        at: list[Position] = []
        for number, values in enumerate(("ab", "cde")):
            result = await append(
                await serving_.log(), batch(*values, timestamp=NOW_MS + 1_000 * number)
            )
            assert result.position is not None
            at.append(result.position)
        await serving_.service.create_subscription("orders", "s", "earliest")
        link = Link()
        consumer = await serving_.consume(link)
        await ticks()
        await consumer.acknowledge([ack(link.deliveries[1], 0)])
        await serving_.service.reset_subscription(
            LONG, "s", target(at), partition=None, inclusive=inclusive
        )
        assert [None] == link.ends
        assert len(expected) == await backlog(serving_)
        assert expected == await unacknowledged(serving_)


async def test_one_of_two_concurrent_resets_is_fenced() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.service.create_subscription("orders", "s", "latest")
        calls = [
            serving_.service.reset_subscription("orders", "s", to, partition=0, inclusive=True)
            for to in ("earliest", "latest")
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {None, SubscriptionFenced} == {
            None if each is None else type(each) for each in results
        }


async def test_messages_are_skipped_one_by_one() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a", "b", "c")
        await serving_.append("d", "e", "f")
        await serving_.service.create_subscription("orders", "s", "earliest")
        await serving_.service.skip_messages("orders", "s", 4)
        assert 2 == await backlog(serving_)
        assert ["e", "f"] == await unacknowledged(serving_)
        with pytest.raises(InvalidArgument, match="count"):
            await serving_.service.skip_messages("orders", "s", 0)
        await serving_.service.skip_messages("orders", "s", 1_000)
        assert 0 == await backlog(serving_)


async def test_a_cleared_backlog_contains_later_records_only() -> None:
    async with serving() as serving_:
        await serving_.log(partitions=2)
        for index in (0, 1):
            await serving_.append("a", "b", index=index)
        await serving_.service.create_subscription("orders", "s", "earliest")
        assert 4 == await backlog(serving_)
        await serving_.service.clear_backlog(LONG, "s")
        assert 0 == await backlog(serving_)
        await serving_.append("c")
        assert ["c"] == await unacknowledged(serving_)


async def test_later_partitions_take_part_in_administration() -> None:
    async with serving() as serving_:
        await serving_.log()
        await serving_.append("a")
        await serving_.service.create_subscription("orders", "s", "earliest")
        await serving_.topics.registry.create_partitions("orders", 2)
        await serving_.append("b", index=1)
        assert (["s"], 2) == (
            await serving_.service.subscriptions("orders"),
            await backlog(serving_),
        )
        await serving_.service.create_subscription("orders", "s", "earliest")
        assert 2 == await backlog(serving_)


# Kafka clients


async def test_a_server_without_a_gateway_has_no_kafka_clients() -> None:
    async with serving() as serving_:
        assert [] == await serving_.service.metrics_clients()
        assert None is await serving_.service.client_metrics("8SNFZ4mrze-BI0VniavN7w")
