"""Load for the crash tests: producers and a group consumer that live through kills of the server.

Rule: the content of a record follows from its producer, partition and number, so that a reader can
check every byte; an acknowledgement is recorded when the client library reports it.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds
from compat_tests.settings import dotted

TopicPartitionKey = tuple[str, int]

_FILLER = random.Random(7).randbytes(8192)
_SIZE_MAX = 3000
_PAUSE_S = 0.005
_ROUND_RECORDS = 2
_COMMIT_RECORDS = 200
_ASK_S = 10


def record_value(producer: str, place: TopicPartitionKey, sequence: int) -> bytes:
    """Give the value of a record: its origin, then a piece of a fixed block."""
    size = sequence * 2654435761 % _SIZE_MAX
    start = sequence * 31 % (len(_FILLER) - _SIZE_MAX)
    return f"{producer}/{place[0]}/{place[1]}/{sequence}/".encode() + _FILLER[start : start + size]


def record_origin(value: bytes) -> tuple[str, TopicPartitionKey, int]:
    """Read the origin back from a value."""
    producer, topic, partition, sequence, _ = value.split(b"/", 4)
    return producer.decode(), (topic.decode(), int(partition)), int(sequence)


class CrashProducer(ABC):
    """Sends idempotently until it is stopped, in its own thread; lives through kills."""

    pause_s: float
    """Between two rounds."""

    def __init__(self, name: str, bootstrap: str, codec: str, **settings: str | int) -> None:
        """Make the client, with settings of its own; nothing is sent before start()."""
        self.name = name
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.producer = Producer({
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 2,
            "queue.buffering.max.messages": 20_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
            "error_cb": self._failed,
            **dotted(settings),
        })  # fmt: skip

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def finish(self) -> int:
        """Stop sending, wait for what is under way, and give the number of records left over."""
        self._stopping.set()
        self._thread.join()
        return self.producer.flush(PROGRAM_S)

    @abstractmethod
    def send_round(self) -> None:
        """Send the next records; those for which the queue is full come in the next round."""

    def _run(self) -> None:
        while not self._stopping.wait(self.pause_s):
            self.send_round()
            self.producer.poll(0)

    def _failed(self, error: KafkaError) -> None:
        """Note what the library cannot recover from; lost connections are the point of the test."""
        if error.fatal():
            self.errors.append(f"{self.name}: {error}")


class LoadProducer(CrashProducer):
    """Sends to all partitions round robin."""

    pause_s = _PAUSE_S

    def __init__(
        self,
        name: str,
        bootstrap: str,
        places: list[TopicPartitionKey],
        codec: str,
        **settings: str | int,
    ) -> None:
        """See CrashProducer."""
        super().__init__(name, bootstrap, codec, **settings)
        self.sent: dict[TopicPartitionKey, int] = dict.fromkeys(places, 0)
        self.acknowledged: dict[TopicPartitionKey, list[tuple[int, int]]] = {
            place: [] for place in places
        }

    def acknowledged_so_far(self) -> dict[TopicPartitionKey, list[tuple[int, int]]]:
        """Give (sequence, offset) of what was acknowledged; may be called while it runs."""
        return {place: list(pairs) for place, pairs in self.acknowledged.items()}

    def send_round(self) -> None:
        """Send records to every partition."""
        for place in self.sent:
            for _ in range(_ROUND_RECORDS):
                self._send(place)

    def _send(self, place: TopicPartitionKey) -> None:
        """Send the next record of a place; leave it for later when the queue is full."""
        sequence = self.sent[place]
        topic, partition = place
        value = record_value(self.name, place, sequence)
        noted = partial(self._delivered, place, sequence)
        try:
            self.producer.produce(topic, value, partition=partition, on_delivery=noted)
        except BufferError:
            self.producer.poll(_PAUSE_S)
        else:
            self.sent[place] = sequence + 1

    def _delivered(
        self, place: TopicPartitionKey, sequence: int, error: KafkaError | None, message: Any
    ) -> None:
        if error is not None:
            self.errors.append(f"{self.name} {place} {sequence}: {error}")
        else:
            self.acknowledged[place].append((sequence, message.offset()))


class CommittingConsumer:
    """A member of a group that reads everything and commits often; a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        """Make the client; it joins on start()."""
        self.committed: dict[TopicPartitionKey, int] = defaultdict(int)
        self._topics = topics
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        })  # fmt: skip

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def finish(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        self._consumer.subscribe(self._topics)
        while not self._stopping.is_set():
            received = self._consumer.consume(_COMMIT_RECORDS, timeout=0.1)
            if any(message.error() is None for message in received):
                self._commit()

    def _commit(self) -> None:
        """Commit what was read, and record it when the server has confirmed."""
        try:
            answered = self._consumer.commit(asynchronous=False) or []
        except KafkaException:
            return
        for place in answered:
            if place.error is None:
                self.committed[place.topic, place.partition] = place.offset


class LogChecker:
    """Reads the partitions on from where it stopped and checks each record against its origin.

    Outlives restarts of the server, as the producers do.
    """

    def __init__(self, bootstrap: str, group: str, places: list[TopicPartitionKey]) -> None:
        """Make the client; `group` is the one whose commits are looked up."""
        self.records = 0
        self._places = places
        self._next_offset = dict.fromkeys(places, 0)
        self._offsets: dict[tuple[str, TopicPartitionKey], list[int]] = defaultdict(list)
        self._required: dict[tuple[str, TopicPartitionKey], int] = defaultdict(int)
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        })  # fmt: skip

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def read_to_end(self) -> None:
        """Read every partition to its end as of now: dense, in order, once, byte for byte."""
        for place in self._places:
            self._read_partition(place, self.end_of(place))

    def _read_partition(self, place: TopicPartitionKey, end: int) -> None:
        """Read one partition from where it was left."""
        if self._next_offset[place] >= end:
            return
        self._consumer.assign([TopicPartition(*place, self._next_offset[place])])
        while self._next_offset[place] < end:
            for message in self._receive(f"{place}: more than {self._next_offset[place]} of {end}"):
                assert message.error() is None, f"{place}: {message.error()}"
                self._check(place, message)
        self._consumer.unassign()

    def _receive(self, what: str) -> list[Any]:
        """Take what comes next."""
        for _ in rounds(what):
            if received := self._consumer.consume(5000, timeout=0.5):
                return received
        raise AssertionError("rounds never end by themselves")

    def _check(self, place: TopicPartitionKey, message: Any) -> None:
        """Check one record and record its offset."""
        assert message.offset() == self._next_offset[place], f"{place}: a gap before this offset"
        value = message.value()
        producer, origin, sequence = record_origin(value)
        offsets = self._offsets[producer, place]
        assert origin == place, f"{place} {message.offset()}: a record of {origin}"
        assert sequence == len(offsets), (
            f"{place} {message.offset()}: {producer} {sequence}, expected {len(offsets)}"
        )
        assert value == record_value(producer, place, sequence), f"{place}: other bytes"
        offsets.append(message.offset())
        self._next_offset[place] += 1
        self.records += 1

    def require(
        self, producer: str, acknowledged: dict[TopicPartitionKey, list[tuple[int, int]]]
    ) -> None:
        """Check that every acknowledged record was read, at the offset of its acknowledgement.

        What an earlier call has checked is not checked again.
        """
        for place, pairs in acknowledged.items():
            offsets = self._offsets[producer, place]
            for sequence, offset in pairs[self._required[producer, place] :]:
                assert sequence < len(offsets), f"{producer} {place}: {sequence} is lost"
                assert offset in (offsets[sequence], -1), f"{producer} {place}: {sequence} moved"
            self._required[producer, place] = len(pairs)

    def require_commits(self, acknowledged: dict[TopicPartitionKey, int]) -> None:
        """Check that no acknowledged commit went back and none lies beyond the log."""
        asked = [TopicPartition(*place) for place in self._places]
        for found in self._consumer.committed(asked, timeout=WAIT_S):
            place = (found.topic, found.partition)
            assert found.offset >= acknowledged.get(place, -1001), f"{place}: a commit is lost"
            assert found.offset <= self.end_of(place), f"{place}: a commit beyond the log"

    def end_of(self, place: TopicPartitionKey) -> int:
        """Give the end of a partition; a server that has just started may not lead it yet."""
        for _ in rounds(f"{place} has a leader"):
            with suppress(KafkaException):
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), _ASK_S)
                return int(end)
        raise AssertionError("rounds never end by themselves")
