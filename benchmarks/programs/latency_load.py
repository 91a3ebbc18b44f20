"""Latency by librdkafka: records at a steady rate, from the call to the consumer's hand."""

from __future__ import annotations

import argparse
import json
import struct
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.programs.payload import payload_values
from benchmarks.programs.raw_load import percentile

_STAMP = struct.Struct(">q")
_WARM_UP_RECORDS = 500
_QUIET_S_MAX = 10.0


def receive(consumer: Consumer, count: int, took: list[float]) -> None:
    """Receive that many records more and record the latency of each in seconds."""
    count += len(took)
    last = time.perf_counter()
    while len(took) < count and time.perf_counter() - last < _QUIET_S_MAX:
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        now = time.perf_counter_ns()
        (sent,) = _STAMP.unpack_from(message.value() or b"")
        took.append((now - sent) / 1e9)
        last = time.perf_counter()


def send(producer: Producer, topic: str, count: int, *, rate: int, record_bytes: int) -> None:
    """Send at a steady rate, by the clock and not by pauses."""
    filler = payload_values(record_bytes, count=1)[0][_STAMP.size :]
    begun = time.perf_counter()
    for index in range(count):
        ahead = begun + index / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        producer.produce(topic, _STAMP.pack(time.perf_counter_ns()) + filler, partition=0)
        producer.poll(0)
    producer.flush(30)


def main() -> None:
    """Run one load and print the percentiles."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--acks", default="all")
    arguments = parser.parse_args()
    address = {"bootstrap.servers": arguments.bootstrap}
    producer = Producer(address | {"acks": arguments.acks, "linger.ms": 0})
    consumer = Consumer(address | {"group.id": "latency-load", "enable.auto.commit": False})
    producer.list_topics(arguments.topic, timeout=30)
    consumer.assign([TopicPartition(arguments.topic, 0, 0)])
    took: list[float] = []
    # The first records wait until the consumer has its position; they do not count.
    for count in (_WARM_UP_RECORDS, arguments.records):
        taking = threading.Thread(target=receive, args=(consumer, count, took))
        taking.start()
        shape = {"rate": arguments.rate, "record_bytes": arguments.record_bytes}
        send(producer, arguments.topic, count, **shape)
        taking.join()
    if len(took) < _WARM_UP_RECORDS + arguments.records:
        raise SystemExit(f"{len(took)} of {arguments.records} records came")
    steady = sorted(took[_WARM_UP_RECORDS:])
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    print(json.dumps({name: percentile(steady, share) * 1e3 for name, share in shares.items()}))
    consumer.close()


if __name__ == "__main__":
    main()
