"""kafka-python: a threaded client in pure Python that speaks the newest versions of the APIs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from compat_tests.conftest import MakeTopic
from compat_tests.deadlines import QUICK_GROUP, WAIT_MS, WAIT_S, rounds
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample, samples
from compat_tests.servers import ServerProcess

pytestmark = pytest.mark.peer("kafka-python")


@contextmanager
def producing(bootstrap: str, **options: Any) -> Iterator[KafkaProducer]:
    """A producer that is flushed and closed at the end."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
    try:
        yield producer
        producer.flush(WAIT_S)
    finally:
        producer.close()


@contextmanager
def consuming(bootstrap: str, *topics: str, **options: Any) -> Iterator[KafkaConsumer]:
    """A consumer that reads from the beginning and commits only on request.

    It knows its topics before it joins: the client rejoins when its metadata get them later, and
    does not when that happens between two polls.
    """
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(*topics, bootstrap_servers=bootstrap, **(defaults | options))
    for topic in topics:
        consumer.partitions_for_topic(topic)
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    """An admin client."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def send_all(
    producer: KafkaProducer, topic: str, records: list[Sample], partition: int = 0
) -> None:
    """Send and wait for every acknowledgement."""
    sent = [
        producer.send(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp_ms=record.timestamp_ms,
            partition=partition,
        )
        for record in records
    ]
    for future in sent:
        future.get(timeout=WAIT_S)


def receive(consumer: KafkaConsumer, count: int) -> list[Any]:
    """Take at least so many records, failing when they do not come."""
    received: list[Any] = []
    for _ in rounds(f"{count} records"):
        for records in consumer.poll(timeout_ms=WAIT_MS).values():
            received += records
        if len(received) >= count:
            break
    return received


def as_sample(record: Any) -> Sample:
    """See a received record as one that was sent."""
    headers = tuple(record.headers)
    return Sample(
        key=record.key, value=record.value, headers=headers, timestamp_ms=record.timestamp
    )


@pytest.mark.feature("produce and consume, {codec}: keys, headers, timestamps, nulls")
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_gives_back_the_same(bootstrap: str, topic: str, codec: str) -> None:
    records = samples(300)
    with producing(bootstrap, compression_type=None if codec == "none" else codec) as producer:
        send_all(producer, topic, records)
    with consuming(bootstrap, topic) as consumer:
        received = receive(consumer, len(records))
    assert records == [as_sample(record) for record in received]
    assert list(range(len(records))) == [record.offset for record in received]


@pytest.mark.feature("producer without idempotence, acks 0 and 1")
@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acknowledgement_stores_records(bootstrap: str, topic: str, acks: int) -> None:
    records = samples(50)
    with producing(bootstrap, acks=acks, enable_idempotence=False) as producer:
        send_all(producer, topic, records)
    with consuming(bootstrap, topic) as consumer:
        assert records == [as_sample(r) for r in receive(consumer, len(records))]


@pytest.mark.workers("partitions of several leaders")
@pytest.mark.feature("idempotent producer")
def test_idempotent_producer_keeps_order(bootstrap: str, make_topic: MakeTopic) -> None:
    name, records = make_topic(partitions=3), samples(200)
    with producing(bootstrap, enable_idempotence=True, batch_size=400) as producer:
        for partition in range(3):
            send_all(producer, name, records, partition)
    with consuming(bootstrap, name) as consumer:
        received = receive(consumer, 3 * len(records))
    for partition in range(3):
        assert records == [as_sample(r) for r in received if r.partition == partition]


@pytest.mark.feature("group: commit and resume")
def test_group_resumes_behind_the_commit(bootstrap: str, topic: str, group: str) -> None:
    records = samples(100)
    with producing(bootstrap) as producer:
        send_all(producer, topic, records)
    with consuming(bootstrap, topic, group_id=group, max_poll_records=40) as consumer:
        assert len(receive(consumer, 40)) == 40
        consumer.commit()
    with consuming(bootstrap, topic, group_id=group) as consumer:
        received = receive(consumer, 60)
        assert consumer.committed(TopicPartition(topic, 0)) == 40
    assert records[40:] == [as_sample(record) for record in received]


@pytest.mark.feature("group: two members share, one takes over")
def test_group_rebalances_between_two(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    name = make_topic(partitions=4)
    options = {"group_id": group, **QUICK_GROUP}
    with consuming(bootstrap, name, **options) as first:
        poll_until_assigned([first], [4])
        with consuming(bootstrap, name, **options) as second:
            poll_until_assigned([first, second], [2, 2])
            assert not first.assignment() & second.assignment()
        poll_until_assigned([first], [4])


def poll_until_assigned(consumers: list[KafkaConsumer], counts: list[int]) -> None:
    """Poll the consumers alternately until each holds so many partitions."""
    for _ in rounds(f"partitions {counts}"):
        for consumer in consumers:
            consumer.poll(timeout_ms=50)
        if [len(consumer.assignment()) for consumer in consumers] == counts:
            break


@pytest.mark.feature("offsets: beginning, end, by timestamp")
def test_offsets_by_timestamp_find_the_record(bootstrap: str, topic: str) -> None:
    with producing(bootstrap, compression_type="gzip", linger_ms=100) as producer:
        send_all(producer, topic, samples(50))
    place = TopicPartition(topic, 0)
    with consuming(bootstrap, topic) as consumer:
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 50}
        between = FIRST_TIMESTAMP_MS + 20 * STEP_MS - 1
        found = consumer.offsets_for_times({place: between})[place]
        assert (found.offset, found.timestamp) == (20, between + 1)
        late = FIRST_TIMESTAMP_MS + 50 * STEP_MS
        assert consumer.offsets_for_times({place: late}) == {place: None}


@pytest.mark.feature("offsets: of the largest timestamp")
def test_offset_of_the_largest_timestamp(
    bootstrap: str, topic: str, admin: KafkaAdminClient
) -> None:
    records = samples(20)
    with producing(bootstrap) as producer:
        send_all(producer, topic, [*records[10:], *records[:10]])
    place = TopicPartition(topic, 0)
    found = admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place]
    assert (found.offset, found.timestamp) == (9, records[-1].timestamp_ms)


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("admin: create, describe, delete topics; add partitions")
def test_admin_manages_topics(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    assert topic in admin.list_topics()
    admin.create_partitions({topic: 5})
    (described,) = admin.describe_topics([topic])
    assert sorted(p["partition_index"] for p in described["partitions"]) == list(range(5))
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


@pytest.mark.feature("admin: describe and alter configs")
def test_admin_changes_a_config(admin: KafkaAdminClient, make_topic: MakeTopic) -> None:
    name = make_topic(retention_ms="60000")
    assert config_value(admin, name, "retention.ms") == "60000"
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "7000"})])
    assert config_value(admin, name, "retention.ms") == "7000"


def config_value(admin: KafkaAdminClient, topic: str, key: str) -> str:
    """Give one value of a topic's configuration."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    described = admin.describe_configs([resource], config_filter="all")
    return str(next(iter(described.values()))[topic][key]["value"])


