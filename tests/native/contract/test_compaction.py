"""Compaction as a client asks for it, through both transports."""

import asyncio

import pytest

import kledger
from tests.native.contract.words import receive_values


async def test_a_compaction_ends_with_its_horizon(client: kledger.Client) -> None:
    await client.create_topic("prices", partitions=1)
    assert "not_run" == (await client.compaction_status("prices")).state
    producer = await client.create_producer("prices", batching=False)
    ids = [
        await producer.send(value, key=key)
        for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    ]
    await client.compact("prices")
    status = await client.compaction_status("prices")
    assert ("success", "", [ids[-1]]) == (status.state, status.error, status.horizon)
    assert status.started_ms is not None
    assert status.ended_ms is not None
    assert status.started_ms <= status.ended_ms
    assert ids[-1].offset == status.horizon[0].offset  # type: ignore[union-attr]
    consumer = await client.subscribe("prices", "s", initial_position="earliest")
    assert [b"1", b"1", b"2"] == await receive_values(consumer, 3), "without read_compacted"
    assert ["s"] == await client.subscriptions("prices"), "the cursor of compactions is hidden"


async def test_a_topic_is_compacted_once_at_a_time(client: kledger.Client) -> None:
    await client.create_topic("prices", partitions=3)
    producer = await client.create_producer("prices")
    for number in range(300):
        producer.send_nowait(b"%d" % number, key=b"k%d" % (number % 7))
    await producer.flush()
    outcomes = await asyncio.gather(
        *(client.compact("prices") for _ in range(3)), return_exceptions=True
    )
    assert 1 == outcomes.count(None)
    assert {kledger.CompactionRunning, type(None)} == {type(each) for each in outcomes}
    assert "success" == (await client.compaction_status("prices")).state


async def test_an_unknown_topic_is_refused(client: kledger.Client) -> None:
    with pytest.raises(kledger.TopicNotFound):
        await client.compact("missing")
    with pytest.raises(kledger.TopicNotFound):
        await client.compaction_status("missing")
    with pytest.raises(kledger.InvalidArgument):
        await client.compact("")


async def test_a_message_without_a_key_is_refused_where_the_policy_compacts(
    client: kledger.Client,
) -> None:
    await client.create_topic("prices", config={"cleanup.policy": "compact"})
    async with await client.create_producer("prices") as producer:
        with pytest.raises(kledger.InvalidArgument, match="key"):
            await producer.send(b"1")
    (partition,) = (await client.topic_stats("prices")).partitions
    assert 0 == partition.end_offset
