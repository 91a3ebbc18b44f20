"""Kafka's own words for tiered storage: Java's tools and librdkafka over a server with a tier.

A topic with `remote.storage.enable` and no local retention has its closed ledgers in the tier
alone; clients read it from the beginning as any other one, transactions included.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import kledger.sync
from compat_tests.conftest import SETTINGS, Tool, create_topic, make_server
from compat_tests.deadlines import WAIT_S, rounds
from compat_tests.servers import KledgerServer
from compat_tests.test_confluent_kafka import consuming, receive
from compat_tests.test_java_tools import TOOLS, console_consumer

pytestmark = pytest.mark.peer("kafka-java-tools")
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "0",
    "retention.ms": "-1",
    "internal.segment.bytes": "2000",
}


@pytest.fixture(scope="module")
def tiered(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KledgerServer]:
    """A server that offloads to a folder, and looks at it again and again."""
    folder = tmp_path_factory.mktemp("tiered-server")
    settings = SETTINGS | {
        "offload.url": f"file://{folder}/tier",
        "log.retention.check.interval.ms": "100",
        "storage.cache_bytes": "0",
    }
    with make_server(pytestconfig, folder, settings) as running:
        if not isinstance(running, KledgerServer):
            pytest.skip("Apache Kafka needs a plugin for its tiered storage")
        yield running


def fill(tiered: KledgerServer, topic: str) -> list[str]:
    """Write transactions, every third aborted, until the tier alone has old ledgers.

    Returns:
        The values that were committed.
    """
    create_topic(tiered.bootstrap, topic, 1, TIERED)
    committed = []
    producer = Producer({"bootstrap.servers": tiered.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for number in range(30):
        values = [f"{number}-{index}" for index in range(10)]
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value.encode(), key=b"k")
        if number % 3 == 2:
            assert producer.flush(WAIT_S) == 0
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            committed += values
    with kledger.sync.connect(f"kledger://{tiered.native_address}") as client:
        for _ in rounds("the tier alone has every closed ledger"):
            (partition,) = client.topic_stats(topic).partitions
            if all(each.primary_deleted for each in partition.ledgers[:-1]):
                break
    assert len(partition.ledgers) > 3
    return committed


def reads_of_tier(tiered: KledgerServer, topic: str) -> int:
    with kledger.sync.connect(f"kledger://{tiered.native_address}") as client:
        (partition,) = client.topic_stats(topic).partitions
        return partition.reads["tier"]


@pytest.mark.feature("tiered storage: offsets of get-offsets, read from the beginning")
def test_tools_read_a_topic_from_the_tier(java: Tool, tiered: KledgerServer, topic: str) -> None:
    committed = fill(tiered, topic)
    flags = ("--bootstrap-server", tiered.bootstrap, "--topic", topic, "--time")
    local, last_tiered = (
        int(java(f"{TOOLS}.GetOffsetShell", *flags, time).strip().rpartition(":")[2])
        for time in ("earliest-local", "latest-tiered")
    )
    assert 0 < last_tiered == local - 1
    lines = console_consumer(
        java, tiered.bootstrap, topic, len(committed), "--isolation-level", "read_committed"
    )
    assert lines == [f"k\t{value}" for value in committed]
    assert reads_of_tier(tiered, topic) > 0


@pytest.mark.feature("tiered storage: remote.storage.enable among the settings of a topic")
def test_tools_show_what_is_tiered(java: Tool, tiered: KledgerServer, topic: str) -> None:
    create_topic(tiered.bootstrap, topic, 1, {})
    flags = ("--bootstrap-server", tiered.bootstrap, "--entity-type", "topics")
    named = (*flags, "--entity-name", topic)
    java(
        "kafka.admin.ConfigCommand", *named, "--alter", "--add-config", "remote.storage.enable=true"
    )
    assert "remote.storage.enable=true" in java("kafka.admin.ConfigCommand", *named, "--describe")
    broker = ("--bootstrap-server", tiered.bootstrap, "--entity-type", "brokers")
    shown = java("kafka.admin.ConfigCommand", *broker, "--entity-name", "1", "--describe", "--all")
    assert "remote.log.storage.system.enable=true" in shown


@pytest.mark.feature("tiered storage: DeleteRecords into the tier; read by librdkafka")
def test_records_are_deleted_in_the_tier(tiered: KledgerServer, topic: str) -> None:
    committed = fill(tiered, topic)
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 50)]).values()
    assert deleted.result(WAIT_S).low_watermark == 50
    left = [value for value in committed if offset_of(value) >= 50]
    with consuming(
        tiered.bootstrap, topic, group=topic, isolation_level="read_committed"
    ) as consumer:
        received = receive(consumer, len(left))
    assert [(message.value() or b"").decode() for message in received] == left
    assert [message.offset() for message in received] == [offset_of(value) for value in left]


def offset_of(value: str) -> int:
    """Return the offset of a value of `fill`: each transaction has a marker behind it."""
    number, _, index = value.partition("-")
    return int(number) * 11 + int(index)
