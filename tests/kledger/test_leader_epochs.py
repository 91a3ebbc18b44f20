"""A topic of three leaders: subscriptions, views, compaction, the tier and Spark read all of it."""

from pathlib import Path

import pytest

import kledger
from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition, OffsetRange
from kledger.spark.source_options import TierLocation
from kledger.spark.tier_reader import TieredTopics, read_split
from kledger.testing import Server

EPOCHS = (0, 3, 7)
EACH = 6
PARTITION = KafkaPartition("orders", 0)
CONFIG = {"internal.segment.bytes": "150"}


def sent(number: int) -> list[tuple[bytes, bytes]]:
    """Keys and values under the epoch with that number; half of the keys come again."""
    first = number * EACH // 2
    return [(b"k%d" % (first + each), b"%d of %d" % (each, number)) for each in range(EACH)]


ALL = [each for number in range(len(EPOCHS)) for each in sent(number)]


async def received(
    consumer: kledger.Consumer, count: int
) -> list[tuple[bytes | None, bytes | None]]:
    found = []
    for _ in range(count):
        message = await consumer.receive()
        found.append((message.key, message.value))
        await consumer.acknowledge(message)
    return found


def rows_of_tier(url: str) -> list[tuple[bytes, bytes]]:
    """What Spark reads without a server."""
    location = TierLocation(url)
    topics = TieredTopics(location)
    assert topics.topics(["orders"]) == {"orders": 1}
    (start,) = topics.offsets({PARTITION: EARLIEST}, is_committed=True).values()
    (end,) = topics.offsets({PARTITION: LATEST}, is_committed=True).values()
    return [
        (row["key"], row["value"])
        for split in topics.splits([OffsetRange(PARTITION, start, end)], None)
        for part in read_split(location, split, with_headers=False, is_committed=True)
        for row in part.to_pylist()
    ]


@pytest.mark.slow
async def test_everything_reads_what_several_leaders_wrote(tmp_path: Path) -> None:
    tier = f"file://{tmp_path}/tier"
    settings: dict[str, object] = {
        "offload.url": tier,
        "storage.cache_bytes": 0,
        "storage.durability": "os",
    }
    for number, epoch in enumerate(EPOCHS):
        async with (
            Server(
                tmp_path / "data",
                native="127.0.0.1:0",
                settings=settings,
                leader_epoch=epoch,
            ) as server,
            kledger.connect(f"kledger://{server.native_address}") as client,
        ):
            if not number:
                await client.create_topic("orders", config=CONFIG)
            consumer = await client.subscribe("orders", "kept", initial_position="earliest")
            async with await client.create_producer("orders", batching=False) as producer:
                for key, value in sent(number):
                    await producer.send(value, key=key)
            assert await received(consumer, EACH) == sent(number)
            await client.offload("orders")
    found = rows_of_tier(tier)
    assert found == ALL[: len(found)]
    assert len(found) > 2 * EACH, "the tier has batches of every epoch"
    async with (
        Server(tmp_path / "data", native="127.0.0.1:0", settings=settings) as server,
        kledger.connect(f"kledger://{server.native_address}") as client,
    ):
        again = await client.subscribe("orders", "again", initial_position="earliest")
        assert await received(again, len(ALL)) == ALL
        view = await client.create_table_view("orders")
        assert dict(view.items()) == dict(ALL)
        await client.compact("orders")
        compacted = await client.subscribe(
            "orders", "compacted", initial_position="earliest", read_compacted=True
        )
        assert dict(await received(compacted, len(dict(ALL)))) == dict(ALL)
