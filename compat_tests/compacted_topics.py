"""Compacted topics: configs with which they are compacted at once, and what a consumer then sees.

Rule: nothing here knows when a compaction runs. Records of the key `TICK` make a new one due until
a consumer sees what a test waits for; they are left out of what a test compares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.conftest import create_topic
from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds

COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
}
"""Configs of a topic of which all but the newest records can be compacted."""
TICK = b"tick"


class SeenRecord(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, str | bytes | None], ...]
    timestamp_ms: int


def create_compacted(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic that is compacted at once; give its name."""
    create_topic(bootstrap, name, partitions, COMPACTED | configs)
    return name


def read_partition(
    bootstrap: str,
    topic: str,
    *,
    partition: int = 0,
    isolation: str = "read_uncommitted",
) -> list[SeenRecord]:
    """Read a partition from its beginning to its end as of now, without the ticks."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "check.crcs": True,
    })  # fmt: skip
    seen: list[SeenRecord] = []
    try:
        end, is_end = _end_of(consumer, TopicPartition(topic, partition)), False
        consumer.assign([TopicPartition(topic, partition, 0)])
        for _ in rounds(f"the end of {topic}, {end}"):
            for message in consumer.consume(5000, timeout=0.5):
                error = message.error()
                if error is None:
                    seen.append(_seen(message))
                    is_end = is_end or seen[-1].offset + 1 >= end
                elif error.code() == KafkaError._PARTITION_EOF:
                    is_end = True
                elif error.fatal():
                    raise KafkaException(error)
            if is_end or not end:
                return [each for each in seen if each.key != TICK]
    finally:
        consumer.close()
    raise AssertionError("rounds never end by themselves")


def _end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Give the end of a partition; a server that has just started may not lead it yet."""
    for _ in rounds(f"{partition} has a leader"):
        with suppress(KafkaException):
            _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
            return end
    raise AssertionError("rounds never end by themselves")


def _seen(message: Message) -> SeenRecord:
    offset, headers = message.offset(), message.headers() or []
    assert offset is not None
    assert isinstance(headers, list)
    return SeenRecord(
        offset=offset,
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
        timestamp_ms=message.timestamp()[1],
    )


def has_newest_only(records: Iterable[SeenRecord]) -> bool:
    """Whether no key occurs twice, and every record has one."""
    keys = [each.key for each in records]
    return None not in keys and len(keys) == len(set(keys))


def has_values_only(records: Iterable[SeenRecord]) -> bool:
    """Whether the tombstones have gone, too."""
    found = list(records)
    return has_newest_only(found) and all(each.value is not None for each in found)


def compact(
    bootstrap: str,
    topic: str,
    is_compacted: Callable[[list[SeenRecord]], bool] = has_newest_only,
    *,
    partition: int = 0,
) -> list[SeenRecord]:
    """Wait until a consumer sees a compacted partition; give what it sees."""
    producer = Producer({"bootstrap.servers": bootstrap})
    seen: list[SeenRecord] = []
    for _ in rounds(f"{topic}-{partition} is compacted", within_s=PROGRAM_S):
        send_tick(producer, topic, partition)
        seen = read_partition(bootstrap, topic, partition=partition)
        if is_compacted(seen):
            return seen
    raise AssertionError("rounds never end by themselves")


def send_tick(producer: Producer, topic: str, partition: int) -> None:
    """Send the record behind which a segment ends."""
    now_ms = int(time.time() * 1000)
    producer.produce(topic, key=TICK, value=b"", partition=partition, timestamp=now_ms)
    assert 0 == producer.flush(WAIT_S)
