"""Changes of topics over `controller_mutation_rate`, as Apache Kafka 4.3 answers them (KIP-599)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kledger.gateway.quotas.quota_state import CLIENT_ID
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from kledger.gateway.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.wire_client import WireClient

UNKNOWN_TOPIC, EXISTS, INVALID_PARTITIONS, QUOTA_EXCEEDED = 3, 36, 37, 89
SAVED = 11
"""Partitions that may be changed at once at the rate of 1: all samples of Kafka's window."""


def create(*names: str, partitions: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ],
        validate_only=validate_only,
    )


def delete(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], topic_names=list(names)
    )


def grow(name: str, count: int, *, validate_only: bool = False) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], validate_only=validate_only)


async def codes(client: WireClient, request: Any, version: int) -> tuple[list[int], int]:
    """Ask; return the error codes and the throttle time."""
    answer = await client.ask(request, version)
    for name in ("topics", "responses", "results"):
        if hasattr(answer, name):
            return [one.error_code for one in getattr(answer, name)], answer.throttle_time_ms
    raise AssertionError(answer)


@asynccontextmanager
async def spent(partitions: int = SAVED) -> AsyncIterator[tuple[RunningGateway, WireClient]]:
    """A client that may change one partition a second, and has made a topic `full`."""
    async with running_gateway() as gateway, gateway.client() as client:
        quotas = {"controller_mutation_rate": 1.0}
        await gateway.services.quotas.put(((CLIENT_ID, "test"),), quotas)
        assert ([0], 0) == await codes(client, create("full", partitions=partitions), 7)
        yield gateway, client


async def test_strict_versions_refuse_each_change_while_there_is_debt() -> None:
    async with spent(SAVED - 1) as (gateway, client):
        assert ([0, QUOTA_EXCEEDED, QUOTA_EXCEEDED], 1_000) == await codes(
            client, create("a", "b", "c", partitions=2), 7
        )
        assert gateway.services.registry.get("a") is not None
        assert gateway.services.registry.get("b") is None


@pytest.mark.parametrize(
    ("request_", "strict_since"),
    [(create("a", partitions=3), 6), (delete("full"), 5), (grow("full", SAVED + 6), 3)],
)
async def test_old_versions_are_served_and_throttled(request_: Any, strict_since: int) -> None:
    async with spent(SAVED + 2) as (gateway, client):
        size = {6: 3, 5: SAVED + 2, 3: 4}[strict_since]
        assert ([QUOTA_EXCEEDED], 2_000) == await codes(client, request_, strict_since)
        gateway.clock.advance(2_000)
        answered = await codes(client, request_, strict_since - 1)
        assert ([0], size * 1_000) == answered


async def test_the_connection_is_throttled_as_long_as_answered() -> None:
    async with spent(SAVED + 2) as (gateway, client):
        assert 2_000 == (await codes(client, create("a"), 7))[1]
        waiting = asyncio.ensure_future(codes(client, create("a"), 7))
        gateway.clock.advance(1_999)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        gateway.clock.advance(1)
        assert ([0], 0) == await waiting


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (create("a", partitions=2, validate_only=True), 7),
        (grow("full", SAVED + 2, validate_only=True), 3),
    ],
)
async def test_what_is_only_checked_counts(request_: Any, version: int) -> None:
    async with spent() as (gateway, client):
        assert ([0], 0) == await codes(client, request_, version)
        assert ([QUOTA_EXCEEDED], 2_000) == await codes(client, create("b"), 7)
        assert 1 == len(gateway.services.registry.all())


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (create("full"), 7, EXISTS),
        (create("x", partitions=0), 7, INVALID_PARTITIONS),
        (delete("nope"), 6, UNKNOWN_TOPIC),
        (grow("full", 1), 3, INVALID_PARTITIONS),
        (grow("nope", 1), 3, UNKNOWN_TOPIC),
    ],
)
async def test_invalid_changes_are_reported_and_not_counted(
    request_: Any, version: int, code: int
) -> None:
    async with spent(SAVED + 1) as (gateway, client):
        assert ([code], 0) == await codes(client, request_, version)
        gateway.clock.advance(1_000)
        assert ([0], 0) == await codes(client, create("a"), 7)


async def test_topics_are_not_created_by_metadata_over_the_quota() -> None:
    """As in Apache Kafka the answer only says that there are none."""
    async with spent() as (gateway, client):
        asked = [MetadataRequestTopic(name=f"auto{number}") for number in range(3)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
        for codes_then in ([0, UNKNOWN_TOPIC, UNKNOWN_TOPIC], [0, 0, UNKNOWN_TOPIC]):
            answer = await client.ask(request, 12)
            assert (codes_then, 0) == (
                [one.error_code for one in answer.topics], answer.throttle_time_ms,
            )  # fmt: skip
            gateway.clock.advance(1_000)


async def test_other_clients_are_not_limited() -> None:
    async with spent(SAVED + 5) as (_, client):
        for client_id in ("other", None):
            client.send(create(f"of-{client_id}", partitions=50), 7, client_id=client_id)
            assert 0 == (await client.receive()).topics[0].error_code
