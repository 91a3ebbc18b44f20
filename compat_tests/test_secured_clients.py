"""Clients on listeners with TLS: SASL_SSL with SCRAM, and certificates of clients (mTLS).

Rule: one server for all, with its users and certificates; what a client sends on one listener is
read by librdkafka on another.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from compat_tests.certificates import write_certificates
from compat_tests.conftest import SETTINGS, Tool, run_tool
from compat_tests.deadlines import WAIT_MS, WAIT_S
from compat_tests.programs import client_command
from compat_tests.servers import KledgerServer
from compat_tests.servers.ports import ReservedPort

USER, PASSWORD = "alice", "alice-password"
MECHANISM = "SCRAM-SHA-512"
CONFIGS, TOPICS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.TopicCommand"
LISTENERS = ("SASL_SSL", "SSL")
of_listeners = pytest.mark.parametrize("listener", LISTENERS)


@dataclass(frozen=True)
class Secured:
    """A running server: addresses by listener, and the files of its clients."""

    addresses: dict[str, str]
    folder: Path

    @property
    def authority(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def own(self) -> str:
        return str(self.folder / "client.pem")

    def librdkafka(self, listener: str, **changed: str) -> dict[str, Any]:
        """Return the settings of librdkafka for a listener."""
        found = {"bootstrap.servers": self.addresses[listener], "security.protocol": listener}
        if listener != "PLAINTEXT":
            found["ssl.ca.location"] = self.authority
        if listener == "SSL":
            found |= {"ssl.certificate.location": self.own, "ssl.key.location": self.own}
        if listener == "SASL_SSL":
            found |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
        return found | changed

    def python(self, listener: str) -> dict[str, Any]:
        """Return the settings of aiokafka and of kafka-python for a listener."""
        context = ssl.create_default_context(cafile=self.authority)
        if listener == "SSL":
            context.load_cert_chain(self.own)
        found = {
            "bootstrap_servers": self.addresses[listener],
            "security_protocol": listener,
            "ssl_context": context,
        }
        if listener == "SASL_SSL":
            found |= {
                "sasl_mechanism": MECHANISM,
                "sasl_plain_username": USER,
                "sasl_plain_password": PASSWORD,
            }
        return found

    def java(self, listener: str, password: str = PASSWORD) -> str:
        """Write a file of properties for Kafka's tools; return its path."""
        lines = [
            f"security.protocol={listener}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.authority}",
        ]
        if listener == "SSL":
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.own}"]
        else:
            login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
            lines += [
                f"sasl.mechanism={MECHANISM}",
                f'sasl.jaas.config={login} username="{USER}" password="{password}";',
            ]
        file = self.folder / f"{listener}.properties"
        file.write_text("\n".join(lines))
        return str(file)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A server with three listeners and one user."""
    folder = tmp_path_factory.mktemp("secured-server")
    write_certificates(folder)
    names = ("PLAINTEXT", *LISTENERS)
    ports = [ReservedPort() for _ in names]
    settings = SETTINGS | {
        "listeners": ",".join(
            f"{name}://127.0.0.1:{port.number}" for name, port in zip(names, ports, strict=True)
        ),
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
    }
    with KledgerServer(folder, settings=settings) as server:
        addresses = [server.bootstrap, *server.more_addresses]
        found = Secured(dict(zip(names, addresses, strict=True)), folder)
        add_user(found)
        yield found
    for port in ports:
        port.close()


def add_user(secured: Secured) -> None:
    """Add the user as Kafka's clients do."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = AdminClient(secured.librdkafka("PLAINTEXT"))
    for outcome in admin.alter_user_scram_credentials([change]).values():
        outcome.result(WAIT_S)


def received(secured: Secured, topic: str, listener: str) -> bytes | None:
    """Return the first record of a topic, as librdkafka reads it on a listener."""
    consumer = Consumer(
        secured.librdkafka(listener) | {"group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None, message.error()
        return message.value()
    finally:
        consumer.close()


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
@of_listeners
def test_librdkafka(secured: Secured, topic: str, listener: str) -> None:
    producer = Producer(secured.librdkafka(listener) | {"enable.idempotence": True})
    producer.produce(topic, b"from librdkafka")
    assert 0 == producer.flush(WAIT_S)
    assert b"from librdkafka" == received(secured, topic, listener)


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("SASL_SSL with a wrong password is refused")
def test_librdkafka_with_a_wrong_password(secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka("SASL_SSL", **{"sasl.password": "wrong"}))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)


@pytest.mark.peer("aiokafka")
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
@of_listeners
def test_aiokafka(secured: Secured, topic: str, group: str, listener: str) -> None:
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
    assert b"from aiokafka" == received(secured, topic, "PLAINTEXT")


@pytest.mark.peer("kafka-python")
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
@of_listeners
def test_kafka_python(secured: Secured, topic: str, group: str, listener: str) -> None:
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
    assert b"from kafka-python" == received(secured, topic, "PLAINTEXT")


@pytest.mark.slow
@pytest.mark.peer("kafkajs")
@pytest.mark.feature("SASL_SSL with SCRAM, and mTLS")
@of_listeners
def test_kafkajs(
    secured: Secured, topic: str, group: str, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_CA", secured.authority)
    if listener == "SSL":
        monkeypatch.setenv("CLIENT_CERTIFICATE", secured.own)
    else:
        monkeypatch.setenv("CLIENT_USER", USER)
        monkeypatch.setenv("CLIENT_PASSWORD", PASSWORD)
    admin = AdminClient(secured.librdkafka("PLAINTEXT"))
    for created in admin.create_topics([NewTopic(topic, 1)]).values():
        created.result(WAIT_S)
    run_tool(
        [*client_command("kafkajs"), "produce", secured.addresses[listener], topic, "5", "none"]
    )
    assert b"value-0" == received(secured, topic, "PLAINTEXT")
    read = run_tool(
        [*client_command("kafkajs"), "consume", secured.addresses[listener], topic, "5", group]
    )
    assert 5 == len(read.splitlines())


@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("--command-config with SASL_SSL and with mTLS")
@of_listeners
def test_java_tools(java: Tool, secured: Secured, topic: str, listener: str) -> None:
    to = (
        "--bootstrap-server", secured.addresses[listener],
        "--command-config", secured.java(listener),
    )  # fmt: skip
    java(TOPICS, *to, "--create", "--topic", topic, "--partitions", "2")
    assert f"Topic: {topic}" in java(TOPICS, *to, "--describe", "--topic", topic)


@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("configs: SCRAM users")
def test_configs_tool_alters_users(java: Tool, secured: Secured) -> None:
    def configs(*arguments: str, expect: int = 0) -> str:
        to = (
            "--bootstrap-server", secured.addresses["SASL_SSL"],
            "--command-config", secured.java("SASL_SSL"),
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
