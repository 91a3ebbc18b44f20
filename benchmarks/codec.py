"""What the wire codec costs: microseconds per operation, beside kio and kafka-python.

Rule: all three do the same work on the same bytes in one run; the figure is the best of many short
rounds, because other work on the machine can only add to it.
Run: python -m benchmarks.codec [words of the operations wanted].
"""

import subprocess
import sys
import timeit
from collections.abc import Callable
from functools import partial
from importlib import import_module
from io import BytesIO
from typing import Any

import kafka.protocol.consumer as kafka_consumer
import kafka.protocol.metadata as kafka_metadata
import kafka.protocol.producer as kafka_producer
from kio.serial import entity_reader, entity_writer

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.fetch_codec import FetchResult, encode_fetch_response, parse_fetch_request
from kledger.gateway.wire.header import decode_request_header, encode_request_header
from kledger.gateway.wire.messages import k00_produce, k01_fetch, k03_metadata, k12_heartbeat
from kledger.gateway.wire.produce_codec import (
    PartitionResult,
    encode_produce_response,
    parse_produce_request,
    produce_response_frame,
)
from kledger.gateway.wire.schema import ApiMessage

Operation = Callable[[], object]
Row = tuple[str, float | None, Operation, Operation | None, Operation | None]

ROUND_CALLS = 200
ROUNDS = 200
BATCH = b"r" * 16_700
CHUNK = memoryview(b"r" * 65_536)
TOPIC = "a-topic-name"


def microseconds(operation: Operation) -> float:
    """Return the best time of one call."""
    once = timeit.timeit(operation, number=3) / 3
    calls = max(1, min(ROUND_CALLS, int(0.001 / once)))
    return min(timeit.repeat(operation, number=calls, repeat=ROUNDS)) / calls * 1e6


def kio_reader(stem: str, message: ApiMessage, version: int) -> tuple[Operation, Operation]:
    """Return how kio reads the message's bytes, and how it writes what it read."""
    part = "request" if type(message).__name__.endswith("Request") else "response"
    module = import_module(f"kio.schema.{stem}.v{version}.{part}")
    cls = getattr(module, type(message).__name__)
    body, read, write = encode(message, version), entity_reader(cls), entity_writer(cls)
    value, _ = read(body, 0)
    return lambda: read(body, 0), lambda: write(BytesIO(), value)


def kafka_python_reader(
    module: Any, message: ApiMessage, version: int
) -> tuple[Operation, Operation]:
    """Return how kafka-python reads the message's bytes, and how it writes what it read."""
    cls, body = getattr(module, type(message).__name__), encode(message, version)
    value = cls.decode(body, version=version)
    value._header = None
    return lambda: cls.decode(body, version=version), lambda: value.encode(version=version)


def produce_request(partitions: int) -> k00_produce.ProduceRequest:
    return k00_produce.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            k00_produce.TopicProduceData(
                name=f"{TOPIC}-{number}",
                partition_data=[
                    k00_produce.PartitionProduceData(index=index, records=BATCH)
                    for index in range(partitions)
                ],
            )
            for number in range(partitions)
        ],
    )


def produce_rows() -> list[Row]:
    """Requests of 1 x 1 and 4 x 4 batches; a response for one partition."""
    rows: list[Row] = []
    for partitions in (1, 4):
        request = produce_request(partitions)
        body = memoryview(encode(request, 9))
        name = f"decode Produce v9, {partitions} x {partitions}"
        theirs = kio_reader("produce", request, 9)[0]
        older = kafka_python_reader(kafka_producer, request, 9)[0]
        rows += [
            (f"{name}, by hand", None, partial(parse_produce_request, body, 9), theirs, older),
            (
                f"{name}, compiled",
                None,
                partial(decode, k00_produce.ProduceRequest, 9, body),
                theirs,
                older,
            ),
        ]
    frame = memoryview(encode_request_header(0, 9, 1, "client") + encode(produce_request(1), 9))

    def header_and_body() -> object:
        header = decode_request_header(frame)
        return parse_produce_request(frame, header.api_version, header.body_start)

    rows.append(("decode header + Produce v9, 1 x 1", 3.0, header_and_body, None, None))
    result: list[PartitionResult] = [(TOPIC.encode(), 1, 0, 12_345, -1, 0, None, ())]
    response = decode(k00_produce.ProduceResponse, 9, encode_produce_response(9, result))
    rows.append(
        (
            "encode Produce response v9, whole frame",
            1.0,
            lambda: produce_response_frame(7, 9, result),
            kio_reader("produce", response, 9)[1],
            kafka_python_reader(kafka_producer, response, 9)[1],
        )
    )
    return rows


