"""DeleteTopics; rows 24 and 28 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import asyncio
from uuid import UUID

import pytest

from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kledger.gateway.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, fetch, running_gateway
from tests.gateway.wire_client import WireClient

UNKNOWN_TOPIC, INVALID_REQUEST, STORAGE, UNKNOWN_ID = 3, 42, 56, 100
UNKNOWN = UUID(int=99)


def named(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


def by_id(topic_id: UUID) -> DeleteTopicState:
    return DeleteTopicState(name=None, topic_id=topic_id)


async def delete(
    gateway: RunningGateway, *states: DeleteTopicState, version: int = 6
) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=list(states))
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[state.name or "" for state in states])
    async with gateway.client() as client:
        results: list[DeletableTopicResult] = (await client.ask(request, version)).responses
        return results


def names(gateway: RunningGateway) -> list[str]:
    return [topic.name for topic in gateway.services.registry.all()]


def outcomes(results: list[DeletableTopicResult]) -> list[tuple[str | None, UUID, int]]:
    return [(each.name, each.topic_id, each.error_code) for each in results]


@pytest.mark.parametrize("version", range(1, 7))
async def test_row_28_every_name_is_answered_in_order(version: int) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("a")
        await gateway.create_topic("stays")
        results = await delete(
            gateway, named("x"), named("a"), named("b b"), named("a2"), version=version
        )
        topic_id = topic.id if version >= 6 else ZERO_UUID
        assert [
            ("x", ZERO_UUID, UNKNOWN_TOPIC),
            ("a", topic_id, 0),
            ("b b", ZERO_UUID, UNKNOWN_TOPIC),
            ("a2", ZERO_UUID, UNKNOWN_TOPIC),
        ] == outcomes(results)
        assert ["stays"] == names(gateway)


async def test_row_28_topics_by_id() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("a")
        results = await delete(gateway, by_id(UNKNOWN), by_id(topic.id))
        assert [(None, UNKNOWN, UNKNOWN_ID), ("a", topic.id, 0)] == outcomes(results)
        assert [] == names(gateway)


async def test_row_28_neither_or_both_of_name_and_id_is_refused() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("a")
        both = DeleteTopicState(name="a", topic_id=topic.id)
        results = await delete(gateway, both, DeleteTopicState(name=None))
        assert [("a", topic.id, INVALID_REQUEST), (None, ZERO_UUID, INVALID_REQUEST)] == outcomes(
            results
        )
        assert ["a"] == names(gateway)


async def test_row_28_a_topic_asked_for_twice_is_refused_once() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("a")
        other = await gateway.create_topic("b")
        twice: list[tuple[list[DeleteTopicState], tuple[str | None, UUID]]] = [
            ([named("a"), named("a")], ("a", ZERO_UUID)),
            ([by_id(topic.id), by_id(topic.id)], (None, topic.id)),
            ([by_id(topic.id), named("a")], ("a", topic.id)),
            ([by_id(UNKNOWN), by_id(UNKNOWN)], (None, UNKNOWN)),
        ]
        for states, (name, topic_id) in twice:
            results = await delete(gateway, *states)
            assert [(name, topic_id, INVALID_REQUEST)] == outcomes(results)
        assert ["a", "b"] == names(gateway)
        results = await delete(gateway, named("a"), named("b"), named("a"))
        assert [("a", ZERO_UUID, INVALID_REQUEST), ("b", other.id, 0)] == outcomes(results)
        assert ["a"] == names(gateway)


async def test_row_24_recreated_topic_has_a_new_id_and_no_records() -> None:
    async with running_gateway() as gateway:
        old = await gateway.create_topic("a")
        await delete(gateway, named("a"))
        recreated = await gateway.create_topic("a")
        assert old.id != recreated.id
        ((name, _, code),) = outcomes(await delete(gateway, by_id(old.id)))
        assert (None, UNKNOWN_ID) == (name, code)
        assert ["a"] == names(gateway)


async def test_deletion_wakes_a_fetch_that_waits() -> None:
    async with running_gateway() as gateway, gateway.client() as reader:
        await gateway.create_topic("t")
        reader.send(fetch({0: 0}, max_wait_ms=60_000), 12)
        await gateway.parked()
        assert 0 == (await delete(gateway, named("t")))[0].error_code
        response = await reader.receive()
        assert UNKNOWN_TOPIC == response.responses[0].partitions[0].error_code


async def commit(client: WireClient, topic: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    response = await client.ask(
        OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        ),
        8,
    )
    assert 0 == response.topics[0].partitions[0].error_code


async def committed(client: WireClient, topic: str) -> int:
    response = await client.ask(
        OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        ),
        7,
    )
    offset: int = response.topics[0].partitions[0].committed_offset
    return offset


async def test_committed_offsets_go_with_the_topic_for_good() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        await gateway.create_topic("a")
        await gateway.create_topic("b")
        await commit(client, "a", 3)
        await commit(client, "b", 4)
        await delete(gateway, named("a"))
        await gateway.create_topic("a")
        assert (-1, 4) == (await committed(client, "a"), await committed(client, "b"))
        offsets = gateway.services.groups.offsets
        assert {"b"} == {place.topic for place in offsets.all_committed("g")}
    async with running_gateway(engine=engine) as gateway:
        offsets = gateway.services.groups.offsets
        assert {"b"} == {place.topic for place in offsets.all_committed("g")}


async def test_deletion_survives_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await gateway.create_topic("a", partitions=2)
        await gateway.create_topic("b")
        await delete(gateway, named("a"))
    async with running_gateway(engine=engine) as gateway:
        assert ["b"] == names(gateway)


async def test_storage_that_fails_deletes_nothing() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        topic = await gateway.create_topic("a")
        await commit(client, "a", 3)
        engine.fail_next("commit")
        assert [("a", ZERO_UUID, STORAGE)] == outcomes(await delete(gateway, named("a")))
        assert topic is gateway.services.registry.get("a")
        assert 3 == await committed(client, "a")
    async with running_gateway(engine=engine) as gateway:
        assert ["a"] == names(gateway)


async def test_of_two_deletions_by_id_at_once_one_finds_nothing() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        topic = await gateway.create_topic("a")
        hold = engine.hold_next("commit")
        first = asyncio.ensure_future(delete(gateway, by_id(topic.id)))
        await hold.reached()
        making = asyncio.ensure_future(gateway.create_topic("a"))
        second = asyncio.ensure_future(delete(gateway, by_id(topic.id)))
        hold.release()
        assert [("a", topic.id, 0)] == outcomes(await first)
        await making
        assert [(None, topic.id, UNKNOWN_ID)] == outcomes(await second)
        assert ["a"] == names(gateway)
