"""CreatePartitions; rows 28 and 32 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, batch, produce, running_gateway

UNKNOWN_TOPIC, INVALID_PARTITIONS, INVALID_ASSIGNMENT, INVALID_REQUEST, STORAGE = 3, 37, 39, 42, 56


def to(
    count: int, name: str = "t", assigned: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    assignments = (
        None
        if assigned is None
        else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned]
    )
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


async def create(
    gateway: RunningGateway,
    *topics: CreatePartitionsTopic,
    version: int = 3,
    validate_only: bool = False,
) -> list[CreatePartitionsTopicResult]:
    async with gateway.client() as client:
        request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
        results: list[CreatePartitionsTopicResult] = (await client.ask(request, version)).results
        return results


@pytest.mark.parametrize("version", range(4))
async def test_row_32_fewer_same_more(version: int) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", partitions=3)
        for count, code, after in (
            (2, INVALID_PARTITIONS, 3),
            (3, INVALID_PARTITIONS, 3),
            (0, INVALID_PARTITIONS, 3),
            (-1, INVALID_PARTITIONS, 3),
            (5, 0, 5),
        ):
            (result,) = await create(gateway, to(count), version=version)
            assert ("t", code, after) == (result.name, result.error_code, topic.partition_count)
            assert (result.error_message is None) == (code == 0)


async def test_row_32_new_partitions_are_in_metadata_and_take_records_at_once() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        await create(gateway, to(3))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        (topic,) = (await client.ask(request, 12)).topics
        assert [0, 1, 2] == [each.partition_index for each in topic.partitions]
        response = await client.ask(produce({2: batch(b"x")}), 9)
        (partition,) = response.responses[0].partition_responses
        assert (0, 0) == (partition.error_code, partition.base_offset)


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (to(9, "nowhere"), UNKNOWN_TOPIC),
        (to(9, "a b"), UNKNOWN_TOPIC),
        (to(9, ""), UNKNOWN_TOPIC),
        (to(1), INVALID_PARTITIONS),
        (to(2, assigned=[]), INVALID_PARTITIONS),
        (to(3, assigned=[]), INVALID_ASSIGNMENT),
        (to(3, assigned=[[]]), INVALID_ASSIGNMENT),
        (to(3, assigned=[[2]]), INVALID_ASSIGNMENT),
        (to(3, assigned=[[1, 1]]), INVALID_ASSIGNMENT),
        (to(3, assigned=[[1], [1]]), INVALID_ASSIGNMENT),
        (to(5, assigned=[[1]]), INVALID_ASSIGNMENT),
    ],
)
async def test_row_28_wrong_topic_is_refused_and_its_neighbour_grown(
    asked: CreatePartitionsTopic, code: int, *, validate_only: bool
) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t", partitions=2)
        neighbour = await gateway.create_topic("neighbour")
        refused, grown = await create(
            gateway, asked, to(2, "neighbour"), validate_only=validate_only
        )
        assert (asked.name, code) == (refused.name, refused.error_code)
        assert refused.error_message
        assert ("neighbour", 0, None) == (grown.name, grown.error_code, grown.error_message)
        assert (2, 1 if validate_only else 2) == (topic.partition_count, neighbour.partition_count)


async def test_row_32_assignments_to_this_node() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        (result,) = await create(gateway, to(3, assigned=[[1], [1]]))
        assert (0, 3) == (result.error_code, topic.partition_count)


async def test_row_28_a_name_that_stands_twice_is_refused_once() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        await gateway.create_topic("b")
        results = await create(gateway, to(3), to(2, "b"), to(3))
        assert [("t", INVALID_REQUEST), ("b", 0)] == [(r.name, r.error_code) for r in results]
        assert 1 == topic.partition_count


async def test_partitions_are_there_after_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await gateway.create_topic("t", configs={"retention.ms": "5"})
        await create(gateway, to(3))
    async with running_gateway(engine=engine) as gateway:
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert (3, {"retention.ms": "5"}) == (topic.partition_count, topic.configs)


async def test_storage_that_fails_adds_nothing() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        gateway.engine.fail_next("commit")
        (failed,) = await create(gateway, to(3))
        assert (STORAGE, 1) == (failed.error_code, topic.partition_count)
