"""A sync that fails below a real server: it stops, logs why, and keeps all acknowledged records."""

import errno
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kledger.process import ServerProcess

FAULT = """
import os
from pathlib import Path

switch, sync = Path({switch!r}), os.fdatasync

def fdatasync(descriptor):
    if switch.exists():
        with switch.open("a") as tries:
            tries.write("x")
        raise OSError({errno}, "Input/output error")
    sync(descriptor)

os.fdatasync = fdatasync
"""
"""Loaded before the server; `switch` collects a letter for every sync that failed."""


class Load:
    """A producer that does not retry, and its outcomes."""

    def __init__(self, address: str) -> None:
        settings = {"bootstrap.servers": address, "message.timeout.ms": 120_000, "retries": 0}
        self._producer = Producer({**settings, "log_level": 0})
        self.acknowledged: list[bytes] = []
        self.failed = 0

    def send(self, first: int, count: int) -> None:
        """Begin to send numbers."""
        for number in range(first, first + count):
            self._producer.produce("t", b"%d" % number, on_delivery=self._on_delivery)
            self._producer.poll(0)

    def end(self) -> None:
        """Wait for what becomes of all of them."""
        self._producer.flush(120)

    def give_up(self) -> None:
        """Let the records fail that the stopped server cannot answer."""
        self._producer.purge()
        self.end()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")
        else:
            self.failed += 1


def read_all(address: str, count: int) -> list[bytes]:
    """Read the first records of the partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = [each.value() or b"" for each in consumer.consume(count, timeout=60)]
    consumer.close()
    return found


def test_server_stops_with_a_reason_and_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch, data = tmp_path / "switch", str(tmp_path / "data")
    fault = FAULT.format(switch=str(switch), errno=errno.EIO)
    (tmp_path / "sitecustomize.py").write_text(fault)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ServerProcess("--data", data, "--durability", "fsync") as server:
        load = Load(server.kafka_address)
        load.send(0, 100)
        load.end()
        assert (100, 0) == (len(load.acknowledged), load.failed)
        switch.touch()
        load.send(100, 5)
        assert 1 == server.wait(60)
        load.give_up()
        assert (100, 5) == (len(load.acknowledged), load.failed)
        said = server.log_text()
        assert "the ledger store stops: a sync failed: the log could not be synced" in said
        assert "stopping: crash: Fenced('a sync failed: the log could not be synced" in said
    assert "x" == switch.read_text(), "a sync is never tried again"
    monkeypatch.undo()
    with ServerProcess("--data", data) as server:
        assert load.acknowledged == read_all(server.kafka_address, 100)
