"""Load by publishers and subscribers of a named topic.

Rule: the same work, and as much of it under way, as that of a producer and a consumer of the native
client. The group is made before the records are written, as it gets only those that come later.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import kledger
from benchmarks.programs.payload import VALUES_COUNT, payload_values

GROUP = "load"
RECEIVED_MAX = 1000
_SENDERS = 1000
_WAIT_S_MAX = 120


async def send_all(send: Callable[[int], Awaitable[None]], records: int) -> None:
    """Send records by their numbers, as many at a time as a producer lets wait."""
    numbers = count()

    async def send_some() -> None:
        while (number := next(numbers)) < records:
            await send(number)

    await asyncio.gather(*[send_some() for _ in range(_SENDERS)])


async def create(client: kledger.Client, arguments: argparse.Namespace) -> None:
    """Make the topic and its group."""
    topic = await client.named_topic(arguments.topic, channel_count=arguments.partitions)
    await topic.ensure_subscriber_group(GROUP)


async def publish(client: kledger.Client, arguments: argparse.Namespace) -> None:
    """Publish the records to one channel after the other."""
    values = payload_values(arguments.record_bytes)
    topic = await client.named_topic(arguments.topic)
    async with await topic.create_publisher(order_by="round_robin") as publisher:

        async def send(number: int) -> None:
            await publisher.publish(values[number % VALUES_COUNT])

        await send_all(send, arguments.records)


async def receive(client: kledger.Client, arguments: argparse.Namespace) -> None:
    """Receive the records and commit them, each or only the last one of each channel."""
    left = arguments.records
    topic = await client.named_topic(arguments.topic)
    async with (
        await topic.create_subscriber(group=GROUP) as subscriber,
        asyncio.timeout(_WAIT_S_MAX),
    ):
        while left > 0:
            elements = await subscriber.receive_batch(RECEIVED_MAX)
            if arguments.work == "each":
                results = await asyncio.gather(*[each.commit() for each in elements])
            else:
                last = {each.channel: each.position for each in elements}
                results = list((await subscriber.commit_all(last)).values())
            for result in results:
                if not result.is_success:
                    raise SystemExit(f"commit of {result.position}: {result.error}")
            left -= len(elements)
