"""confluent-kafka's admin client: the same C library, its administration calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from compat_tests.conftest import MakeTopic
from compat_tests.deadlines import WAIT_S, wait_until
from compat_tests.records import samples
from compat_tests.servers import ServerProcess
from compat_tests.test_confluent_kafka import consuming, receive, send_all

MOVED_IDS = 1 << 30
"""Nodes have smaller ids, but for one that has just moved, which is there twice."""

pytestmark = pytest.mark.peer("confluent-kafka")


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    """An admin client."""
    return AdminClient({"bootstrap.servers": bootstrap})


def only(futures: dict[Any, Any]) -> Any:
    """Wait for the one result of a call."""
    (future,) = futures.values()
    return future.result(WAIT_S)


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("admin: create, describe, delete topics; add partitions")
def test_admin_manages_topics(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, num_partitions=2, replication_factor=1)
    only(admin.create_topics([new]))
    with pytest.raises(KafkaException) as caught:
        only(admin.create_topics([new]))
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert [partition.id for partition in described.partitions] == list(range(5))
    assert topic in admin.list_topics(timeout=WAIT_S).topics
    only(admin.delete_topics([topic]))
    wait_until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "topic is gone")


@pytest.mark.feature("admin: refuses a bad topic name, count, replication, config")
@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("no/slash", {}, KafkaError.TOPIC_EXCEPTION),
        ("no-partitions", {"num_partitions": 0}, KafkaError.INVALID_PARTITIONS),
        ("many-replicas", {"replication_factor": 100}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("bad-config", {"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG),
    ],
)
def test_admin_refuses_a_bad_topic(
    admin: AdminClient, name: str, options: dict[str, Any], code: int
) -> None:
    new = NewTopic(name, **({"num_partitions": 1, "replication_factor": 1} | options))
    with pytest.raises(KafkaException) as caught:
        only(admin.create_topics([new]))
    assert caught.value.args[0].code() == code


@pytest.mark.feature("admin: describe and alter configs")
def test_admin_changes_a_config(admin: AdminClient, make_topic: MakeTopic) -> None:
    name = make_topic(retention_ms="60000")
    assert topic_config(admin, name)["retention.ms"] == "60000"
    for operation, value in ((AlterConfigOpType.SET, "7000"), (AlterConfigOpType.DELETE, None)):
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        only(admin.incremental_alter_configs([resource]))
        assert topic_config(admin, name)["retention.ms"] == (value or "604800000")


def topic_config(admin: AdminClient, topic: str) -> dict[str, str]:
    """Give names and values of a topic's configuration."""
    described = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return {name: entry.value for name, entry in described.items()}


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("admin: describe broker config and cluster")
def test_admin_describes_the_brokers(admin: AdminClient, server: ServerProcess) -> None:
    cluster = admin.describe_cluster().result(WAIT_S)
    nodes = [node for node in cluster.nodes if node.id < MOVED_IDS]
    assert len(nodes) == len(server.broker_addresses)
    for node in nodes:
        resource = ConfigResource(ResourceType.BROKER, str(node.id))
        described = only(admin.describe_configs([resource]))
        assert described["auto.create.topics.enable"].value == "true"


@pytest.mark.workers("partitions of several leaders")
@pytest.mark.feature("admin: delete records, list offsets")
def test_admin_deletes_records(admin: AdminClient, bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(30))
    deleted = only(admin.delete_records([TopicPartition(name, 0, 10)]))
    assert deleted.low_watermark == 10
    specs: Any = OffsetSpec
    for spec, offset in ((specs.earliest(), 10), (specs.latest(), 30)):
        assert only(admin.list_offsets({TopicPartition(name, 0): spec})).offset == offset
    largest = only(admin.list_offsets({TopicPartition(name, 0): specs.max_timestamp()}))
    assert (largest.offset, largest.timestamp) == (29, samples(30)[-1].timestamp_ms)


@pytest.mark.feature("admin: delete records whose timestamps lie years back")
def test_deleting_records_does_not_expire_others(
    admin: AdminClient, bootstrap: str, make_topic: MakeTopic
) -> None:
    name = make_topic()
    years_ago = [replace(record, timestamp_ms=1_500_000_000_000) for record in samples(30)]
    send_all(bootstrap, name, years_ago)
    assert only(admin.delete_records([TopicPartition(name, 0, 10)])).low_watermark == 10


@pytest.mark.feature("admin: list, describe and delete groups, alter their offsets")
def test_admin_manages_a_group(
    admin: AdminClient, bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(5))
    with consuming(bootstrap, name, group=group) as consumer:
        receive(consumer, 5)
        consumer.commit(asynchronous=False)
        described = only(admin.describe_consumer_groups([group]))
        assert described.state.name == "STABLE"
        assert described.members[0].assignment.topic_partitions == [TopicPartition(name, 0)]
    listed = admin.list_consumer_groups().result(WAIT_S)
    assert group in [entry.group_id for entry in listed.valid]
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 2)])
    only(admin.alter_consumer_group_offsets([moved]))
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0)])
    offsets = only(admin.list_consumer_group_offsets([asked]))
    assert [place.offset for place in offsets.topic_partitions] == [2]
    only(admin.delete_consumer_groups([group]))
    listed = admin.list_consumer_groups().result(WAIT_S)
    assert group not in [entry.group_id for entry in listed.valid]


@pytest.mark.feature("producing to a partition that does not exist fails")
def test_unknown_partition_is_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(make_topic(), b"x", partition=7, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(WAIT_S) == 0
    assert [error.code() for error in errors] == [KafkaError._UNKNOWN_PARTITION]
