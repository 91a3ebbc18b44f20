"""A client that changes something at one broker, and at once something of it at another."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kledger.gateway.cluster import CATCH_UP_MS
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from kledger.gateway.wire.messages.k33_alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from kledger.gateway.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kledger.gateway.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig as ConfigChange,
)
from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)
from kledger.gateway.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.ledger import AlreadyClosed, StorageFailed
from kledger.ledger.shared_tables import SharedTables
from tests.gateway.running import batch, produce, running_brokers, until

TOPIC = 2
ELECTION_NOT_NEEDED = 84


def look_only_when_needed(patched: pytest.MonkeyPatch) -> None:
    """From now on, do not wake brokers when others change something; their clocks stand still."""
    patched.setattr("kledger.ledger.shared_folder._Wakes.wake_others", lambda _: None)


class Asked(NamedTuple):
    """A request about the topic `t`, and the codes that the answer has if it is known."""

    request: ApiMessage
    version: int
    codes: Callable[[Any], list[int]]
    expected: int = 0


def of_responses(answer: Any) -> list[int]:
    return [each.error_code for each in answer.responses]


def of_election(answer: Any) -> list[int]:
    (topic,) = answer.replica_election_results
    return [each.error_code for each in topic.partition_result]


def of_partitions(answer: Any) -> list[tuple[int, int]]:
    """Return the error codes and base offsets of a response of Produce."""
    return [
        (each.error_code, each.base_offset)
        for topic in answer.responses
        for each in topic.partition_responses
    ]


ASKED = {
    "delete": Asked(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6, of_responses),
    "configs": Asked(
        AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="t",
                    configs=[AlterableConfig(name="retention.ms", value="5")],
                )
            ]
        ),
        2,
        of_responses,
    ),
    "incremental configs": Asked(
        IncrementalAlterConfigsRequest(
            resources=[
                ChangedResource(
                    resource_type=TOPIC,
                    resource_name="t",
                    configs=[ConfigChange(name="retention.ms", value="5")],
                )
            ]
        ),
        1,
        of_responses,
    ),
    "partitions": Asked(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)]
        ),
        3,
        lambda answer: [each.error_code for each in answer.results],
    ),
    "election": Asked(
        ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])]),
        2,
        of_election,
        ELECTION_NOT_NEEDED,
    ),
    "metadata": Asked(
        MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
        12,
        lambda answer: [each.error_code for each in answer.topics],
    ),
    "description": Asked(
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]),
        0,
        lambda answer: [each.error_code for each in answer.topics],
    ),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
async def test_a_broker_knows_what_another_one_has_just_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    """Clients create a topic at one broker, and ask another one to change it."""
    async with running_brokers(tmp_path) as (one, other):
        look_only_when_needed(monkeypatch)
        await one.services.registry.create("t", partitions=2)
        async with other.client() as client:
            answer = await client.ask(asked.request, asked.version)
            assert [asked.expected] == asked.codes(answer)


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_records_for_a_topic_that_another_broker_has_just_created_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """With acks 0 they were lost, as nobody sends them again."""
    async with running_brokers(tmp_path) as (one, other):
        look_only_when_needed(monkeypatch)
        node_id = other.services.config.node_id
        await one.services.registry.create("t", partitions=1, assigned=[node_id])
        async with other.client() as client:
            for index in (0, 1):
                request = produce({index: batch(b"a")}, acks=acks)
                client.send(request, 9, is_answered=bool(acks))
                if acks:
                    assert [(0, 0)] == of_partitions(await client.receive())
                second = await client.ask(produce({index: batch(b"b")}), 9)
                assert [(0, 1)] == of_partitions(second)
                # The broker does not know the next partition.
                await one.services.registry.create_partitions("t", index + 2, [node_id])


async def test_a_topic_that_no_broker_has_created_stays_unknown_after_one_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[SharedTables] = []
    refreshed = SharedTables.refreshed

    def counted(tables: SharedTables) -> "asyncio.Future[None]":
        polls.append(tables)
        return refreshed(tables)

    monkeypatch.setattr(SharedTables, "refreshed", counted)
    async with running_brokers(tmp_path) as (one, _), one.client() as client:
        for count in (1, 2):
            request = produce({0: batch(b"a"), 1: batch(b"b")}, topic="missing")
            assert [(3, -1)] * 2 == of_partitions(await client.ask(request, 9))
            request = produce({0: batch(b"a")}, topic_id=UUID(int=7))
            assert [(100, -1)] == of_partitions(await client.ask(request, 13))
            assert 2 * count == len(polls)


async def test_a_broker_that_hangs_does_not_keep_others_from_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lock of the shared tables, for which the next change of another broker waits."""
    waiting: list[asyncio.Future[None]] = []

    def refreshed(_: SharedTables) -> "asyncio.Future[None]":
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    monkeypatch.setattr(SharedTables, "refreshed", refreshed)
    async with running_brokers(tmp_path) as (one, _), one.client() as client:
        await one.services.registry.create("t", partitions=2)
        client.send(ASKED["metadata"].request, 12)
        await until(lambda: bool(waiting))
        one.clock.advance(CATCH_UP_MS)
        assert [0] == ASKED["metadata"].codes(await client.receive())


def fails(_: SharedTables) -> "asyncio.Future[None]":
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(StorageFailed("full"))
    return failed


def is_closed(_: SharedTables) -> "asyncio.Future[None]":
    raise AlreadyClosed("closed")


@pytest.mark.parametrize("refreshed", [fails, is_closed])
async def test_tables_that_cannot_be_read_do_not_keep_a_broker_from_answering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refreshed: Callable[[SharedTables], Any]
) -> None:
    monkeypatch.setattr(SharedTables, "refreshed", refreshed)
    async with running_brokers(tmp_path) as (one, _), one.client() as client:
        await one.services.registry.create("t", partitions=2)
        answer = await client.ask(ASKED["metadata"].request, 12)
        assert [0] == ASKED["metadata"].codes(answer)


async def test_partitions_are_counted_as_others_have_left_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_brokers(tmp_path) as (one, other):
        await one.services.registry.create("t", partitions=2)
        await until(lambda: other.services.registry.get("t") is not None)
        look_only_when_needed(monkeypatch)
        await one.services.registry.create_partitions("t", 4)
        topics = [CreatePartitionsTopic(name="t", count=4, assignments=None)]
        async with other.client() as client:
            found = await client.ask(CreatePartitionsRequest(topics=topics), 3)
            assert "currently has 4 partition(s)" in found.results[0].error_message
