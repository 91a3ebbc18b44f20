"""Kafka clients of the tests of brokers without disks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition


@asynccontextmanager
async def producing(address: str) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that repeats what is not acknowledged, and stores nothing twice."""
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=True,
        request_timeout_ms=120_000,
        retry_backoff_ms=50,
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def stored(address: str, topic: str = "orders") -> list[bytes]:
    """Read partition 0 of a topic."""
    partition = TopicPartition(topic, 0)
    found: list[bytes] = []
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while len(found) < end:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found += [record.value for record in records]
    finally:
        await consumer.stop()
    return found