def fetch_rows() -> list[Row]:
    """Responses of four partitions; requests of one and 16."""
    rows: list[Row] = []
    for name, chunks in (("64 KiB", [CHUNK]), ("nothing", [])):
        size = sum(map(len, chunks))
        results: list[FetchResult] = [
            (TOPIC.encode(), index, 0, 100, 100, 0, None, chunks, size) for index in range(4)
        ]
        body = b"".join(encode_fetch_response(12, results))
        response = decode(k01_fetch.FetchResponse, 12, body)
        rows.append(
            (
                f"encode Fetch response v12, 4 x {name}, parts",
                6.0,
                partial(encode_fetch_response, 12, results),
                kio_reader("fetch", response, 12)[1],
                kafka_python_reader(kafka_consumer, response, 12)[1],
            )
        )
    for count, target in ((1, None), (16, 10.0)):
        partitions = [
            k01_fetch.FetchPartition(partition=index, fetch_offset=100, partition_max_bytes=2**20)
            for index in range(count)
        ]
        request = k01_fetch.FetchRequest(
            topics=[k01_fetch.FetchTopic(topic=TOPIC, partitions=partitions)]
        )
        asked = memoryview(encode(request, 12))
        theirs = kio_reader("fetch", request, 12)[0]
        older = kafka_python_reader(kafka_consumer, request, 12)[0]
        name = f"decode Fetch request v12, {count}"
        rows += [
            (f"{name}, by hand", target, partial(parse_fetch_request, asked, 12), theirs, older),
            (
                f"{name}, compiled",
                None,
                partial(decode, k01_fetch.FetchRequest, 12, asked),
                theirs,
                older,
            ),
        ]
    return rows


def other_rows() -> list[Row]:
    """A heartbeat and the largest answer that an object codec builds."""
    heartbeat = k12_heartbeat.HeartbeatRequest(
        group_id="a-group", generation_id=3, member_id="consumer-1-0f0f0f0f"
    )
    body = memoryview(encode(heartbeat, 4))
    brokers = [k03_metadata.MetadataResponseBroker(node_id=1, host="localhost", port=9092)]
    metadata = k03_metadata.MetadataResponse(
        brokers=brokers,
        topics=[
            k03_metadata.MetadataResponseTopic(
                name=f"{TOPIC}-{number}",
                partitions=[
                    k03_metadata.MetadataResponsePartition(
                        partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for index in range(3)
                ],
            )
            for number in range(100)
        ],
    )
    return [
        (
            "decode Heartbeat v4",
            1.5,
            lambda: decode(k12_heartbeat.HeartbeatRequest, 4, body),
            kio_reader("heartbeat", heartbeat, 4)[0],
            kafka_python_reader(kafka_consumer, heartbeat, 4)[0],
        ),
        (
            "encode Metadata v12, 100 topics x 3",
            None,
            lambda: encode(metadata, 12),
            kio_reader("metadata", metadata, 12)[1],
            kafka_python_reader(kafka_metadata, metadata, 12)[1],
        ),
    ]


IMPORT_ALL = """
import kledger.gateway.wire.codec, kledger.gateway.wire.messages as messages, pkgutil, time
began = time.perf_counter()
for each in pkgutil.iter_modules(messages.__path__):
    __import__(f"{messages.__name__}.{each.name}")
print((time.perf_counter() - began) * 1e3)
"""


def import_milliseconds() -> float:
    """Return how long it takes a fresh process to import every message."""
    return min(
        float(subprocess.run([sys.executable, "-c", IMPORT_ALL], check=True, capture_output=True)
              .stdout)
        for _ in range(5)
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    wanted = sys.argv[1:]
    print(f"{'us per operation, best of many':46} {'target':>7} {'kledger':>8} {'kio':>8} kafka-py")
    for name, target, *operations in [*produce_rows(), *fetch_rows(), *other_rows()]:
        if wanted and not any(word.lower() in name.lower() for word in wanted):
            continue
        times = ["" if one is None else f"{microseconds(one):.2f}" for one in operations]
        print(
            f"{name:46} {'' if target is None else target:>7} "
            f"{times[0]:>8} {times[1]:>8} {times[2]:>8}"
        )
    print(f"{'import all messages, ms':46} {40:>7} {import_milliseconds():8.1f}")


if __name__ == "__main__":
    main()
