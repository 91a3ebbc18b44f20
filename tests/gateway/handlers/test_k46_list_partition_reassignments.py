"""ListPartitionReassignments, as Apache Kafka 4.3 answers when nothing moves."""

import pytest

from kledger.gateway.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.gateway.running import running_gateway


@pytest.mark.parametrize("name", [None, "t", "nowhere"])
async def test_nothing_is_on_the_move(name: str | None) -> None:
    topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0])] if name else None
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        answer = await client.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (0, None, []) == (answer.error_code, answer.error_message, answer.topics)
