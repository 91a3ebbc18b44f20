"""CreateTopics; rows 28 and 31 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

from pathlib import Path

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import RunningGateway, running_brokers, running_gateway

INVALID_TOPIC, EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION = 17, 36, 37, 38
INVALID_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, STORAGE = 39, 40, 42, 56


def new(
    name: str = "t",
    partitions: int = -1,
    replicas: int = -1,
    *,
    assigned: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assigned or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()
        ],
    )


async def create(
    gateway: RunningGateway, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    async with gateway.client() as client:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        results: list[CreatableTopicResult] = (await client.ask(request, version)).topics
        return results


def counts(gateway: RunningGateway) -> dict[str, int]:
    return {topic.name: topic.partition_count for topic in gateway.services.registry.all()}


@pytest.mark.parametrize("version", range(2, 8))
async def test_row_31_minus_one_stands_for_the_defaults(version: int) -> None:
    async with running_gateway(GatewayConfig(num_partitions=3)) as gateway:
        (result,) = await create(gateway, new("t"), version=version)
        assert (0, "t", None) == (result.error_code, result.name, result.error_message)
        assert {"t": 3} == counts(gateway)
        expected = (3, 1) if version >= 5 else (-1, -1)
        assert expected == (result.num_partitions, result.replication_factor)
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert result.topic_id == (topic.id if version >= 7 else ZERO_UUID)


async def test_row_31_configs_are_kept_and_answered_with_the_defaults() -> None:
    async with running_gateway() as gateway:
        (result,) = await create(gateway, new(configs={"retention.ms": "5"}))
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert {"retention.ms": "5"} == topic.configs
        shown = {each.name: (each.value, each.config_source) for each in result.configs or ()}
        assert ("5", 1) == shown["retention.ms"]
        assert ("delete", 5) == shown["cleanup.policy"]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (new("old"), EXISTS),
        (new("old", 0, 4, configs={"nope": "1"}), EXISTS),
        (new("old", assigned={0: [2]}), EXISTS),
        (new("a b"), INVALID_TOPIC),
        (new(""), INVALID_TOPIC),
        (new(".."), INVALID_TOPIC),
        (new("x" * 250), INVALID_TOPIC),
        (new("o.ld"), INVALID_TOPIC),
        (new("__consumer_offsets"), INVALID_TOPIC),
        (new("__cluster_metadata"), INVALID_REQUEST),
        (new(partitions=0), INVALID_PARTITIONS),
        (new(partitions=-2), INVALID_PARTITIONS),
        (new(partitions=0, replicas=4), INVALID_PARTITIONS),
        (new(replicas=3), INVALID_REPLICATION),
        (new(replicas=-2), INVALID_REPLICATION),
        (new(partitions=0, replicas=0), INVALID_REPLICATION),
        (new(configs={"nope": "1"}), INVALID_CONFIG),
        (new(configs={"retention.ms": None}), INVALID_CONFIG),
        (new(configs={"retention.ms": "soon"}), INVALID_CONFIG),
        (new(partitions=0, replicas=4, configs={"nope": "1"}), INVALID_CONFIG),
        (new(partitions=1, assigned={0: [1]}), INVALID_REQUEST),
        (new(replicas=1, assigned={0: [1]}), INVALID_REQUEST),
        (new(assigned={0: [2]}), INVALID_ASSIGNMENT),
        (new(assigned={0: []}), INVALID_ASSIGNMENT),
        (new(assigned={0: [1, 1]}), INVALID_ASSIGNMENT),
        (new(assigned={0: [1], 2: [1]}), INVALID_ASSIGNMENT),
        (new(assigned={-1: [1]}), INVALID_ASSIGNMENT),
    ],
)
async def test_row_28_31_wrong_topic_is_refused_and_its_neighbour_made(
    asked: CreatableTopic, code: int, *, validate_only: bool
) -> None:
    async with running_gateway() as gateway:
        await create(gateway, new("old", 2), new("o_ld"))
        refused, made = await create(
            gateway, asked, new("neighbour", 1), validate_only=validate_only
        )
        assert (code, asked.name) == (refused.error_code, refused.name)
        assert refused.error_message
        assert (0, "neighbour") == (made.error_code, made.name)
        existing = {"old": 2, "o_ld": 1}
        assert counts(gateway) == (existing if validate_only else existing | {"neighbour": 1})


async def test_row_31_assignments_number_the_partitions_in_any_order() -> None:
    async with running_gateway() as gateway:
        (result,) = await create(gateway, new(assigned={1: [1], 0: [1], 2: [1]}))
        assert (0, 3, 1) == (result.error_code, result.num_partitions, result.replication_factor)
        assert {"t": 3} == counts(gateway)


@pytest.mark.parametrize(
    ("asked", "code", "leaders"),
    [
        (new(partitions=2, replicas=2), ErrorCode.NONE, {1, 2}),
        (new(partitions=2, replicas=3), INVALID_REPLICATION, None),
        (new(assigned={0: [2, 1], 1: [2, 1]}), ErrorCode.NONE, {2}),
        (new(assigned={0: [2, 1], 1: [2]}), INVALID_ASSIGNMENT, None),
        (new(assigned={0: [2, 3]}), INVALID_ASSIGNMENT, None),
    ],
)
async def test_row_31_a_topic_may_have_as_many_replicas_as_there_are_brokers(
    tmp_path: Path, asked: CreatableTopic, code: int, leaders: set[int] | None
) -> None:
    """Apicurio and others ask for three if they see three; the storage has the copies."""
    async with running_brokers(tmp_path) as (one, _):
        (result,) = await create(one, asked)
        topic = one.services.registry.get("t")
        assert code == result.error_code
        assert leaders == (None if topic is None else set(topic.record.leaders))
        if topic is not None:
            assert (2, 1) == (result.num_partitions, result.replication_factor)


async def test_row_31_validate_only_makes_nothing_and_answers_as_if() -> None:
    async with running_gateway() as gateway:
        (checked,) = await create(gateway, new("t", 3), validate_only=True)
        assert (0, 3, 1) == (checked.error_code, checked.num_partitions, checked.replication_factor)
        assert {} == counts(gateway)
        (made,) = await create(gateway, new("t", 3))
        assert made.configs == checked.configs


async def test_row_28_a_name_that_stands_twice_is_refused_once() -> None:
    async with running_gateway() as gateway:
        results = await create(gateway, new("a"), new("b"), new("a", 7))
        assert [("a", INVALID_REQUEST), ("b", 0)] == [(r.name, r.error_code) for r in results]
        assert {"b": 1} == counts(gateway)


async def test_no_topics_no_answers() -> None:
    async with running_gateway() as gateway:
        assert [] == await create(gateway)


async def test_topics_are_there_after_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        (made,) = await create(gateway, new("t", 3, configs={"retention.ms": "5"}))
    async with running_gateway(engine=engine) as gateway:
        topic = gateway.services.registry.get("t")
        assert topic is not None
        assert (made.topic_id, 3, {"retention.ms": "5"}) == (
            topic.id,
            topic.partition_count,
            topic.configs,
        )


async def test_storage_that_fails_makes_nothing() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        engine.fail_next("commit")
        failed, made = await create(gateway, new("a"), new("b"))
        assert (STORAGE, 0) == (failed.error_code, made.error_code)
        assert {"b": 1} == counts(gateway)
    async with running_gateway(engine=engine) as gateway:
        assert {"b": 1} == counts(gateway)
