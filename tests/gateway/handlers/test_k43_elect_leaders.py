"""ElectLeaders, as Apache Kafka 4.3 answers when the leaders are the right ones."""

import pytest

from kledger.gateway.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.gateway.running import running_gateway

UNKNOWN_TOPIC, INVALID_REQUEST, NOT_NEEDED = 3, 42, 84


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("election_type", [0, 1])
async def test_every_leader_is_the_right_one(election_type: int, version: int) -> None:
    asked = [
        TopicPartitions(topic="t", partitions=[0, 1, 2, -1]),
        TopicPartitions(topic="nowhere", partitions=[0]),
    ]
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t", partitions=2)
        request = ElectLeadersRequest(
            election_type=election_type if version else 0, topic_partitions=asked
        )
        answer = await client.ask(request, version)
        assert 0 == answer.error_code
        assert {
            "t": [(0, NOT_NEEDED), (1, NOT_NEEDED), (2, UNKNOWN_TOPIC), (-1, UNKNOWN_TOPIC)],
            "nowhere": [(0, UNKNOWN_TOPIC)],
        } == {
            topic.topic: [(each.partition_id, each.error_code) for each in topic.partition_result]
            for topic in answer.replica_election_results
        }


@pytest.mark.parametrize("version", range(3))
async def test_of_all_partitions_none_elected(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("a")
        await gateway.create_topic("b")
        answer = await client.ask(ElectLeadersRequest(topic_partitions=None), version)
        results = {one.topic: one.partition_result for one in answer.replica_election_results}
        assert {"a": [], "b": []} == results


async def test_another_type_of_election_is_refused() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        asked = [TopicPartitions(topic="t", partitions=[0])]
        answer = await client.ask(ElectLeadersRequest(election_type=9, topic_partitions=asked), 2)
        (result,) = answer.replica_election_results[0].partition_result
        assert (INVALID_REQUEST, INVALID_REQUEST) == (answer.error_code, result.error_code)


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unknown_type_of_nothing_is_no_mistake(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topics = [TopicPartitions(topic="t", partitions=[])]
        for asked in (topics, []):
            request = ElectLeadersRequest(election_type=7, topic_partitions=asked)
            assert 0 == (await client.ask(request, version)).error_code
