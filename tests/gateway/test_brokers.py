"""Several brokers over shared tables are one cluster to their clients."""

from pathlib import Path
from typing import Any

import pytest

from kledger.gateway.cluster_brokers import _BROKERS, BrokerRecord, ClusterBrokers
from kledger.gateway.config import GatewayConfig
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kledger.gateway.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from kledger.gateway.wire.messages.k60_describe_cluster import DescribeClusterRequest
from kledger.ledger import Fenced
from kledger.security.acl_state import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kledger.security.authorizer import STANDARD_AUTHORIZER
from kledger.security.principal import Principal
from tests.gateway.authorized import authorizer_of
from tests.gateway.cluster import running_cluster
from tests.gateway.running import (
    RunningGateway,
    batch,
    fetch,
    fetch_by_id,
    produce,
    running_brokers,
    until,
)


async def test_clients_of_each_broker_are_shown_all(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as brokers:
        ports = [each.port for each in brokers]
        for each in brokers:
            async with each.client() as client:
                found = await client.ask(MetadataRequest(topics=[]), 12)
                assert [one.node_id for one in found.brokers] == [1, 2]
                assert [one.port for one in found.brokers] == ports
                assert found.controller_id == 1
                described = await client.ask(DescribeClusterRequest(), 1)
                assert [one.port for one in described.brokers] == ports
        assert len({each.services.config.cluster_id for each in brokers}) == 1


async def test_a_topic_of_one_is_there_for_the_clients_of_all(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as (one, other):
        await one.services.registry.create("t", partitions=4)
        await until(lambda: other.services.registry.get("t") is not None)
        async with other.client() as client:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            (topic,) = (await client.ask(asked, 12)).topics
            assert [each.leader_id for each in topic.partitions] == [1, 2, 1, 2]
            assert [each.isr_nodes for each in topic.partitions] == [[1], [2], [1], [2]]


async def test_a_partition_of_another_broker_is_refused_as_not_led(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as (one, other):
        await one.services.registry.create("t", partitions=2)
        await until(lambda: other.services.registry.get("t") is not None)
        async with one.client() as first, other.client() as second:
            for client, led in ((first, 0), (second, 1)):
                answer = await client.ask(produce({led: batch(b"a"), 1 - led: batch(b"b")}), 9)
                errors = {
                    each.index: each.error_code for each in answer.responses[0].partition_responses
                }
                assert errors == {led: 0, 1 - led: ErrorCode.NOT_LEADER_OR_FOLLOWER}
                fetched = await client.ask(fetch({0: 0, 1: 0}), 12)
                (found,) = fetched.responses
                assert {each.partition_index: each.error_code for each in found.partitions} == {
                    led: 0,
                    1 - led: ErrorCode.NOT_LEADER_OR_FOLLOWER,
                }
                wanted = [ListOffsetsPartition(partition_index=each) for each in (0, 1)]
                listed = await client.ask(
                    ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)]), 5
                )
                (offsets,) = listed.topics
                assert {each.partition_index: each.error_code for each in offsets.partitions} == {
                    led: 0,
                    1 - led: ErrorCode.NOT_LEADER_OR_FOLLOWER,
                }
        for each in (one, other):
            topic = each.services.registry.get("t")
            assert topic is not None
            assert topic.open_partition_count == 1


