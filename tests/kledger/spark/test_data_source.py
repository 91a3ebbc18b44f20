"""Readers plan and read without Spark, in the order in which Spark calls them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kledger.spark.data_source import BatchReader, StreamReader
from kledger.spark.range_lookup import DataLost
from kledger.spark.source_options import InvalidOption, read_options
from kledger.testing import FaultyServer

WAIT_S = 60


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A server in memory with a topic of two partitions."""
    with FaultyServer() as running:
        create(running, "orders", 2)
        yield running


def create(server: FaultyServer, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka_address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)


def send(server: FaultyServer, count: int, topic: str = "orders") -> None:
    """Send that many records to each of two partitions."""
    producer = Producer({"bootstrap.servers": server.kafka_address})
    for number in range(2 * count):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(WAIT_S) == 0


def stream(server: FaultyServer, **options: str) -> StreamReader:
    given = {"servers": server.kafka_address, "subscribe": "orders", **options}
    return StreamReader(read_options(given))


def offsets(*numbers: int) -> dict[str, Any]:
    return {"orders": {str(index): offset for index, offset in enumerate(numbers)}}


def values(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return sorted(
        int(row["value"])
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    )


def test_new_stream_advances_by_its_limit(server: FaultyServer) -> None:
    """With `availableNow` Spark asks for the end before the start."""
    send(server, 10)
    reader = stream(server, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert offsets(4, 4) == reader.latestOffset()
    assert offsets(0, 0) == reader.initialOffset()
    assert list(range(8)) == values(reader, offsets(0, 0), offsets(4, 4))
    assert offsets(8, 8) == reader.latestOffset()
    reader.stop()


def test_restarted_stream_goes_on_where_its_checkpoint_is(server: FaultyServer) -> None:
    """Spark plans the empty range at the last offsets, and asks for the end behind that."""
    send(server, 10)
    reader = stream(server, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert [] == reader.partitions(offsets(6, 6), offsets(6, 6))
    assert offsets(10, 10) == reader.latestOffset()
    assert list(range(12, 20)) == values(reader, offsets(6, 6), offsets(10, 10))
    reader.stop()


def test_stream_starts_at_the_end_and_reads_new_topics_whole(server: FaultyServer) -> None:
    send(server, 3)
    options = {"servers": server.kafka_address, "subscribePattern": "or.*"}
    reader = StreamReader(read_options(options))
    assert offsets(3, 3) == reader.initialOffset()
    create(server, "organs", 2)
    send(server, 2, "organs")
    end = reader.latestOffset()
    assert {**offsets(3, 3), "organs": {"0": 2, "1": 2}} == end
    assert [0, 1, 2, 3] == values(reader, offsets(3, 3), end)
    reader.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_topic_that_was_made_anew_is_noticed(server: FaultyServer, fails: str) -> None:
    send(server, 10)
    reader = stream(server, failOnDataLoss=fails)
    assert offsets(10, 10) == reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": server.kafka_address})
    admin.delete_topics(["orders"])["orders"].result(WAIT_S)
    create(server, "orders", 2)
    send(server, 4)
    if fails == "true":
        with pytest.raises(DataLost, match="orders-0 ends at offset 4, it was read up to 10"):
            reader.latestOffset()
    else:
        assert offsets(10, 10) == reader.latestOffset()
    reader.stop()


def test_reads_outlive_a_restart_of_the_server(server: FaultyServer) -> None:
    """The connection is lost while a range is read; the reader connects again."""
    send(server, 5)
    reader = stream(server, startingOffsets="earliest")
    start, end = reader.initialOffset(), reader.latestOffset()
    server.fail_next("Fetch")
    assert list(range(10)) == values(reader, start, end)
    server.fail_next("ListOffsets", error="NOT_LEADER_OR_FOLLOWER")
    assert end == reader.latestOffset()
    server.fail_next("Metadata")
    assert end == reader.latestOffset()
    reader.stop()


def test_error_that_does_not_pass_is_raised_with_its_name(server: FaultyServer) -> None:
    send(server, 5)
    reader = stream(server, startingOffsets="earliest")
    server.fail_next("ListOffsets", error="TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(RuntimeError, match="offsets of orders-0: TOPIC_AUTHORIZATION_FAILED"):
        reader.initialOffset()
    reader.stop()


def test_batch_divides_what_it_reads(server: FaultyServer) -> None:
    send(server, 50)
    options = {"servers": server.kafka_address, "subscribe": "orders", "minPartitions": "10"}
    reader = BatchReader(read_options(options))
    partitions = reader.partitions()
    assert 10 == len(partitions)
    found = [row["value"] for each in partitions for batch in reader.read(each)
             for row in batch.to_pylist()]  # fmt: skip
    assert list(range(100)) == sorted(map(int, found))


def test_ends_are_for_batches_and_limits_for_streams(server: FaultyServer) -> None:
    common = {"servers": server.kafka_address, "subscribe": "orders"}
    with pytest.raises(InvalidOption, match="a stream has no end"):
        StreamReader(read_options(common | {"endingTimestamp": "5"}))
    with pytest.raises(InvalidOption, match="for streams, not for batches"):
        BatchReader(read_options(common | {"maxOffsetsPerTrigger": "5"}))
