"""Produce, at every version: what is stored, what is refused, and with which code."""

from __future__ import annotations

import struct
from typing import Final

from compat_tests.differential import words
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS
from kledger.batches.builder import BatchProducer, NewRecord, build_batch, build_control_batch
from kledger.batches.header import refresh_checksum
from kledger.gateway.wire.messages.k00_produce import ProduceRequest, TopicProduceData
from kledger.gateway.wire.primitives import ZERO_UUID

PRODUCE: Final = 0
DAY_MS: Final = 86_400_000
GOOD: Final = words.batch(b"a", b"b")


def changed(at: int, layout: str, value: int, *, is_resealed: bool = True) -> bytes:
    """Give a good batch with one number of its header overwritten."""
    data = bytearray(GOOD)
    struct.pack_into(layout, data, at, value)
    if is_resealed:
        refresh_checksum(data)
    return bytes(data)


def spoiled() -> dict[str, bytes]:
    """Give records in which something is wrong, by what it is."""
    return {
        "records are empty": b"",
        "ten bytes": GOOD[:10],
        "header alone": GOOD[:61],
        "a byte is missing": GOOD[:-1],
        "a byte too many": GOOD + b"\0",
        "two batches": GOOD + GOOD,
        "base offset 7": changed(0, ">q", 7),
        "length too short": changed(8, ">i", 20, is_resealed=False),
        "magic 1": changed(16, ">b", 1),
        "magic 3": changed(16, ">b", 3),
        "wrong checksum": changed(17, ">I", 1, is_resealed=False),
        "control bit": changed(21, ">h", 0x20),
        "codec 5": changed(21, ">h", 5),
        "transactional without producer": changed(21, ">h", 0x10),
        "delta does not fit count": changed(23, ">i", 5),
        "no records": changed(57, ">i", 0),
        "count too high": changed(57, ">i", 3),
        "producer without sequence": changed(43, ">q", 7_000_000),
        "a marker": bytes(
            build_control_batch(
                is_commit=True,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=FIRST_TIMESTAMP_MS,
            )
        ),
        "a time to come": words.batch(b"a", at_ms=FIRST_TIMESTAMP_MS + 3 * DAY_MS),
        "a time long past": words.batch(b"a", at_ms=1_000),
        "time of the log": changed(21, ">h", 0x8),
        "leader epoch 12345": changed(12, ">i", 12_345),
    }


@script
def produce_stores_every_codec(side: Side) -> None:
    for version in side.versions(PRODUCE):
        topic = side.has(f"codecs-{version}")
        topic_id = side.topic_id(topic) if version >= words.RECORDS_BY_ID else ZERO_UUID
        for codec, name in enumerate(CODECS):
            data = words.batch(b"first", b"second" * 50, codec=codec)
            request = words.produce(topic, {0: data}, topic_id=topic_id)
            side.ask(name, request, version)
        side.ask("what is there", words.fetch(topic, {0: 0}), 12)


@script
def produce_refuses_what_is_wrong(side: Side) -> None:
    for version in side.versions(PRODUCE):
        topic = side.has(f"spoiled-{version}")
        topic_id = side.topic_id(topic) if version >= words.RECORDS_BY_ID else ZERO_UUID
        for label, data in spoiled().items():
            side.ask(label, words.produce(topic, {0: data}, topic_id=topic_id), version)
        side.ask("what is there", words.fetch(topic, {0: 0}), 12)


@script
def produce_without_records(side: Side) -> None:
    topic = side.has("null-records")
    side.ask_shortly("records are null", words.produce(topic, {0: None}), 12)


@script
def produce_checks_the_request(side: Side) -> None:
    for version in side.versions(PRODUCE):
        _look_at_the_request(side, version)


def _look_at_the_request(side: Side, version: int) -> None:
    topic = side.has(f"request-{version}", 2)
    topic_id = side.topic_id(topic) if version >= words.RECORDS_BY_ID else ZERO_UUID

    def ask(label: str, data: dict[int, bytes | None], **changes: object) -> None:
        request = words.produce(topic, data, topic_id=topic_id, **changes)
        side.ask(label, request, version)

    for acks in (1, -1, 2, -2):
        ask(f"acks {acks}", {0: GOOD, 1: GOOD}, acks=acks)
    ask("good and unknown partition", {0: GOOD, 7: GOOD, -1: GOOD})
    ask("good and bad", {0: GOOD, 1: b""})
    ask("no partitions", {})
    ask("transactional id without transaction", {0: GOOD}, transactional_id="nobody")
    ask("empty transactional id", {0: GOOD}, transactional_id="")
    ask("no time to wait", {0: GOOD}, timeout_ms=0)
    unknown = words.produce(f"no-{topic}", {0: GOOD}, topic_id=words.UNKNOWN_ID)
    side.ask("unknown topic", unknown, version)
    side.ask("bad name", words.produce("a b", {0: GOOD}), version)
    side.ask("nothing", ProduceRequest(acks=-1, timeout_ms=1_000), version)
    twice = TopicProduceData(name=topic, topic_id=topic_id)
    side.ask("empty topic", ProduceRequest(acks=-1, topic_data=[twice]), version)
    side.ask("what is there", words.fetch(topic, {0: 0, 1: 0}), 12)


