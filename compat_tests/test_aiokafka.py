"""aiokafka: asyncio client in Python with its own codec and its own older versions of the APIs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from compat_tests.conftest import MakeTopic
from compat_tests.deadlines import QUICK_GROUP, WAIT_S
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample, samples

pytestmark = pytest.mark.peer("aiokafka")


@asynccontextmanager
async def producing(bootstrap: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A started producer."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(
    bootstrap: str, *topics: str, group: str | None = None, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer that reads from the beginning and commits only on request."""
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **QUICK_GROUP}
    consumer = AIOKafkaConsumer(
        *topics, bootstrap_servers=bootstrap, group_id=group, **(defaults | options)
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def administering(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def send_all(
    producer: AIOKafkaProducer, topic: str, records: list[Sample], partition: int | None = 0
) -> None:
    """Send and wait for every acknowledgement."""
    sent = [
        await producer.send(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp_ms=record.timestamp_ms,
            partition=partition,
        )
        for record in records
    ]
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*sent)


async def receive(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    """Take so many records."""
    async with asyncio.timeout(WAIT_S):
        return [await consumer.getone() for _ in range(count)]


def as_sample(record: ConsumerRecord[Any, Any]) -> Sample:
    """See a received record as one that was sent."""
    return Sample(
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
    )


@pytest.mark.feature("produce and consume, {codec}: keys, headers, timestamps, nulls")
@pytest.mark.parametrize("codec", CODECS)
async def test_round_trip_gives_back_the_same(bootstrap: str, topic: str, codec: str) -> None:
    records = samples(300)
    async with producing(bootstrap, compression_type=None if codec == "none" else codec) as p:
        await send_all(p, topic, records)
    async with consuming(bootstrap, topic) as consumer:
        received = await receive(consumer, len(records))
    assert records == [as_sample(record) for record in received]
    assert list(range(len(records))) == [record.offset for record in received]


@pytest.mark.workers("partitions of several leaders")
@pytest.mark.feature("idempotent producer")
async def test_idempotent_producer_keeps_order(bootstrap: str, make_topic: MakeTopic) -> None:
    name, records = make_topic(partitions=3), samples(200)
    async with producing(bootstrap, enable_idempotence=True, max_batch_size=400) as producer:
        for partition in range(3):
            await send_all(producer, name, records, partition)
    async with consuming(bootstrap, name) as consumer:
        received = await receive(consumer, 3 * len(records))
    for partition in range(3):
        assert records == [as_sample(r) for r in received if r.partition == partition]


@pytest.mark.feature("acks 0 and 1")
@pytest.mark.parametrize("acks", [0, 1])
async def test_weaker_acknowledgement_stores_records(bootstrap: str, topic: str, acks: int) -> None:
    records = samples(50)
    async with producing(bootstrap, acks=acks) as producer:
        await send_all(producer, topic, records)
    async with consuming(bootstrap, topic) as consumer:
        assert records == [as_sample(r) for r in await receive(consumer, len(records))]


@pytest.mark.feature("group: commit and resume")
async def test_group_resumes_behind_the_commit(bootstrap: str, topic: str, group: str) -> None:
    records = samples(100)
    async with producing(bootstrap) as producer:
        await send_all(producer, topic, records)
    place = TopicPartition(topic, 0)
    async with consuming(bootstrap, topic, group=group) as consumer:
        await receive(consumer, 60)
        await consumer.commit({place: (40, "forty")})
    async with consuming(bootstrap, topic, group=group) as consumer:
        received = await receive(consumer, 60)
        assert await consumer.committed(place) == 40
    assert records[40:] == [as_sample(record) for record in received]


@pytest.mark.workers("the coordinator of its group may lead none of its partitions")
@pytest.mark.feature("group: two members share, one takes over")
async def test_group_rebalances_between_two(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name = make_topic(partitions=4)
    async with consuming(bootstrap, name, group=group) as first:
        await until_assigned(first, 4)
        async with consuming(bootstrap, name, group=group) as second:
            await until_assigned(first, 2)
            await until_assigned(second, 2)
            assert not first.assignment() & second.assignment()
        await until_assigned(first, 4)


async def until_assigned(consumer: AIOKafkaConsumer, count: int) -> None:
    """Poll until the consumer holds so many partitions."""
    async with asyncio.timeout(WAIT_S):
        while len(consumer.assignment()) != count:
            await consumer.getmany(timeout_ms=100)


@pytest.mark.feature("offsets: beginning, end, by timestamp")
async def test_offsets_by_timestamp_find_the_record(bootstrap: str, topic: str) -> None:
    async with producing(bootstrap) as producer:
        await send_all(producer, topic, samples(50))
    place = TopicPartition(topic, 0)
    async with consuming(bootstrap, topic) as consumer:
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 50}
        between = FIRST_TIMESTAMP_MS + 20 * STEP_MS - 1
        found = (await consumer.offsets_for_times({place: between}))[place]
        assert found is not None
        assert (found.offset, found.timestamp) == (20, between + 1)
        late = FIRST_TIMESTAMP_MS + 50 * STEP_MS
        assert await consumer.offsets_for_times({place: late}) == {place: None}


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("admin: create, describe, delete topics; add partitions")
async def test_admin_manages_topics(bootstrap: str, topic: str) -> None:
    async with administering(bootstrap) as admin:
        new = NewTopic(topic, num_partitions=2, replication_factor=1)
        created = await admin.create_topics([new])
        assert created.topic_errors[0][1] == 0
        assert (await admin.create_topics([new])).topic_errors[0][1] == 36
        assert topic in await admin.list_topics()
        await admin.create_partitions({topic: NewPartitions(total_count=5)})
        (described,) = await admin.describe_topics([topic])
        assert sorted(p["partition"] for p in described["partitions"]) == list(range(5))
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()


@pytest.mark.feature("admin: describe and alter configs")
async def test_admin_changes_a_config(bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic(retention_ms="60000")
    async with administering(bootstrap) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        assert (await config_of(admin, resource))["retention.ms"] == "60000"
        changed = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "70000"})
        await admin.alter_configs([changed])
        assert (await config_of(admin, resource))["retention.ms"] == "70000"


async def config_of(admin: AIOKafkaAdminClient, resource: ConfigResource) -> dict[str, str]:
    """Give names and values of a resource's configuration."""
    (answer,) = await admin.describe_configs([resource])
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


@pytest.mark.feature("admin: delete records")
async def test_admin_deletes_records(bootstrap: str, topic: str) -> None:
    async with producing(bootstrap) as producer:
        await send_all(producer, topic, samples(30))
    place = TopicPartition(topic, 0)
    async with administering(bootstrap) as admin:
        await admin.delete_records({place: RecordsToDelete(before_offset=10)})
    async with consuming(bootstrap, topic) as consumer:
        assert await consumer.beginning_offsets([place]) == {place: 10}
        assert (await receive(consumer, 1))[0].offset == 10


@pytest.mark.workers("the coordinator of its group may lead none of its partitions")
@pytest.mark.feature("admin: list and describe groups, their offsets")
async def test_admin_describes_a_group(bootstrap: str, topic: str, group: str) -> None:
    async with producing(bootstrap) as producer:
        await send_all(producer, topic, samples(5))
    async with administering(bootstrap) as admin:
        async with consuming(bootstrap, topic, group=group) as consumer:
            await receive(consumer, 5)
            await consumer.commit()
            (answer,) = await admin.describe_consumer_groups([group])
            assert answer.groups[0][2] == "Stable"
        assert (group, "consumer") in await admin.list_consumer_groups()
        offsets = await admin.list_consumer_group_offsets(group)
        assert offsets[TopicPartition(topic, 0)].offset == 5
