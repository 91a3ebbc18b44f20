"""The load of named topics sends every record once, and commits all that it has received."""

import argparse

import pytest

import kledger
from benchmarks.programs import named_topic_load

RECORDS, CHANNELS = 2_500, 3


async def test_every_record_is_sent_once() -> None:
    sent = []

    async def send(number: int) -> None:
        sent.append(number)

    await named_topic_load.send_all(send, RECORDS)
    assert list(range(RECORDS)) == sorted(sent)


@pytest.mark.parametrize("work", ["consume", "each"])
async def test_what_was_published_is_received_and_committed(work: str) -> None:
    arguments = argparse.Namespace(
        topic="load", partitions=CHANNELS, records=RECORDS, record_bytes=10, work=work
    )
    async with kledger.embedded(None) as client:
        await named_topic_load.create(client, arguments)
        await named_topic_load.publish(client, arguments)
        topic = await client.named_topic("load")
        assert RECORDS == sum(await left_in_channels(topic))
        await named_topic_load.receive(client, arguments)
        assert [0] * CHANNELS == await left_in_channels(topic)


async def left_in_channels(topic: kledger.NamedTopic) -> list[int]:
    """Return how many elements the group has not committed, by channel."""
    (group,) = await topic.describe_groups()
    return [each.remaining for each in group.channels]
