"""Clients on listeners with TLS: SASL_SSL with SCRAM, and certificates of clients (mTLS).

Rule: one server for all; what a client sends on one listener is read by librdkafka on another.
Spark, Connect and Streams have theirs beside their other tests.
"""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from compat_tests.conftest import Tool, create_topic
from compat_tests.deadlines import WAIT_MS, WAIT_S
from compat_tests.secured_server import SecuredServer, of_listeners
from compat_tests.test_confluent_kafka import consuming, receive
from compat_tests.test_programs import (
    GO,
    OTHERS,
    content,
    lines,
    made,
    of_clients,
    received_content,
    run,
)

CONFIGS, TOPICS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.TopicCommand"
RECORD_COUNT = 5


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
@of_listeners
def test_librdkafka(secured: SecuredServer, topic: str, listener: str) -> None:
    producer = Producer(secured.librdkafka(listener) | {"enable.idempotence": True})
    producer.produce(topic, b"from librdkafka")
    assert 0 == producer.flush(WAIT_S)
    assert b"from librdkafka" == secured.first_value(topic, listener)


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("SASL_SSL with a wrong password is refused")
def test_librdkafka_with_a_wrong_password(secured: SecuredServer) -> None:
    admin = AdminClient(secured.librdkafka("SASL_SSL", **{"sasl.password": "wrong"}))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)


@pytest.mark.peer("aiokafka")
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
@of_listeners
def test_aiokafka(secured: SecuredServer, topic: str, group: str, listener: str) -> None:
    async def round_trip() -> bytes | None:
        options = secured.python(listener)
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"from aiokafka")
        async with AIOKafkaConsumer(
            topic, group_id=group, auto_offset_reset="earliest", **options
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), WAIT_S)
            value: bytes | None = record.value
            return value

    assert b"from aiokafka" == asyncio.run(round_trip())
    assert b"from aiokafka" == secured.first_value(topic)


@pytest.mark.peer("kafka-python")
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
@of_listeners
def test_kafka_python(secured: SecuredServer, topic: str, group: str, listener: str) -> None:
    options = secured.python(listener)
    producer = KafkaProducer(**options)
    producer.send(topic, b"from kafka-python").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_MS,
        **options,
    )
    assert b"from kafka-python" == next(consumer).value
    consumer.close()
    assert b"from kafka-python" == secured.first_value(topic)


@pytest.mark.slow
@of_clients((*GO, *OTHERS))
@of_listeners
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
def test_programs(
    *,
    secured: SecuredServer,
    topic: str,
    group: str,
    client: str,
    listener: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in secured.environment(listener).items():
        monkeypatch.setenv(name, value)
    create_topic(secured.open_address, topic, 1, {})
    address, sent = secured.addresses[listener], made("value", RECORD_COUNT)
    run(client, "produce", address, topic, str(RECORD_COUNT), "none")
    with consuming(secured.open_address, topic) as consumer:
        assert content(sent) == received_content(receive(consumer, RECORD_COUNT))
    assert lines(sent) == run(client, "consume", address, topic, str(RECORD_COUNT), group)


@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("--command-config with SASL_SSL and with mTLS")
@of_listeners
def test_java_tools(java: Tool, secured: SecuredServer, topic: str, listener: str) -> None:
    to = (
        "--bootstrap-server", secured.addresses[listener],
        "--command-config", secured.properties_file(listener),
    )  # fmt: skip
    java(TOPICS, *to, "--create", "--topic", topic, "--partitions", "2")
    assert f"Topic: {topic}" in java(TOPICS, *to, "--describe", "--topic", topic)


@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("configs: SCRAM users")
def test_configs_tool_alters_users(java: Tool, secured: SecuredServer) -> None:
    def configs(*arguments: str, expect: int = 0) -> str:
        to = (
            "--bootstrap-server", secured.addresses["SASL_SSL"],
            "--command-config", secured.properties_file("SASL_SSL"),
        )  # fmt: skip
        return java(CONFIGS, *to, "--entity-type", "users", *arguments, expect=expect)

    bob = ("--entity-name", "bob")
    for change in ("SCRAM-SHA-256=[iterations=8192,password=b]", "SCRAM-SHA-512=[password=b]"):
        configs(*bob, "--alter", "--add-config", change)
    described = configs(*bob, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    configs(*bob, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in configs(*bob, "--describe")
    configs(*bob, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=100,password=b]", expect=1)
