"""Load by librdkafka: produce or consume a number of records as fast as it goes."""

from __future__ import annotations

import argparse
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.programs.command_line import run_load
from benchmarks.programs.payload import VALUES_COUNT, json_values, payload_values

_POLL_EVERY = 1000
_TAKE = 10_000
_QUIET_S_MAX = 30.0


def produce(arguments: argparse.Namespace) -> float:
    """Send the records round robin over the partitions; give the seconds to the last answer."""
    failures: list[object] = []
    producer = Producer({
        "bootstrap.servers": arguments.bootstrap,
        "acks": arguments.acks,
        "enable.idempotence": arguments.acks == "all",
        "compression.type": arguments.codec,
        "batch.size": 65_536,
        "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
        "delivery.report.only.error": True,
        "on_delivery": lambda error, _message: failures.append(error),
    })  # fmt: skip
    make_values = json_values if arguments.json else payload_values
    values = make_values(arguments.record_bytes)
    topic, partitions, send = arguments.topic, arguments.partitions, producer.produce
    producer.list_topics(topic, timeout=30)
    begun = time.perf_counter()
    for index in range(arguments.records):
        while True:
            try:
                send(topic, values[index % VALUES_COUNT], partition=index % partitions)
                break
            except BufferError:
                producer.poll(0.005)
        if not index % _POLL_EVERY:
            producer.poll(0)
    left_over = producer.flush(120)
    if failures or left_over:
        raise SystemExit(f"{left_over} not sent, {len(failures)} failed: {failures[:1]}")
    return time.perf_counter() - begun


def consume(arguments: argparse.Namespace) -> float:
    """Read the records of all partitions from the beginning; give the seconds to the last one."""
    consumer = Consumer({
        "bootstrap.servers": arguments.bootstrap,
        "group.id": "rdkafka-load",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        # By its defaults the library pauses for a second when 100,000 records or 64 MB wait in it,
        # and what would be measured is that pause.
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 256 * 1024,
        "fetch.queue.backoff.ms": 5,
    })  # fmt: skip
    consumer.list_topics(arguments.topic, timeout=30)
    places = [TopicPartition(arguments.topic, p, 0) for p in range(arguments.partitions)]
    begun = last = time.perf_counter()
    consumer.assign(places)
    count = 0
    while count < arguments.records:
        messages = consumer.consume(min(_TAKE, arguments.records - count), timeout=0.5)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        count += len(messages)
        now = time.perf_counter()
        last = now if messages else last
        if now - last > _QUIET_S_MAX:
            raise SystemExit(f"{count} of {arguments.records} records came")
    elapsed = time.perf_counter() - begun
    consumer.close()
    return elapsed


if __name__ == "__main__":
    run_load(produce, consume)
