"""Consumers whose partition gets another leader: a server takes over the folder of the one before.

Both servers run in this process, one after the other on one port; the second one has a higher
leader epoch. A consumer must go on where it was, whether it lives on or begins at a commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.conftest import Tool, create_topic
from compat_tests.deadlines import WAIT_S, rounds
from compat_tests.servers.ports import ReservedPort
from kledger.testing import ServerThread

pytestmark = pytest.mark.data_folder("both servers are in this process, on one folder")
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPIC, GROUP = "orders", "readers"


@pytest.fixture
def port() -> Iterator[int]:
    """The port of both servers."""
    with ReservedPort() as reserved:
        yield reserved.number


@contextmanager
def leading(folder: Path, port: int, leader_epoch: int) -> Iterator[str]:
    """A server under an epoch; gives its address."""
    settings: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
    with ServerThread(
        folder, kafka=f"127.0.0.1:{port}", settings=settings, leader_epoch=leader_epoch
    ) as server:
        yield server.kafka_address


def send(address: str, *values: str) -> None:
    """Send records, and see them acknowledged."""
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(WAIT_S) == 0


def receive(consumer: Consumer, count: int) -> list[str]:
    """Take so many records, over any error that the client retries by itself."""
    found: list[str] = []
    for _ in rounds(f"{count} records, got {found}"):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(value.decode())
            if len(found) == count:
                break
    return found


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("goes on when the leader epoch rises")
def test_consumer_of_librdkafka_goes_on_under_the_next_leader(tmp_path: Path, port: int) -> None:
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}", "group.id": GROUP,
        "auto.offset.reset": "error", "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    with leading(tmp_path, port, 0) as address:
        create_topic(address, TOPIC, 1, {})
        send(address, "a", "b", "c")
        assert receive(consumer, 3) == ["a", "b", "c"]
        (committed,) = consumer.commit(asynchronous=False)
        assert (committed.offset, committed.leader_epoch) == (3, 0)
    with leading(tmp_path, port, 3) as address:
        send(address, "d", "e")
        assert receive(consumer, 2) == ["d", "e"]
        (committed,) = consumer.commit(asynchronous=False)
        assert (committed.offset, committed.leader_epoch) == (5, 3)
        consumer.close()
    with leading(tmp_path, port, 4) as address:
        send(address, "f")
        again = Consumer(settings)
        try:
            again.subscribe([TOPIC])
            assert receive(again, 1) == ["f"]
        finally:
            again.close()


@pytest.mark.peer("kafka-java")
@pytest.mark.feature("goes on from an offset that was committed under an older leader epoch")
def test_java_consumer_goes_on_from_its_commit(tmp_path: Path, port: int, java: Tool) -> None:
    def consume(address: str, count: int) -> list[str]:
        return java(
            CONSOLE_CONSUMER, "--bootstrap-server", address, "--topic", TOPIC, "--group", GROUP,
            "--from-beginning", "--max-messages", str(count), "--timeout-ms", str(WAIT_S * 1000),
        ).split()  # fmt: skip

    with leading(tmp_path, port, 0) as address:
        create_topic(address, TOPIC, 1, {})
        send(address, "a", "b")
        assert consume(address, 2) == ["a", "b"]
    for epoch, value in ((3, "c"), (4, "d")):
        with leading(tmp_path, port, epoch) as address:
            send(address, value)
            assert consume(address, 1) == [value]
