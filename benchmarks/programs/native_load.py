"""Load by the native client, or by a Kafka group that does the same work, on one topic.

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
from itertools import count
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

import kledger
from benchmarks.programs import group_load, rdkafka_load
from benchmarks.programs.payload import VALUES_COUNT, payload_values

VIAS = ("embedded", "remote", "librdkafka", "aiokafka")
WORKS = ("produce", "consume", "shared", "drain")
_SENDERS = 1000
_RECEIVED_MAX = 1000
_WAIT_S_MAX = 120
_ALONE_EVERY = 10
_ADMIN_TIMEOUT_S = 60


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
    numbers = count()

    async def send_some() -> None:
        while (number := next(numbers)) < arguments.records:
            await producer.send(values[number % VALUES_COUNT])

    async with AsyncExitStack() as exits:
        producer = await exits.enter_async_context(await client.create_producer(arguments.topic))
        await asyncio.gather(*[send_some() for _ in range(_SENDERS)])


async def consume(client: Any, arguments: argparse.Namespace) -> None:
    """Read the records and acknowledge all of them, each in the way of the work."""
    kind = "shared" if arguments.work == "shared" else "exclusive"
    left = arguments.records
    everything = asyncio.Event()

    async def read(consumer: Any) -> None:
        nonlocal left
        while not everything.is_set():
            messages = [await consumer.receive()]
            messages += await consumer.batch_receive(_RECEIVED_MAX - 1, timeout_ms=0)
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
        await asyncio.gather(*[consumer.acknowledge(each) for each in messages])
        return
    if work == "drain":
        alone = messages[::_ALONE_EVERY]
        await asyncio.gather(*[consumer.acknowledge(each) for each in alone])
    await consumer.acknowledge_cumulative(messages[-1])


async def load(arguments: argparse.Namespace) -> dict[str, float]:
    """Prepare the topic, do the work, tell what it took."""
    async with opened(arguments) as (client, arguments.bootstrap):
        if arguments.via == "embedded":
            await asyncio.to_thread(prepare, arguments)
        cpu, begun = time.process_time(), time.perf_counter()
        seconds: float | None = None
        if client is not None:
            await (produce if arguments.work == "produce" else consume)(client, arguments)
        elif arguments.work == "produce":
            seconds = await asyncio.to_thread(group_load.PRODUCERS[arguments.via], arguments)
        else:
            seconds = await group_load.consume(arguments)
        elapsed = time.perf_counter() - begun
        return {
            "seconds": elapsed if seconds is None else seconds,
            "client_cpu_s": time.process_time() - cpu,
        }


def prepare(arguments: argparse.Namespace) -> None:
    """Make the topic, and fill it if it is to be read."""
    admin = AdminClient({"bootstrap.servers": arguments.bootstrap, "log_level": 3})
    new = NewTopic(arguments.topic, num_partitions=arguments.partitions, replication_factor=1)
    admin.create_topics([new])[arguments.topic].result(_ADMIN_TIMEOUT_S)
    if arguments.work != "produce":
        rdkafka_load.produce(arguments)


def main() -> None:
    """Run one load and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--via", choices=VIAS, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--consumers", type=int, default=1)
    parser.add_argument("--topic", default="native-load")
    parser.add_argument("--data", default=None, help="embedded: where the data is kept")
    parser.add_argument("--native", default="", help="remote: HOST:PORT for native clients")
    parser.add_argument("--bootstrap", default="", help="HOST:PORT for Kafka clients")
    parser.set_defaults(acks="all", codec="none")
    print(json.dumps(asyncio.run(load(parser.parse_args()))))


if __name__ == "__main__":
    main()
