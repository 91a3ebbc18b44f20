"""confluent-kafka: the C library librdkafka, on which most clients outside the JVM stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from compat_tests.conftest import MakeTopic, create_topic
from compat_tests.deadlines import QUICK_GROUP, WAIT_S, rounds
from compat_tests.raw_client import leader_client
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample, samples
from compat_tests.settings import dotted

pytestmark = pytest.mark.peer("confluent-kafka")


@contextmanager
def consuming(
    bootstrap: str, *topics: str, group: str = "unused", **options: Any
) -> Iterator[Consumer]:
    """A consumer that reads from the beginning and commits only on request."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    } | dotted(options)
    consumer = Consumer(settings)
    try:
        if topics:
            consumer.subscribe(list(topics))
        yield consumer
    finally:
        consumer.close()


def send_all(
    bootstrap: str, topic: str, records: list[Sample], partition: int = 0, **options: Any
) -> None:
    """Send with a producer of its own and check every acknowledgement."""
    errors: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap} | dotted(options))
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=partition,
            on_delivery=acknowledged,
        )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert not errors


def receive(consumer: Consumer, count: int) -> list[Message]:
    """Take so many records."""
    received: list[Message] = []
    for _ in rounds(f"{count} records"):
        received += checked(consumer.consume(count - len(received), timeout=0.2))
        if len(received) == count:
            break
    return received


def checked(messages: list[Message]) -> list[Message]:
    """Pass messages on; raise the error that one of them carries."""
    for message in messages:
        error = message.error()
        if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(error)
    return [message for message in messages if message.error() is None]


def as_sample(message: Any) -> Sample:
    """See a received record as one that was sent."""
    return Sample(
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=message.timestamp()[1],
    )


@pytest.mark.feature("a topic of another namespace: write in a transaction, read in a group")
def test_a_topic_of_a_namespace(bootstrap: str, namespaced_topic: str, group: str) -> None:
    name, records = namespaced_topic, samples(40)
    create_topic(bootstrap, name, 2, {})
    options = {"bootstrap.servers": bootstrap, "transactional.id": f"{group}-writer"}
    producer = Producer(options)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number, record in enumerate(records):
        producer.produce(name, key=record.key, value=record.value, partition=number % 2)
    producer.commit_transaction(WAIT_S)
    with consuming(bootstrap, name, group=group, isolation_level="read_committed") as consumer:
        received = receive(consumer, len(records))
        consumer.commit(asynchronous=False)
    assert {name} == {each.topic() for each in received}
    assert Counter(each.value() for each in received) == Counter(one.value for one in records)
    with consuming(bootstrap, group=group) as consumer:
        asked = [TopicPartition(name, index) for index in range(2)]
        # The marker behind the 20 records may have been passed, too.
        assert all(each.offset in (20, 21) for each in consumer.committed(asked, WAIT_S))


@pytest.mark.feature("produce and consume, {codec}: keys, headers, timestamps, nulls")
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_gives_back_the_same(
    bootstrap: str, make_topic: MakeTopic, group: str, codec: str
) -> None:
    topic, records = make_topic(), samples(300)
    send_all(bootstrap, topic, records, compression_type=codec)
    with consuming(bootstrap, topic, group=group) as consumer:
        received = receive(consumer, len(records))
    assert records == [as_sample(message) for message in received]
    assert list(range(len(records))) == [message.offset() for message in received]


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("a topic made by the first record sent to it")
def test_producing_makes_the_topic(bootstrap: str, topic: str, group: str) -> None:
    records = samples(10)
    send_all(bootstrap, topic, records)
    with consuming(bootstrap, topic, group=group) as consumer:
        assert records == [as_sample(message) for message in receive(consumer, 10)]


@pytest.mark.feature("acks 0 and 1")
@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acknowledgement_stores_records(
    bootstrap: str, make_topic: MakeTopic, group: str, acks: int
) -> None:
    topic, records = make_topic(), samples(50)
    with leader_client(bootstrap, topic):  # before it leads, nobody says that acks=0 stored nothing
        send_all(bootstrap, topic, records, acks=acks)
    with consuming(bootstrap, topic, group=group) as consumer:
        assert records == [as_sample(message) for message in receive(consumer, 50)]


