"""Offloading a topic to a folder, and reading it from there."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import kledger
from tests.native.contract.transports import TRANSPORTS
from tests.native.contract.words import receive_values, values

SMALL = {"internal.segment.bytes": "150"}
"""Two or three messages in a ledger, if each is a batch."""
LAG = "managedLedgerOffloadDeletionLagMs"
THRESHOLD = "managedLedgerOffloadThresholdInBytes"


@pytest.fixture(params=list(TRANSPORTS))
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[kledger.Client]:
    settings = {
        "offload.url": f"file://{tmp_path}/tier",
        "log.retention.check.interval.ms": 20,
        "storage.cache_bytes": 0,
    }
    async with TRANSPORTS[request.param](settings) as client:
        yield client


async def filled(client: kledger.Client, topic: str = "orders", partitions: int = 1) -> int:
    """Make a topic of small ledgers with ten messages; return how many ledgers are closed."""
    await client.create_topic(topic, partitions=partitions, config=SMALL)
    async with await client.create_producer(topic, batching=False) as producer:
        for value in values(10):
            await producer.send(value, key=value)
    stats = await client.topic_stats(topic)
    return sum(each.closed_ms is not None for one in stats.partitions for each in one.ledgers)


async def ledgers(client: kledger.Client, topic: str = "orders") -> list[tuple[bool, bool]]:
    """Whether each closed ledger is offloaded, and its primary copy deleted."""
    stats = await client.topic_stats(topic)
    return [
        (each.offloaded, each.primary_deleted)
        for one in stats.partitions
        for each in one.ledgers
        if each.closed_ms is not None
    ]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 (ticks of the loop, no time)
            await asyncio.sleep(0)


def manifests(folder: Path) -> list[dict[str, Any]]:
    """Every manifest, by the path of its partition."""
    found = sorted((folder / "tier").rglob("manifest.json"))
    return [json.loads(each.read_text()) for each in found]


async def test_offload_returns_the_first_position_that_is_not_offloaded(
    client: kledger.Client, tmp_path: Path
) -> None:
    count = await filled(client, partitions=3)
    status = await client.offload_status("orders")
    assert ("not_run", "", count) == (status.state, status.error, status.ledgers_left)
    ends = await client.offload("orders")
    stats = await client.topic_stats("orders")
    for index, (end, one) in enumerate(zip(ends, stats.partitions, strict=True)):
        assert end is not None
        first = next((each for each in one.ledgers if not each.offloaded), None)
        if first is not None:
            assert (first.ledger_id, 0, index) == (end.ledger_id, end.entry_id, end.partition)
    status = await client.offload_status("orders")
    assert ("success", "", 0) == (status.state, status.error, status.ledgers_left)
    listed = [each["ledger_id"] for one in manifests(tmp_path) for each in one["ledgers"]]
    offloaded = [
        each.ledger_id for one in stats.partitions for each in one.ledgers if each.offloaded
    ]
    assert count == len(offloaded)
    assert offloaded == listed


async def test_offload_until_a_message_leaves_other_partitions_alone(
    client: kledger.Client,
) -> None:
    await client.create_topic("orders", partitions=2, config=SMALL)
    async with await client.create_producer("orders", batching=False) as producer:
        sent = [await producer.send(value, key=value) for value in values(20)]
    last = max(each for each in sent if each.partition == 1)
    ends = await client.offload("orders", until=last)
    stats = await client.topic_stats("orders")
    assert not any(each.offloaded for each in stats.partitions[0].ledgers)
    assert any(each.offloaded for each in stats.partitions[1].ledgers)
    assert ends[1] is not None
    assert last.ledger_id == ends[1].ledger_id
    with pytest.raises(kledger.Unavailable, match="partition 1"):
        await client.offload("orders", until=kledger.MessageId(1 << 40, 0, partition=1))
    assert "error" == (await client.offload_status("orders")).state
    with pytest.raises(kledger.TopicNotFound):
        await client.offload("orders", until=kledger.MessageId(1, 0, partition=2))


async def test_policies_offload_and_delete_primaries_and_all_is_read(
    client: kledger.Client,
) -> None:
    count = await filled(client)
    await client.set_policies("orders", {THRESHOLD: "0", LAG: "0"})

    async def is_done() -> bool:
        return [(True, True)] * count == await ledgers(client)

    await until(is_done)
    before = (await client.topic_stats("orders")).partitions[0].reads
    consumer = await client.subscribe("orders", "s", initial_position="earliest")
    assert values(10) == await receive_values(consumer, 10)
    reads = (await client.topic_stats("orders")).partitions[0].reads
    assert reads["tier"] > before["tier"]
    stats = (await client.topic_stats("orders")).partitions[0]
    assert reads["tier"] >= sum(each.entries for each in stats.ledgers if each.offloaded)


async def test_a_topic_of_a_namespace_and_its_deletion(
    client: kledger.Client, tmp_path: Path
) -> None:
    await client.create_namespace("shop/eu")
    await filled(client, "shop/eu/orders")
    await client.offload("shop/eu/orders")
    (manifest,) = manifests(tmp_path)
    assert ("shop/eu/orders", 0) == (manifest["topic"], manifest["partition"])
    (folder,) = (tmp_path / "tier" / "shop" / "eu").iterdir()
    assert f"orders-{manifest['topic_id']}" == folder.name
    await client.delete_topic("shop/eu/orders")

    async def is_empty() -> bool:
        await client.topics()
        # Unlike rglob, it passes over folders that are deleted meanwhile.
        return not any(files for _, _, files in os.walk(tmp_path / "tier"))

    await until(is_empty)


async def test_missing_topic(client: kledger.Client) -> None:
    for call in (client.offload("x"), client.offload_status("x")):
        with pytest.raises(kledger.TopicNotFound):
            await call


@pytest.mark.parametrize("transport", list(TRANSPORTS))
async def test_without_a_tier_offloading_is_refused(transport: str) -> None:
    async with TRANSPORTS[transport]() as client:
        await client.create_topic("orders")
        with pytest.raises(kledger.NotAllowed, match=r"offload\.url"):
            await client.offload("orders")
        assert "not_run" == (await client.offload_status("orders")).state
        with pytest.raises(kledger.InvalidArgument, match=r"offload\.url"):
            await client.create_topic("x", config={"remote.storage.enable": "true"})
