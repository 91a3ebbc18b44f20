"""AlterPartitionReassignments, as Apache Kafka 4.3 answers on one node."""

import pytest

from kledger.gateway.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.gateway.running import running_gateway

NONE, UNKNOWN_TOPIC, INVALID_ASSIGNMENT, NONE_IN_PROGRESS = 0, 3, 39, 85


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("name", "index", "replicas", "code"),
    [
        ("t", 0, [1], NONE),
        ("t", 1, [1], UNKNOWN_TOPIC),
        ("t", -1, None, UNKNOWN_TOPIC),
        ("nowhere", 0, [1], UNKNOWN_TOPIC),
        ("nowhere", 0, None, UNKNOWN_TOPIC),
        ("t", 0, None, NONE_IN_PROGRESS),
        ("t", 0, [], INVALID_ASSIGNMENT),
        ("t", 0, [2], INVALID_ASSIGNMENT),
        ("t", 0, [1, 2], INVALID_ASSIGNMENT),
        ("t", 0, [1, 1], INVALID_ASSIGNMENT),
        ("t", 0, [-1], INVALID_ASSIGNMENT),
    ],
)
async def test_a_partition_belongs_on_the_one_node(
    *, name: str, index: int, replicas: list[int] | None, code: int, version: int
) -> None:
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        answer = await client.ask(
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=name, partitions=[partition])]
            ),
            version,
        )
        (topic,) = answer.responses
        (outcome,) = topic.partitions
        assert (0, name, index, code) == (
            answer.error_code,
            topic.name,
            outcome.partition_index,
            outcome.error_code,
        )
        assert (code in (NONE, NONE_IN_PROGRESS)) == (outcome.error_message is None)


async def test_what_was_said_about_the_factor_is_said_back() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        for said in (False, True):
            request = AlterPartitionReassignmentsRequest(allow_replication_factor_change=said)
            assert said == (await client.ask(request, 1)).allow_replication_factor_change