@script
def produce_without_acknowledgement(side: Side) -> None:
    for version in side.versions(PRODUCE):
        topic = side.has(f"acks0-{version}")
        topic_id = side.topic_id(topic) if version >= words.RECORDS_BY_ID else ZERO_UUID
        good = words.produce(topic, {0: GOOD}, topic_id=topic_id, acks=0)
        side.tell("acks 0", good, version)
        lost = words.produce(topic, {7: GOOD}, topic_id=topic_id, acks=0)
        side.tell("acks 0, unknown partition", lost, version)
        side.tell("acks 0, nothing", ProduceRequest(acks=0), version)
        side.ask("what is there", words.fetch(topic, {0: 0}), 12)


@script
def produce_keeps_the_settings_of_the_topic(side: Side) -> None:
    null_key = bytes(build_batch([NewRecord(b"v", timestamp=FIRST_TIMESTAMP_MS)]))
    log_time = changed(21, ">h", 0x8)
    far = words.batch(b"a", at_ms=FIRST_TIMESTAMP_MS + 3 * DAY_MS)
    for version in side.versions(PRODUCE, until=12):
        compacted = side.has(f"compacted-{version}", cleanup_policy="compact")
        side.ask("null key, compacted", words.produce(compacted, {0: null_key}), version)
        side.ask("key, compacted", words.produce(compacted, {0: GOOD}), version)
        topic = side.has(f"size-{version}", max_message_bytes="100")
        side.ask("of the limit", words.produce(topic, {0: words.batch(b"x" * 30)}), version)
        side.ask("over the limit", words.produce(topic, {0: words.batch(b"x" * 31)}), version)
        topic = side.has(f"appendtime-{version}", message_timestamp_type="LogAppendTime")
        for label, data in {"good": GOOD, "time of the log": log_time, "far": far}.items():
            side.ask(f"{label}, LogAppendTime", words.produce(topic, {0: data}), version)
        side.ask("what is there", words.fetch(topic, {0: 0}), 12)
        topic = side.has(f"times-{version}", message_timestamp_before_max_ms="1000")
        side.ask("before the limit", words.produce(topic, {0: GOOD}), version)


@script
def produce_keeps_sequences(side: Side) -> None:
    for version in side.versions(PRODUCE, until=12):
        _keep_sequences(side, version)


def _keep_sequences(side: Side, version: int) -> None:
    topic = side.has(f"sequences-{version}")
    given = side.producer()

    def send(label: str, sequence: int, epoch: int = 0, count: int = 1, producer: int = 0) -> None:
        who = BatchProducer(given + producer, epoch, sequence)
        data = words.batch(*[b"v"] * count, producer=who)
        side.ask(label, words.produce(topic, {0: data}), version)

    send("0-4", 0, count=5)
    send("0-4 again", 0, count=5)
    send("6-9, a gap", 6, count=4)
    send("5-9", 5, count=5)
    send("5-8, part of the last", 5, count=4)
    for sequence in range(10, 15):
        send(f"{sequence}", sequence)
    send("10 again, the fifth from behind", 10)
    send("5-9 again, the sixth", 5, count=5)
    send("epoch 1 begins at 3", 3, epoch=1)
    send("epoch 1 begins at 0", 0, epoch=1)
    send("epoch 0 is over", 15)
    send("epoch 0, a duplicate", 14)
    send("unknown producer begins at 57", 57, producer=100_000)
    send("before the greatest", 2**31 - 2, producer=200_000)
    send("the greatest and 0", 2**31 - 1, producer=200_000, count=2)
    send("1 behind it", 1, producer=200_000)
    send("negative", -5, producer=300_000)
    send("epoch -1", 0, epoch=-1, producer=300_000)
    side.ask("what is there", words.fetch(topic, {0: 0}), 12)
