"""Transactions, with each client's own way of having them."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from compat_tests.conftest import MakeTopic, Tool
from compat_tests.deadlines import PROGRAM_S, WAIT_MS, WAIT_S
from compat_tests.test_aiokafka import consuming as consuming_aiokafka
from compat_tests.test_aiokafka import producing as producing_aiokafka
from compat_tests.test_confluent_kafka import consuming, receive

TOOLS = "org.apache.kafka.tools"


def committed_values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Read so many committed records."""
    options = {"isolation.level": "read_committed"}
    with consuming(bootstrap, topic, **options) as consumer:
        return [bytes(one.value() or b"") for one in receive(consumer, count)]


@pytest.mark.workers("coordinator and leaders are different brokers")
@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("transactions: commit, abort, offsets of a group")
def test_confluent_transactions(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for value, is_commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(WAIT_S)
        (producer.commit_transaction if is_commit else producer.abort_transaction)(WAIT_S)
    assert [b"a", b"c"] == committed_values(bootstrap, topic, 2)
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    place = TopicPartition(topic, 0, 3)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    (found,) = member.committed([TopicPartition(topic, 0)], WAIT_S)
    member.close()
    assert 3 == found.offset


@pytest.mark.workers("partitions of several leaders in one transaction")
@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("transactions over several partitions and groups")
def test_a_transaction_is_whole_over_partitions_and_groups(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    topic, partitions = make_topic(partitions=4), range(4)
    places = [TopicPartition(topic, each, 7) for each in partitions]
    members = [
        Consumer({"bootstrap.servers": bootstrap, "group.id": f"{group}-{each}"})
        for each in partitions
    ]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for number, is_commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for each in partitions:
            producer.produce(topic, b"%d" % number, partition=each)
        if number in {1, 2}:
            for member in members:
                metadata = member.consumer_group_metadata()
                producer.send_offsets_to_transaction(places[number:], metadata, WAIT_S)
        (producer.commit_transaction if is_commit else producer.abort_transaction)(WAIT_S)
    assert sorted([b"0", b"2"] * 4) == sorted(committed_values(bootstrap, topic, 8))
    for member in members:
        found = member.committed([TopicPartition(topic, each) for each in partitions], WAIT_S)
        assert [-1001, -1001, 7, 7] == [each.offset for each in found]
        member.close()


@pytest.mark.workers("coordinator and leaders are different brokers")
@pytest.mark.peer("aiokafka")
@pytest.mark.feature("transactions: commit and abort")
async def test_aiokafka_transactions(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with producing_aiokafka(bootstrap, transactional_id=topic) as producer:
        for value, is_commit in ((b"a", True), (b"b", False), (b"c", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value)
            await (producer.commit_transaction if is_commit else producer.abort_transaction)()
    options = {"isolation_level": "read_committed"}
    async with consuming_aiokafka(bootstrap, topic, **options) as consumer:
        async with asyncio.timeout(WAIT_S):
            assert [b"a", b"c"] == [(await consumer.getone()).value for _ in range(2)]


@pytest.mark.workers("coordinator and leaders are different brokers")
@pytest.mark.peer("kafka-python")
@pytest.mark.feature("transactions: commit and abort")
def test_kafka_python_transactions(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value, is_commit in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.send(topic, value).get(WAIT_S)
        (producer.commit_transaction if is_commit else producer.abort_transaction)()
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_MS,
    )
    assert [b"a", b"c"] == [next(consumer).value for _ in range(2)]
    consumer.close()


@pytest.mark.workers("coordinator and leaders are different brokers")
@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("producer-perf-test with transactions, transaction.version 2")
def test_java_producer_commits(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    topic, count = make_topic(), 500
    java(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--throughput", "-1"),
        *("--record-size", "100", "--transaction-duration-ms", "50"),
        *("--transactional-id", topic),
        *("--command-property", f"bootstrap.servers={bootstrap}"),
    )
    assert count == len(committed_values(bootstrap, topic, count))


@pytest.mark.workers("coordinator and leaders are different brokers")
@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("transactions tool: list, describe, producers, abort a hanging one")
def test_java_transactions_tool(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()

    def tool(*arguments: str) -> str:
        return java(f"{TOOLS}.TransactionsCommand", "--bootstrap-server", bootstrap, *arguments)

    # It stays open until the tools have seen it, one after the other.
    lasting = {"transactional.id": topic, "transaction.timeout.ms": PROGRAM_S * 1000}
    producer = Producer({"bootstrap.servers": bootstrap, **lasting})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(WAIT_S)
    assert any(topic in line and "Ongoing" in line for line in tool("list").splitlines())
    assert "Ongoing" in tool("describe", "--transactional-id", topic)
    described = tool("describe-producers", "--topic", topic, "--partition", "0")
    assert "0" == described.split()[-1], "where the open transaction began"
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    producer2 = Producer({"bootstrap.servers": bootstrap})
    producer2.produce(topic, b"seen")
    producer2.flush(WAIT_S)
    assert [b"seen"] == committed_values(bootstrap, topic, 1)
