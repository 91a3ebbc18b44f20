"""Metadata; rows 18 to 24 of docs/SCENARIOS.md."""

from uuid import UUID

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.gateway.running import running_gateway

LATEST = 13
INT_MIN = -(2**31)


def ask(*names: str, **fields: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def names(response: MetadataResponse) -> list[str]:
    return sorted(topic.name or "" for topic in response.topics)


async def test_row_18_19_which_list_means_all_topics() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("a")
        await gateway.create_topic("b", partitions=3)
        assert ["a", "b"] == names(await client.ask(MetadataRequest(topics=[]), 0))
        for version in range(1, LATEST + 1):
            assert ["a", "b"] == names(await client.ask(MetadataRequest(topics=None), version))
            assert [] == names(await client.ask(MetadataRequest(topics=[]), version))


@pytest.mark.parametrize("version", range(LATEST + 1))
async def test_every_version_names_broker_cluster_and_leaders(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic("a", partitions=2)
        response = await client.ask(ask("a"), version)
        (broker,) = response.brokers
        assert (1, "127.0.0.1", gateway.port) == (broker.node_id, broker.host, broker.port)
        if version >= 1:
            assert 1 == response.controller_id
        if version >= 2:
            assert "cluster-for-tests-0000" == response.cluster_id
        (found,) = response.topics
        assert (0, "a", False) == (found.error_code, found.name, found.is_internal)
        if version >= 10:
            assert topic.id == found.topic_id
        for index, partition in enumerate(found.partitions):
            assert (0, index, 1) == (
                partition.error_code,
                partition.partition_index,
                partition.leader_id,
            )
            assert [1] == partition.replica_nodes == partition.isr_nodes
            assert [] == partition.offline_replicas
            assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert 2 == len(found.partitions)


@pytest.mark.parametrize("version", range(LATEST + 1))
async def test_row_20_missing_topic_is_created_before_the_answer(version: int) -> None:
    config = GatewayConfig(num_partitions=3)
    async with running_gateway(config) as gateway, gateway.client() as client:
        for _ in range(2):
            (found,) = (await client.ask(ask("new"), version)).topics
            assert (0, "new", 3) == (found.error_code, found.name, len(found.partitions))
        assert [3] == [topic.partition_count for topic in gateway.services.registry.all()]


async def test_row_20_nothing_is_created_when_request_or_server_forbids_it() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        response = await client.ask(ask("new", allow_auto_topic_creation=False), 12)
        assert 3 == response.topics[0].error_code
    config = GatewayConfig(auto_create_topics_enable=False)
    async with running_gateway(config) as gateway, gateway.client() as client:
        assert 3 == (await client.ask(ask("new"), 12)).topics[0].error_code
        assert [] == gateway.services.registry.all()


async def test_several_clients_create_the_same_topic_at_once() -> None:
    async with running_gateway() as gateway:
        async with gateway.client() as one, gateway.client() as two:
            for client in (one, two):
                client.send(ask("new", "newer"), 12)
            answers = [await client.receive() for client in (one, two)]
        codes = [topic.error_code for answer in answers for topic in answer.topics]
        assert [0, 0, 0, 0] == codes


async def test_row_21_invalid_names_are_refused_and_others_answered() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        response = await client.ask(ask("a b", "", "x" * 250, "..", "good"), 9)
        codes = [topic.error_code for topic in response.topics]
        assert [17, 17, 17, 17, 0] == codes
        assert "a b" == response.topics[0].name


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_row_22_authorized_operations_only_on_request(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("a")
        response = await client.ask(ask("a"), version)
        assert INT_MIN == response.cluster_authorized_operations
        assert INT_MIN == response.topics[0].topic_authorized_operations
        request = ask(
            "a",
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        response = await client.ask(request, version)
        assert response.cluster_authorized_operations > 0
        assert response.topics[0].topic_authorized_operations > 0


@pytest.mark.parametrize("version", [12, 13])
async def test_row_23_topics_by_id(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic("a")
        request = MetadataRequest(
            topics=[
                MetadataRequestTopic(topic_id=topic.id, name=None),
                MetadataRequestTopic(topic_id=UUID(int=99), name=None),
            ]
        )
        known, unknown = (await client.ask(request, version)).topics
        assert (0, "a", topic.id) == (known.error_code, known.name, known.topic_id)
        assert (100, None, UUID(int=99)) == (unknown.error_code, unknown.name, unknown.topic_id)


async def test_row_24_32_answers_follow_the_topic() -> None:
    """The cached part of a topic must not outlive its content."""
    async with running_gateway() as gateway, gateway.client() as client:
        registry = gateway.services.registry
        topic = await gateway.create_topic("a")
        assert 1 == len((await client.ask(ask("a"), 12)).topics[0].partitions)
        await registry.create_partitions("a", 4)
        assert 4 == len((await client.ask(ask("a"), 12)).topics[0].partitions)
        await registry.delete("a")
        await registry.create("a", partitions=1, configs={})
        (found,) = (await client.ask(ask("a"), 12)).topics
        assert 1 == len(found.partitions)
        assert topic.id != found.topic_id


async def test_row_18_32_all_topics_are_the_current_ones() -> None:
    """The parts of all topics are cached together, and must not outlive a change of any."""
    everything = MetadataRequest(topics=None)

    async def listed(version: int) -> list[tuple[str | None, int]]:
        response = await client.ask(everything, version)
        return [(topic.name, len(topic.partitions)) for topic in response.topics]

    async with running_gateway() as gateway, gateway.client() as client:
        registry = gateway.services.registry
        for version in (1, 12, 12, 1):
            assert [] == await listed(version)
        await gateway.create_topic("a")
        await gateway.create_topic("b")
        for version in (12, 12, 1):
            assert [("a", 1), ("b", 1)] == await listed(version)
        await registry.create_partitions("a", 4)
        assert [("a", 4), ("b", 1)] == await listed(12)
        await registry.delete("b")
        assert [("a", 4)] == await listed(12)
