"""DescribeQuorum, as Apache Kafka 4.3 answers for a quorum of one."""

import pytest

from kledger.gateway.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from tests.gateway.running import START_MS, running_gateway

UNKNOWN_TOPIC = 3


def request(name: str, index: int) -> DescribeQuorumRequest:
    partitions = [PartitionData(partition_index=index)]
    return DescribeQuorumRequest(topics=[TopicData(topic_name=name, partitions=partitions)])


@pytest.mark.parametrize("version", range(3))
async def test_this_node_leads_alone(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(request("__cluster_metadata", 0), version)
        (partition,) = answer.topics[0].partitions
        (voter,) = partition.current_voters
        assert (0, 0, 1, 1) == (
            answer.error_code,
            partition.error_code,
            partition.leader_id,
            voter.replica_id,
        )
        assert partition.high_watermark == voter.log_end_offset
        assert [] == partition.observers
        if version >= 1:
            assert (START_MS, START_MS) == (
                voter.last_fetch_timestamp,
                voter.last_caught_up_timestamp,
            )
        if version >= 2:
            (node,) = answer.nodes
            (listener,) = node.listeners
            assert (1, gateway.port) == (node.node_id, listener.port)


async def test_the_end_moves_with_the_metadata() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        ends = []
        for name in "ab":
            answer = await client.ask(request("__cluster_metadata", 0), 2)
            ends.append(answer.topics[0].partitions[0].high_watermark)
            await gateway.create_topic(name)
        assert ends[0] < ends[1]


@pytest.mark.parametrize("is_topic", [True, False])
async def test_only_one_partition_can_be_asked_for(is_topic: bool) -> None:
    twice = request("__cluster_metadata", 0)
    if is_topic:
        twice.topics *= 2
    else:
        twice.topics[0].partitions *= 2
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(twice, 2)
        told = [one.error_code for topic in answer.topics for one in topic.partitions]
        assert ([UNKNOWN_TOPIC] * 2, []) == (told, answer.nodes)


@pytest.mark.parametrize(("name", "index"), [("t", 0), ("__cluster_metadata", 1)])
async def test_other_partitions_have_no_quorum(name: str, index: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        answer = await client.ask(request(name, index), 2)
        assert UNKNOWN_TOPIC == answer.topics[0].partitions[0].error_code
        assert [] == answer.nodes
