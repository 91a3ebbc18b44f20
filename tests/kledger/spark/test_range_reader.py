"""A range is read whole from a broker that throttles, as Apache Kafka does it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.broker_client.broker_connection import VERSIONS
from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.header import decode_request_header, response_prefix
from kledger.gateway.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.spark.offset_range import KafkaPartition, OffsetRange
from kledger.spark.range_lookup import DataLost
from kledger.spark.range_reader import EMPTY_MAX, RangeReader
from kledger.spark.source_options import read_options

WHERE = KafkaPartition("orders", 0)
COUNT = 3
THROTTLED = FetchResponse(throttle_time_ms=1)
"""What Apache Kafka answers instead of reading: no topic at all."""


def fetched(records: bytes = b"", *, throttle_time_ms: int = 0, end: int = COUNT) -> FetchResponse:
    data = PartitionData(high_watermark=end, last_stable_offset=end, records=records)
    topic = FetchableTopicResponse(topic=WHERE.topic, partitions=[data])
    return FetchResponse(throttle_time_ms=throttle_time_ms, responses=[topic])


def records() -> bytes:
    return bytes(build_batch([NewRecord(b"%d" % n, None, 5, []) for n in range(COUNT)]))


@contextmanager
def broker(fetches: list[FetchResponse]) -> Iterator[str]:
    """A broker of one partition that answers fetches from a list."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    left = iter(fetches)

    def answer(key: int) -> ApiMessage:
        if key == 1:
            return next(left)
        partition = MetadataResponsePartition(leader_id=1)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
            topics=[MetadataResponseTopic(name=WHERE.topic, partitions=[partition])],
        )

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as frames:
            while size := frames.read(4):
                header = decode_request_header(frames.read(int.from_bytes(size, "big")))
                version = VERSIONS[header.api_key]
                body = encode(answer(header.api_key), version)
                connection.sendall(
                    response_prefix(header.correlation_id, header.api_key, version, len(body))
                    + body
                )

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        listener.close()
        thread.join(60)


def read(servers: str) -> list[bytes]:
    options = read_options({"servers": servers, "subscribe": WHERE.topic})
    reader = RangeReader(options, OffsetRange(WHERE, 0, COUNT))
    return [row["value"] for batch in reader.read() for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "throttled",
    [lambda: THROTTLED, lambda: fetched(throttle_time_ms=1)],
    ids=["without a topic", "without records"],
)
def test_throttled_fetches_are_sent_again(throttled: Callable[[], FetchResponse]) -> None:
    """However many there are: they say nothing about the log."""
    fetches = [throttled() for _ in range(2 * EMPTY_MAX)] + [fetched(records(), throttle_time_ms=1)]
    with broker(fetches) as servers:
        assert [b"0", b"1", b"2"] == read(servers)


def test_log_that_has_nothing_left_in_the_range_ends_it() -> None:
    """Records of the end were compacted away; the log goes on behind the range."""
    with broker([fetched() for _ in range(EMPTY_MAX)]) as servers:
        assert [] == read(servers)


def test_log_that_ends_before_the_range_is_an_error() -> None:
    with (
        broker([fetched(end=COUNT - 1) for _ in range(EMPTY_MAX)]) as servers,
        pytest.raises(DataLost, match="orders-0 ends at offset 2, expected 3"),
    ):
        read(servers)