@pytest.mark.workers("partitions of several leaders")
@pytest.mark.feature("idempotent producer, several batches in flight")
def test_idempotent_producer_keeps_order(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic, records = make_topic(partitions=3), samples(500)
    for partition in range(3):
        send_all(
            bootstrap, topic, records, partition, enable_idempotence=True, batch_num_messages=7
        )
    with consuming(bootstrap, topic, group=group) as consumer:
        received = receive(consumer, 3 * len(records))
    for partition in range(3):
        assert records == [as_sample(m) for m in received if m.partition() == partition]


@pytest.mark.feature("records of one megabyte; one that is too large")
def test_large_record_is_stored_and_larger_one_refused(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    large = Sample(key=b"k", value=bytes(990_000), headers=(), timestamp_ms=FIRST_TIMESTAMP_MS)
    send_all(bootstrap, topic, [large])
    with consuming(bootstrap, topic, group=group) as consumer:
        assert [large] == [as_sample(message) for message in receive(consumer, 1)]
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000})
    producer.produce(topic, bytes(2_000_000), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


@pytest.mark.feature("timestamps given by the server")
def test_log_append_time_replaces_the_timestamp(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    send_all(bootstrap, topic, samples(5), compression_type="zstd")
    with consuming(bootstrap, topic, group=group, check_crcs=True) as consumer:
        for message in receive(consumer, 5):
            kind, timestamp_ms = message.timestamp()
            assert kind == 2
            assert timestamp_ms > FIRST_TIMESTAMP_MS + 10 * STEP_MS


@pytest.mark.feature("group: commit and resume")
def test_group_resumes_behind_the_commit(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic, records = make_topic(), samples(100)
    send_all(bootstrap, topic, records)
    with consuming(bootstrap, topic, group=group) as consumer:
        receive(consumer, 40)
        consumer.commit(asynchronous=False)
    with consuming(bootstrap, topic, group=group) as consumer:
        received = receive(consumer, 60)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
        assert committed.offset == 40
    assert records[40:] == [as_sample(message) for message in received]


@pytest.mark.workers("the coordinator of its group may lead none of its partitions")
@pytest.mark.feature("group: two members share, one takes over ({strategy})")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_rebalances_between_two(
    bootstrap: str, make_topic: MakeTopic, group: str, strategy: str
) -> None:
    topic = make_topic(partitions=4)
    options: dict[str, Any] = {
        "group": group,
        "partition_assignment_strategy": strategy,
        **QUICK_GROUP,
    }
    with consuming(bootstrap, topic, **options) as first:
        poll_until_assigned([first], [4])
        with consuming(bootstrap, topic, **options) as second:
            poll_until_assigned([first, second], [2, 2])
        poll_until_assigned([first], [4])


def poll_until_assigned(consumers: list[Consumer], counts: list[int]) -> None:
    """Poll the consumers alternately until each holds so many partitions."""
    for _ in rounds(f"partitions {counts}"):
        for consumer in consumers:
            checked(consumer.consume(10, timeout=0.05))
        if [len(consumer.assignment()) for consumer in consumers] == counts:
            break


@pytest.mark.feature("group: static member comes back without a rebalance")
def test_static_member_keeps_its_partitions(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    options: dict[str, Any] = {"group": group, **QUICK_GROUP}
    with consuming(bootstrap, topic, group_instance_id="a", **options) as first:
        with consuming(bootstrap, topic, group_instance_id="b", **options) as second:
            poll_until_assigned([first, second], [1, 1])
            held = second.assignment()
        with consuming(bootstrap, topic, group_instance_id="b", **options) as again:
            poll_until_assigned([first, again], [1, 1])
            assert again.assignment() == held


@pytest.mark.workers("partitions of several leaders")
@pytest.mark.feature("offsets: beginning, end, by timestamp")
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_offsets_by_timestamp_find_the_record(
    bootstrap: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    send_all(bootstrap, topic, samples(50), compression_type=codec, linger_ms=100)
    with consuming(bootstrap, topic) as consumer:
        place = TopicPartition(topic, 0)
        assert consumer.get_watermark_offsets(place, timeout=WAIT_S) == (0, 50)
        assert offset_at(consumer, topic, FIRST_TIMESTAMP_MS + 20 * STEP_MS - 1) == 20
        assert offset_at(consumer, topic, FIRST_TIMESTAMP_MS) == 0
        assert offset_at(consumer, topic, FIRST_TIMESTAMP_MS + 50 * STEP_MS) == -1


def offset_at(consumer: Consumer, topic: str, timestamp_ms: int) -> int:
    """Give the offset of the first record at or behind a time; -1 is the end of the log."""
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], WAIT_S)
    assert found.error is None
    return found.offset


@pytest.mark.feature("start from an offset out of range, by each policy")
@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("error", None)])
def test_offset_out_of_range_follows_the_policy(
    bootstrap: str,
    make_topic: MakeTopic,
    group: str,
    policy: str,
    expected: int | None,
) -> None:
    topic = make_topic()
    send_all(bootstrap, topic, samples(3))
    with consuming(bootstrap, group=group, auto_offset_reset=policy) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        if expected is None:
            with pytest.raises(KafkaException) as caught:
                receive(consumer, 1)
            assert caught.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
        else:
            assert receive(consumer, 1)[0].offset() == expected
