"""Load by the native client, its named topics, or a Kafka group that does the same, on one topic.

Rule: what is read was written by librdkafka before, in the same batches for all; embedded, that is
done here, as no other process can reach the server. The clock of a native consumer begins with its
subscribing, that of a group with its first record, as it waits for members on purpose. CPU is that
of this process, which embedded is the server, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import kledger
from benchmarks.programs import group_load, named_topic_load, rdkafka_load
from benchmarks.programs.named_topic_load import RECEIVED_MAX, send_all
from benchmarks.programs.payload import VALUES_COUNT, payload_values

VIAS = ("embedded", "remote", "librdkafka", "aiokafka")
WORKS = ("produce", "queue", "consume", "shared", "each", "drain", "create")
PRODUCING = {"produce", "queue"}
_WAIT_S_MAX = 120
_ALONE_EVERY = 10
_QUEUED_MAX = 5000


@asynccontextmanager
async def opened(arguments: argparse.Namespace) -> AsyncIterator[tuple[Any, str]]:
    """Give the native client, None for a group, and the address for Kafka clients."""
    if arguments.via == "embedded":
        async with kledger.embedded(arguments.data, kafka="127.0.0.1:0") as client:
            yield client, client.kafka_address
    elif arguments.via == "remote":
        async with kledger.connect(f"kledger://{arguments.native}") as client:
            yield client, arguments.bootstrap
    else:
        yield None, arguments.bootstrap


async def produce(client: Any, arguments: argparse.Namespace) -> None:
    """Send the records, as many at a time as a producer lets wait."""
    values = payload_values(arguments.record_bytes)
    # Without keys a producer fills a batch of one partition after the other.
    keys = [b"%d" % each if arguments.partitions > 1 else None for each in range(VALUES_COUNT)]
    async with await client.create_producer(arguments.topic) as producer:

        async def send(number: int) -> None:
            place = number % VALUES_COUNT
            await producer.send(values[place], key=keys[place])

        await send_all(send, arguments.records)


async def queue(client: Any, arguments: argparse.Namespace) -> None:
    """Send the records without a task for each; wait for the oldest ones when the queue is full."""
    values = payload_values(arguments.record_bytes)
    partitions = arguments.partitions
    keys = [b"%d" % each if partitions > 1 else None for each in range(VALUES_COUNT)]
    sent: list[asyncio.Future[Any]] = []
    producer = await client.create_producer(arguments.topic, max_pending=_QUEUED_MAX)
    async with producer:
        for number in range(arguments.records):
            index = number % VALUES_COUNT
            sent.append(producer.send_nowait(values[index], key=keys[index]))
            if len(sent) == _QUEUED_MAX:
                await _sent(sent[: _QUEUED_MAX // 2])
                del sent[: _QUEUED_MAX // 2]
        await _sent(sent)


async def _sent(sent: list[asyncio.Future[Any]]) -> None:
    """Wait for messages; those of one partition are stored in their order."""
    for each in reversed(sent):
        if not each.done():
            await each
        each.result()


async def consume(client: Any, arguments: argparse.Namespace) -> None:
    """Read the records and acknowledge all of them, each in the way of the work."""
    kind = "shared" if arguments.work == "shared" else "exclusive"
    left = arguments.records
    everything = asyncio.Event()

    async def read(consumer: Any) -> None:
        nonlocal left
        while not everything.is_set():
            messages = [await consumer.receive()]
            messages += await consumer.batch_receive(RECEIVED_MAX - 1, timeout_ms=0)
            await acknowledge(consumer, messages, arguments.work)
            left -= len(messages)
            if left <= 0:
                everything.set()

    async with AsyncExitStack() as exits:
        consumers = [
            await exits.enter_async_context(
                await client.subscribe(
                    arguments.topic, "load", consumer_type=kind, initial_position="earliest"
                )
            )
            for _ in range(arguments.consumers)
        ]
        readers = [asyncio.ensure_future(read(each)) for each in consumers]
        ended = asyncio.ensure_future(everything.wait())
        await asyncio.wait(
            [ended, *readers], return_when=asyncio.FIRST_COMPLETED, timeout=_WAIT_S_MAX
        )
        for each in readers:
            if each.done():
                each.result()
            each.cancel()
        if not everything.is_set():
            raise SystemExit(f"{left} of {arguments.records} records did not come")


async def acknowledge(consumer: Any, messages: list[Any], work: str) -> None:
    """Acknowledge what was received; return when that is durable."""
    if work == "shared":
        await consumer.acknowledge(messages)
        return
    if work == "each":
        await asyncio.gather(*[consumer.acknowledge(each) for each in messages])
        return
    if work == "drain":
        await consumer.acknowledge(messages[::_ALONE_EVERY])
    last = {each.id.partition: each for each in messages}
    await asyncio.gather(*[consumer.acknowledge_cumulative(each) for each in last.values()])


async def load(arguments: argparse.Namespace) -> dict[str, float]:
    """Prepare the topic, run the load, report its cost."""
    async with opened(arguments) as (client, arguments.bootstrap):
        if arguments.via == "embedded":
            await create(client, arguments)
            if arguments.work not in PRODUCING:
                await asyncio.to_thread(rdkafka_load.produce, arguments)
        cpu, begun = time.process_time(), time.perf_counter()
        seconds: float | None = None
        if client is not None:
            await run(client, arguments)
        elif arguments.work in PRODUCING:
            seconds = await asyncio.to_thread(group_load.PRODUCERS[arguments.via], arguments)
        else:
            seconds = await group_load.consume(arguments)
        elapsed = time.perf_counter() - begun
        return {
            "seconds": elapsed if seconds is None else seconds,
            "client_cpu_s": time.process_time() - cpu,
        }


async def run(client: Any, arguments: argparse.Namespace) -> None:
    """Do the work by the native client."""
    if arguments.work == "create":
        await create(client, arguments)
    elif arguments.is_named:
        is_sending = arguments.work in PRODUCING
        load_topic = named_topic_load.publish if is_sending else named_topic_load.receive
        await load_topic(client, arguments)
    elif arguments.work == "produce":
        await produce(client, arguments)
    elif arguments.work == "queue":
        await queue(client, arguments)
    else:
        await consume(client, arguments)


async def create(client: Any, arguments: argparse.Namespace) -> None:
    """Make the topic, a named one with its group."""
    if arguments.is_named:
        await named_topic_load.create(client, arguments)
    else:
        await client.create_topic(arguments.topic, partitions=arguments.partitions)


def main() -> None:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--via", choices=VIAS, required=True)
    parser.add_argument("--named", dest="is_named", action="store_true", help="a named topic")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--topic", default="native-load")
    parser.add_argument("--data", default=None, help="embedded: where the data is kept")
    parser.add_argument("--native", default="", help="remote: HOST:PORT for native clients")
    parser.add_argument("--bootstrap", default="", help="HOST:PORT for Kafka clients")
    parser.set_defaults(acks="all", codec="none", json=False)
    print(json.dumps(asyncio.run(load(parser.parse_args()))))


if __name__ == "__main__":
    main()
