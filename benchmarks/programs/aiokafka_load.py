"""Load by aiokafka: produce or consume a number of records as fast as it goes."""

from __future__ import annotations

import argparse
import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.programs.command_line import run_load
from benchmarks.programs.payload import VALUES_COUNT, payload_values

_UNDER_WAY_MAX = 5000
_QUIET_MS_MAX = 30_000


async def produce(arguments: argparse.Namespace) -> float:
    """Send the records; give the seconds to the last answer."""
    producer = AIOKafkaProducer(
        bootstrap_servers=arguments.bootstrap,
        acks=arguments.acks if arguments.acks == "all" else int(arguments.acks),
        compression_type=None if arguments.codec == "none" else arguments.codec,
        max_batch_size=65_536,
        linger_ms=5,
    )
    values = payload_values(arguments.record_bytes)
    await producer.start()
    await producer.partitions_for(arguments.topic)
    begun = time.perf_counter()
    sent = []
    for index in range(arguments.records):
        partition = index % arguments.partitions
        value = values[index % VALUES_COUNT]
        sent.append(await producer.send(arguments.topic, value, partition=partition))
        if len(sent) == _UNDER_WAY_MAX:
            await asyncio.gather(*sent)
            sent.clear()
    await asyncio.gather(*sent)
    elapsed = time.perf_counter() - begun
    await producer.stop()
    return elapsed


async def consume(arguments: argparse.Namespace) -> float:
    """Read the records from the beginning; give the seconds to the last one."""
    consumer = AIOKafkaConsumer(bootstrap_servers=arguments.bootstrap)
    await consumer.start()
    places = [TopicPartition(arguments.topic, p) for p in range(arguments.partitions)]
    begun = time.perf_counter()
    consumer.assign(places)
    await consumer.seek_to_beginning(*places)
    count = 0
    while count < arguments.records:
        received = await consumer.getmany(timeout_ms=_QUIET_MS_MAX)
        if not received:
            raise SystemExit(f"{count} of {arguments.records} records came")
        count += sum(len(records) for records in received.values())
    elapsed = time.perf_counter() - begun
    await consumer.stop()
    return elapsed


if __name__ == "__main__":
    run_load(lambda each: asyncio.run(produce(each)), lambda each: asyncio.run(consume(each)))