@pytest.mark.feature("admin: delete records")
def test_admin_deletes_records(bootstrap: str, topic: str, admin: KafkaAdminClient) -> None:
    with producing(bootstrap) as producer:
        send_all(producer, topic, samples(30))
    place = TopicPartition(topic, 0)
    admin.delete_records({place: 10})
    with consuming(bootstrap, topic) as consumer:
        assert consumer.beginning_offsets([place]) == {place: 10}
        assert receive(consumer, 1)[0].offset == 10


@pytest.mark.workers("the coordinator of its group may lead none of its partitions")
@pytest.mark.feature("admin: list, describe, reset and delete groups")
def test_admin_manages_a_group(
    bootstrap: str, topic: str, group: str, admin: KafkaAdminClient
) -> None:
    with producing(bootstrap) as producer:
        send_all(producer, topic, samples(5))
    place = TopicPartition(topic, 0)
    with consuming(bootstrap, topic, group_id=group) as consumer:
        receive(consumer, 5)
        consumer.commit()
        assert admin.describe_groups([group])[group]["group_state"] == "Stable"
    assert group in [listed["group_id"] for listed in admin.list_groups()]
    assert admin.list_group_offsets(group)[group][place].offset == 5
    admin.reset_group_offsets(group, {place: OffsetSpec.EARLIEST})
    assert admin.list_group_offsets(group)[group][place].offset == 0
    admin.delete_groups([group])
    assert group not in [listed["group_id"] for listed in admin.list_groups()]


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("admin: describe cluster and log folders")
def test_admin_describes_the_cluster(
    admin: KafkaAdminClient, server: ServerProcess, make_topic: MakeTopic
) -> None:
    name = make_topic()
    cluster = admin.describe_cluster()
    brokers = [broker["broker_id"] for broker in cluster["brokers"]]
    assert len(brokers) == len(server.broker_addresses)
    assert cluster["controller_id"] in brokers
    assert name in str(admin.describe_log_dirs())
