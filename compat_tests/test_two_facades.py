"""One log, two façades: what Kafka's clients write is read natively, and the other way round.

Native clients come over their own listener of the same server. Both sides must agree about every
record: its order, its offset, its headers byte by byte; and neither moves the other's places.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import kledger
from compat_tests import test_aiokafka, test_confluent_kafka, test_kafka_python
from compat_tests.conftest import MakeTopic, Tool
from compat_tests.deadlines import WAIT_MS, WAIT_S
from compat_tests.raw_client import leader_client
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample, samples
from compat_tests.test_java_tools import console_consumer
from kledger.batches.builder import NewRecord, build_batch

QUIET_MS = 200
ODD = Sample(
    key=b"\xff\x00",
    value=b"\xfe odd",
    headers=(("raw", b"\xff\xfe"), ("raw", b"text"), ("twice", b"1"), ("twice", b"2"), ("", b"")),
    timestamp_ms=FIRST_TIMESTAMP_MS,
)
"""Bytes that are no UTF-8, and a name that stands twice."""
RECORDS = [*samples(60), ODD, *samples(60, seed=2)]
BATCH_BYTES = 2_000

Sender = Callable[[str, str, str], Awaitable[None]]


async def send_confluent(bootstrap: str, topic: str, codec: str) -> None:
    options = {"compression_type": codec, "batch_size": BATCH_BYTES, "linger_ms": 20}
    await asyncio.to_thread(test_confluent_kafka.send_all, bootstrap, topic, RECORDS, 0, **options)


async def send_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    options = {"compression_type": None if codec == "none" else codec, "linger_ms": 20}
    async with test_aiokafka.producing(bootstrap, max_batch_size=BATCH_BYTES, **options) as p:
        await test_aiokafka.send_all(p, topic, RECORDS)


async def send_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    def send() -> None:
        options = {"compression_type": None if codec == "none" else codec, "linger_ms": 20}
        with test_kafka_python.producing(bootstrap, batch_size=BATCH_BYTES, **options) as producer:
            test_kafka_python.send_all(producer, topic, RECORDS)

    await asyncio.to_thread(send)


class Seen(NamedTuple):
    """What a Kafka client says of a record."""

    partition: int
    offset: int
    sample: Sample


async def read_confluent(bootstrap: str, topic: str, count: int) -> list[Seen]:
    def read() -> list[Any]:
        with test_confluent_kafka.consuming(bootstrap, topic, group=f"{topic}-rd") as consumer:
            return test_confluent_kafka.receive(consumer, count)

    return [
        Seen(each.partition(), each.offset(), test_confluent_kafka.as_sample(each))
        for each in await asyncio.to_thread(read)
    ]


async def read_aiokafka(bootstrap: str, topic: str, count: int) -> list[Seen]:
    async with test_aiokafka.consuming(bootstrap, topic) as consumer:
        found = await test_aiokafka.receive(consumer, count)
    return [Seen(each.partition, each.offset, test_aiokafka.as_sample(each)) for each in found]


async def read_kafka_python(bootstrap: str, topic: str, count: int) -> list[Seen]:
    def read() -> list[Any]:
        with test_kafka_python.consuming(bootstrap, topic) as consumer:
            return test_kafka_python.receive(consumer, count)

    return [
        Seen(each.partition, each.offset, test_kafka_python.as_sample(each))
        for each in await asyncio.to_thread(read)
    ]


def per_client(calls: dict[str, Callable[..., Any]]) -> Iterable[Any]:
    """Make a parameter of every client, under its name on the page."""
    return [
        pytest.param(call, marks=pytest.mark.peer(name), id=name) for name, call in calls.items()
    ]


SENDERS = per_client(
    {
        "confluent-kafka": send_confluent,
        "aiokafka": send_aiokafka,
        "kafka-python": send_kafka_python,
    }
)
READERS = per_client(
    {
        "confluent-kafka": read_confluent,
        "aiokafka": read_aiokafka,
        "kafka-python": read_kafka_python,
    }
)


@asynccontextmanager
async def subscribed(url: str, topic: str, **options: Any) -> AsyncIterator[Any]:
    """A native consumer from the beginning, on a connection of its own."""
    async with kledger.connect(url) as client:
        consumer = await client.subscribe(
            topic, options.pop("subscription", "native"), initial_position="earliest", **options
        )
        async with consumer:
            yield consumer


async def receive(consumer: Any, count: int) -> list[Any]:
    """Take so many messages, and see that no more come."""
    found = [await consumer.receive(timeout_ms=WAIT_MS) for _ in range(count)]
    with pytest.raises(kledger.Timeout):
        await consumer.receive(timeout_ms=QUIET_MS)
    return found


def as_sample(message: Any) -> Sample:
    """See a native message as a record that was sent."""
    return Sample(
        key=message.key,
        value=message.value,
        headers=tuple(message.headers),
        timestamp_ms=message.publish_timestamp,
    )


def texts(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """The headers whose value is UTF-8, the last of a name."""
    found = {}
    for name, value in headers:
        try:
            found[name] = (value or b"").decode()
        except UnicodeDecodeError:
            continue
    return found


@pytest.mark.feature("written with {codec}, read and acknowledged natively, record by record")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("send", SENDERS)
async def test_what_kafka_writes_is_read_record_by_record(
    bootstrap: str, native_url: str, make_topic: MakeTopic, send: Sender, codec: str
) -> None:
    topic = make_topic()
    await send(bootstrap, topic, codec)
    async with subscribed(native_url, topic, consumer_type="shared") as consumer:
        found = await receive(consumer, len(RECORDS))
        assert RECORDS == [as_sample(each) for each in found]
        assert list(range(len(RECORDS))) == [each.offset for each in found]
        assert sorted(each.id for each in found) == [each.id for each in found]
        assert [texts(each.headers) for each in RECORDS] == [each.properties for each in found]
        assert {(None, 0)} == {(each.event_timestamp, each.partition) for each in found}
        assert len({(each.id.ledger_id, each.id.entry_id) for each in found}) < len(RECORDS) / 2
        kept = [each for each in found if each.offset % 3]
        for each in found:
            if each not in kept:
                await consumer.acknowledge(each)
    async with subscribed(native_url, topic, consumer_type="exclusive") as consumer:
        again = await receive(consumer, len(kept))
        assert [each.id for each in kept] == [each.id for each in again]
        assert [as_sample(each) for each in kept] == [as_sample(each) for each in again]
        await consumer.acknowledge_cumulative(again[40])
    async with subscribed(native_url, topic) as consumer:
        assert [each.id for each in kept[41:]] == [
            each.id for each in await receive(consumer, len(kept) - 41)
        ]


@pytest.mark.workers("native clients are led to each leader")
async def test_header_names_that_are_no_text_come_through(
    bootstrap: str, native_url: str, make_topic: MakeTopic
) -> None:
    """No client library writes such a name, other programs may."""
    name, topic = b"\xff\xfename".decode("utf-8", "surrogateescape"), make_topic()
    record = NewRecord(b"v", timestamp=FIRST_TIMESTAMP_MS, headers=((name, b"1"), (name, None)))
    with leader_client(bootstrap, topic) as client:
        assert 0 == client.produce(topic, build_batch([record, record])).error_code
    async with subscribed(native_url, topic) as consumer:
        found = await receive(consumer, 2)
        assert [[(name, b"1"), (name, None)]] * 2 == [each.headers for each in found]


class Sent(NamedTuple):
    """A native message, and the position that its producer got."""

    id: Any
    sample: Sample


async def send_natively(url: str, topic: str, count: int = 60) -> list[Sent]:
    """Send keyed and keyless messages, in batches, with and without what else they can have."""
    async with kledger.connect(url) as client:
        producer = await client.create_producer(topic)
        async with producer:
            sending = []
            for index in range(count):
                sample = native_sample(index)
                call = producer.send(
                    sample.value,
                    key=sample.key,
                    properties={name: value.decode() for name, value in sample.headers},
                    event_timestamp=sample.timestamp_ms,
                )
                sending.append(call)
            ids = await asyncio.gather(*sending)
    return [Sent(each, native_sample(index)) for index, each in enumerate(ids)]


def native_sample(index: int) -> Sample:
    """Make what one native message should look like to Kafka."""
    headers = (("index", b"%d" % index), ("état", "départ".encode()), ("empty", b""))
    return Sample(
        key=None if index % 4 == 3 else b"key-%d" % (index % 7),
        value=b"" if index % 9 == 8 else b"native-%d" % index,
        headers=headers if index % 3 else (),
        timestamp_ms=FIRST_TIMESTAMP_MS + index * STEP_MS,
    )


@pytest.mark.workers("native clients are led to each leader")
@pytest.mark.feature("reads what was written natively: properties as headers, event time, offsets")
@pytest.mark.parametrize("read", READERS)
async def test_what_is_written_natively_is_read_by_kafkas_clients(
    bootstrap: str,
    native_url: str,
    make_topic: MakeTopic,
    read: Callable[[str, str, int], Awaitable[list[Seen]]],
) -> None:
    topic = make_topic(partitions=3)
    sent = await send_natively(native_url, topic)
    found = await read(bootstrap, topic, len(sent))
    async with subscribed(native_url, topic) as consumer:
        native = {each.id: each for each in await receive(consumer, len(sent))}
    for partition in range(3):
        here = sorted((each for each in sent if each.id.partition == partition), key=by_id)
        theirs = sorted((each for each in found if each.partition == partition), key=by_offset)
        assert [each.sample for each in here] == [each.sample for each in theirs]
        assert list(range(len(here))) == [each.offset for each in theirs]
        assert list(range(len(here))) == [native[each.id].offset for each in here]
        assert [native[each.id].event_timestamp for each in here] == [
            each.sample.timestamp_ms for each in here
        ]
    batches = {(each.id.partition, each.id.ledger_id, each.id.entry_id) for each in sent}
    assert len(batches) < len(sent) / 2


def by_id(sent: Sent) -> Any:
    return sent.id


def by_offset(seen: Seen) -> int:
    return seen.offset


@pytest.mark.workers("native clients are led to each leader")
@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("a key goes to the same partition from a native producer")
async def test_both_facades_put_a_key_into_one_partition(
    bootstrap: str, native_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=5)
    sent = await send_natively(native_url, topic)
    keyed = [replace(each, key=b"key-%d" % index) for index, each in enumerate(samples(7))]

    def send() -> None:
        test_confluent_kafka.send_all(bootstrap, topic, keyed, -1, partitioner="murmur2_random")

    await asyncio.to_thread(send)
    found = await read_confluent(bootstrap, topic, len(sent) + len(keyed))
    places: dict[bytes | None, set[int]] = {}
    for each in found:
        places.setdefault(each.sample.key, set()).add(each.partition)
    del places[None]
    assert {1} == {len(each) for each in places.values()}
    assert 1 < len(set().union(*places.values()))


@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("console-consumer: what was written natively")
async def test_console_consumer_reads_native_messages(
    java: Tool, bootstrap: str, native_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    sent = await send_natively(native_url, topic, 20)
    options = ("--formatter-property", "print.headers=true")
    lines = await asyncio.to_thread(console_consumer, java, bootstrap, topic, len(sent), *options)
    expected = []
    for each in sorted(sent, key=by_id):
        headers = ",".join(f"{name}:{value.decode()}" for name, value in each.sample.headers)
        key = "null" if each.sample.key is None else each.sample.key.decode()
        assert each.sample.value is not None
        expected.append(f"{headers or 'NO_HEADERS'}\t{key}\t{each.sample.value.decode()}")
    assert expected == lines


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("commits and native acknowledgements leave each other alone")
async def test_commits_and_cursors_do_not_influence_each_other(
    bootstrap: str, native_url: str, make_topic: MakeTopic, group: str
) -> None:
    """Even under one name: what one side has read, skipped or deleted is nothing to the other."""
    topic = make_topic()
    await send_confluent(bootstrap, topic, "lz4")
    place = TopicPartition(topic, 0)
    count = len(RECORDS)

    def committed() -> int:
        with test_confluent_kafka.consuming(bootstrap, group=group) as reader:
            return int(reader.committed([place], timeout=WAIT_S)[0].offset)

    def commit(offset: int) -> None:
        with test_confluent_kafka.consuming(bootstrap, group=group) as reader:
            reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    async with kledger.connect(native_url) as client:
        consumer = await client.subscribe(topic, group, initial_position="earliest")
        await asyncio.to_thread(commit, 50)
        first = [await consumer.receive(timeout_ms=WAIT_MS) for _ in range(10)]
        assert list(range(10)) == [each.offset for each in first]
        assert count == (await client.subscription_stats(topic, group)).backlog
        await consumer.acknowledge_cumulative(first[-1])
        assert 50 == await asyncio.to_thread(committed)
        await consumer.close()
        await client.clear_backlog(topic, group)
        assert 50 == await asyncio.to_thread(committed)
        await asyncio.to_thread(commit, 3)
        assert 0 == (await client.subscription_stats(topic, group)).backlog
        await client.reset_subscription(topic, group, "earliest")
        assert 3 == await asyncio.to_thread(committed)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_consumer_groups([group])[group].result(WAIT_S)
        assert [group] == await client.subscriptions(topic)
        assert count == (await client.subscription_stats(topic, group)).backlog


@pytest.mark.workers("native clients are led to each leader")
@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("records that DeleteRecords removed reach no native subscription")
async def test_deleted_records_reach_no_subscription(
    bootstrap: str, native_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    await send_confluent(bootstrap, topic, "zstd")
    async with kledger.connect(native_url) as client:
        await client.create_subscription(topic, "slow", "earliest")
        with leader_client(bootstrap, topic) as raw:
            assert (47, 0) == raw.delete_records(topic, 47)
        assert len(RECORDS) - 47 == (await client.subscription_stats(topic, "slow")).backlog
    for name in ("slow", "new"):
        async with subscribed(native_url, topic, subscription=name) as consumer:
            found = await receive(consumer, len(RECORDS) - 47)
            assert list(range(47, len(RECORDS))) == [each.offset for each in found]


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("a terminated topic refuses records, and is read to its end")
async def test_terminated_topic_refuses_kafkas_producers(
    bootstrap: str, native_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    await send_confluent(bootstrap, topic, "none")
    async with kledger.connect(native_url) as client:
        await client.terminate(topic)
    with pytest.raises(AssertionError, match="POLICY_VIOLATION"):
        await send_confluent(bootstrap, topic, "none")
    assert len(RECORDS) == len(await read_confluent(bootstrap, topic, len(RECORDS)))


@pytest.mark.workers("native clients are led to each leader")
@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("of transactions, native consumers and readers see what is committed")
async def test_native_clients_see_what_is_committed(
    bootstrap: str, native_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    options = {"bootstrap.servers": bootstrap, "linger.ms": 0}
    lasting = {**options, "transaction.timeout.ms": WAIT_MS}
    producers = [Producer({**lasting, "transactional.id": f"{topic}-{each}"}) for each in "ab"]
    plain = Producer(options)
    committed: list[bytes] = []

    def write(producer: Producer, value: bytes) -> None:
        producer.produce(topic, value)
        assert 0 == producer.flush(WAIT_S)

    def transact() -> None:
        """Two at a time, of which some are aborted, and records of no transaction between them."""
        for producer in producers:
            producer.init_transactions(WAIT_S)
        for round_ in range(6):
            ends = [round_ % 2 == 0, round_ % 3 == 0]
            for producer in producers:
                producer.begin_transaction()
            for number in range(3):
                for producer, is_commit in zip(producers, ends, strict=True):
                    value = b"%d.%d.%d" % (round_, number, is_commit)
                    write(producer, value)
                    committed.extend([value] if is_commit else [])
                write(plain, b"%d.%d plain" % (round_, number))
                committed.append(b"%d.%d plain" % (round_, number))
            for producer, is_commit in zip(producers, ends, strict=True):
                end = producer.commit_transaction if is_commit else producer.abort_transaction
                end(WAIT_S)

    def leave_open() -> None:
        producers[0].begin_transaction()
        write(producers[0], b"open")
        write(plain, b"behind")

    async with kledger.connect(native_url) as client:
        reader = await client.create_reader(topic, "earliest")
        async with subscribed(native_url, topic, consumer_type="shared") as consumer:
            await asyncio.to_thread(transact)
            await asyncio.to_thread(leave_open)
            found = await receive(consumer, len(committed))
            assert committed == [each.value for each in found]
            for each in found:
                await consumer.acknowledge(each)
            assert 0 == (await client.subscription_stats(topic, "native")).backlog
            read = [(await reader.read_next(timeout_ms=WAIT_MS)).value for _ in committed]
            assert committed == read
            assert not await reader.has_message_available()
            await asyncio.to_thread(producers[0].commit_transaction, WAIT_S)
            assert [b"open", b"behind"] == [each.value for each in await receive(consumer, 2)]
            assert await reader.has_message_available()