async def test_users_name_the_brokers_of_partitions(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as (one, _), one.client() as client:
        for brokers, code in ((2, 0), (3, ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
            asked = CreatableTopic(
                name=f"t{brokers}",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=[brokers])
                    for index in (1, 0)
                ],
            )
            answer = await client.ask(CreateTopicsRequest(topics=[asked]), 7)
            assert answer.topics[0].error_code == code, answer
        topic = one.services.registry.get("t2")
        assert topic is not None
        assert topic.record.leaders == (2, 2)


async def test_a_group_has_one_coordinator(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as brokers:
        one, other = brokers
        coordinators = set()
        async with one.client() as first, other.client() as second:
            for number in range(8):
                name = f"group-{number}"
                asked = FindCoordinatorRequest(coordinator_keys=[name])
                answers = [await client.ask(asked, 4) for client in (first, second)]
                found = {answer.coordinators[0].node_id for answer in answers}
                assert len(found) == 1
                (coordinator,) = found
                coordinators.add(coordinator)
                for each in brokers:
                    is_coordinator = each.services.config.node_id == coordinator
                    expected = ErrorCode.NONE if is_coordinator else ErrorCode.NOT_COORDINATOR
                    assert each.services.groups.error(name) == expected
                    assert each.services.transactions.error(name) == expected
        assert coordinators == {1, 2}


async def test_a_deleted_topic_leaves_nothing_at_any_broker(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as (one, other):
        await one.services.registry.create("t", partitions=2)
        await until(lambda: other.services.registry.get("t") is not None)
        for each, led in ((one, 0), (other, 1)):
            async with each.client() as client:
                await client.ask(produce({led: batch(b"a")}), 9)
            assert each.services.store.managed_ledger_names()
        await other.services.registry.delete("t")
        await until(lambda: one.services.registry.get("t") is None)
        stores = one.services.store, other.services.store
        await until(lambda: not any(each.managed_ledger_names() for each in stores))


async def test_a_topic_created_again_elsewhere_is_another_one(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as (one, other):
        first = await one.services.registry.create("t")
        await until(lambda: other.services.registry.get("t") is not None)
        await one.services.registry.delete("t")
        again = await one.services.registry.create("t")
        await until(lambda: other.services.registry.get_by_id(again.id) is not None)
        assert other.services.registry.get_by_id(first.id) is None


async def test_a_rule_of_one_holds_for_the_clients_of_all(tmp_path: Path) -> None:
    config = GatewayConfig(authorizer_class_name=STANDARD_AUTHORIZER)
    rule = AclRule(
        ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "t"),
        "User:ann",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    async with running_brokers(tmp_path, config=config) as (one, other):
        called = []
        authorizer_of(other).changed.add(lambda: called.append(1))
        await authorizer_of(one).create([rule])
        await until(lambda: len(authorizer_of(other)) == 1)
        assert authorizer_of(other).authorize(
            Principal("ann"), "1.2.3.4", Operation.READ, ResourceType.TOPIC, "t"
        )
        assert called


async def test_no_two_brokers_assign_the_same_producer_id(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as brokers:
        ids = [await each.services.producer_ids.next_id() for each in brokers for _ in range(3)]
        assert len(set(ids)) == len(ids)


async def test_every_broker_names_the_same_quorum(tmp_path: Path) -> None:
    asked = DescribeQuorumRequest(
        topics=[
            TopicData(
                topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]
            )
        ]
    )
    async with running_brokers(tmp_path) as brokers:
        for each in brokers:
            async with each.client() as client:
                answer = await client.ask(asked, 2)
            (partition,) = answer.topics[0].partitions
            assert partition.leader_id == 1
            assert [voter.replica_id for voter in partition.current_voters] == [1]
            assert [(node.node_id, node.listeners[0].port) for node in answer.nodes] == [
                (1, brokers[0].port)
            ]


async def test_produce_and_fetch_name_the_leader_that_a_client_does_not_know(
    tmp_path: Path,
) -> None:
    """KIP-951: the client goes on at the leader without asking for metadata."""
    async with running_brokers(tmp_path) as (one, other):
        topic = await one.services.registry.create("t", partitions=2)
        await until(lambda: other.services.registry.get("t") is not None)
        async with one.client() as client:
            both: dict[int, bytes | None] = {0: batch(b"a"), 1: batch(b"b")}
            for asked, version in ((produce(both), 12), (produce(both, topic_id=topic.id), 13)):
                answer = await client.ask(asked, version)
                (found,) = answer.responses
                assert _leaders(found.partition_responses) == [(0, -1, -1), (6, 2, 0)]
                assert _endpoints(answer) == [(2, other.port)]
            answer = await client.ask(fetch_by_id(topic.id, {0: 0, 1: 0}), 16)
            (found,) = answer.responses
            assert _leaders(found.partitions) == [(0, -1, -1), (6, 2, 0)]
            assert _endpoints(answer) == [(2, other.port)]


async def test_versions_before_the_hints_have_none(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as (one, other):
        topic = await one.services.registry.create("t", partitions=2)
        await until(lambda: other.services.registry.get("t") is not None)
        async with one.client() as client:
            answer = await client.ask(produce({1: batch(b"b")}), 9)
            assert _leaders(answer.responses[0].partition_responses) == [(6, -1, -1)]
            answer = await client.ask(fetch_by_id(topic.id, {1: 0}), 15)
            assert _leaders(answer.responses[0].partitions) == [(6, -1, -1)]
            assert _endpoints(answer) == []


async def test_every_fetch_of_a_session_names_the_leader(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as (one, other):
        topic = await one.services.registry.create("t", partitions=2)
        await until(lambda: other.services.registry.get("t") is not None)
        async with one.client() as client:
            asked = fetch_by_id(topic.id, {0: 0, 1: 0})
            asked.session_epoch = 0
            for epoch in range(1, 4):
                answer = await client.ask(asked, 16)
                assert answer.session_id
                named = [each for each in answer.responses[0].partitions if each.error_code]
                assert _leaders(named) == [(6, 2, 0)]
                assert _endpoints(answer) == [(2, other.port)]
                asked = fetch_by_id(topic.id, {})
                asked.session_id, asked.session_epoch = answer.session_id, epoch


def _leaders(partitions: Any) -> list[tuple[int, int, int]]:
    return [
        (each.error_code, each.current_leader.leader_id, each.current_leader.leader_epoch)
        for each in partitions
    ]


def _endpoints(response: Any) -> list[tuple[int, int]]:
    return [(each.node_id, each.port) for each in response.node_endpoints]


async def test_clients_of_each_broker_are_shown_the_leader_epochs_of_all(tmp_path: Path) -> None:
    """A client that asks broker 1 with an epoch too low or too high for broker 2 never gets on."""
    async with running_cluster(tmp_path) as cluster:
        one = cluster.brokers[0]
        for epoch in (3, 4):
            await cluster.stop(1)
            other = await cluster.start(1, leader_epoch=epoch)
            await until(lambda: epoch_of(one, 1) == epoch)  # noqa: B023 - of this round
            for each in (one, other):
                async with each.client() as client:
                    for asked in ([MetadataRequestTopic(name="t")], None):
                        (topic,) = (await client.ask(MetadataRequest(topics=asked), 12)).topics
                        found = [(one.leader_id, one.leader_epoch) for one in topic.partitions]
                        assert [(1, 0), (2, epoch)] == found
            async with other.client() as client:
                fetched = await client.ask(fetch({1: 0}, leader_epoch=epoch), 12)
                assert 0 == fetched.responses[0].partitions[0].error_code


def epoch_of(gateway: RunningGateway, index: int) -> int:
    topic = gateway.services.registry.get("t")
    assert topic is not None
    return topic.leader_epoch(index)


async def test_a_broker_that_was_taken_over_does_not_show_clients_the_way_to_itself(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.stop(1)
        other = await cluster.start(1, leader_epoch=4)
        brokers = other.services.brokers
        assert isinstance(brokers, ClusterBrokers)
        found = brokers.find(2)
        assert found is not None
        assert 4 == found.leader_epoch
        with pytest.raises(Fenced, match="broker 2 was taken over: expected leader epoch 3"):
            await brokers.register(found._replace(leader_epoch=3, addresses={}))
        assert found == brokers.find(2)


def test_rows_of_brokers_without_peers_or_epochs_can_be_read() -> None:
    """Those of releases before."""
    kept = b'{"addresses":{"PLAINTEXT":["h",1]},"broker_id":1,"native":""}'
    row = _BROKERS.encode(BrokerRecord(1, {"PLAINTEXT": ("h", 1)}, "", ("p", 2), 3))
    assert BrokerRecord(1, {"PLAINTEXT": ("h", 1)}, "", ("p", 2), 3) == _BROKERS.decode(row)
    before = BrokerRecord(1, {"PLAINTEXT": ("h", 1)}, "")
    assert before == _BROKERS.decode(row[: row.index(b"{")] + kept)
