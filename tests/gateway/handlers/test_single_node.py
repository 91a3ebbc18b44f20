"""What one node answers about other nodes, as Apache Kafka 4.3 does."""

import subprocess
import sys

import pytest

from kledger.gateway.handlers.single_node import ANSWERS
from kledger.gateway.served_apis import HANDLERS
from kledger.gateway.wire.messages import k34_alter_replica_log_dirs as k34
from kledger.gateway.wire.messages import k43_elect_leaders as k43
from kledger.gateway.wire.messages import k45_alter_partition_reassignments as k45
from kledger.gateway.wire.messages import k46_list_partition_reassignments as k46
from kledger.gateway.wire.messages import k55_describe_quorum as k55
from kledger.gateway.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from tests.gateway.running import START_MS, running_gateway

NONE, UNKNOWN_TOPIC, INVALID_REQUEST = 0, 3, 42
LOG_DIR_NOT_FOUND, NOT_ALLOWED = 57, 64
INVALID_ASSIGNMENT, ELECTION_NOT_NEEDED, NONE_IN_PROGRESS = 39, 84, 85

UNKNOWN_BESIDE_KNOWN = {"t": [0, 1, 2, -1], "nowhere": [0]}
"""Partitions to ask for; `t` has two."""


def test_each_row_is_a_served_api() -> None:
    assert list(ANSWERS) == [spec.key for spec in HANDLERS if spec.is_single_node]


def test_rows_import_no_schema_until_they_answer() -> None:
    """Regression: the first request of any of these keys imported the schemas of all nine."""
    program = (
        "import sys; from kledger.gateway.handlers.single_node import ANSWERS; "
        "print(*(name for name in sys.modules if '.wire.messages.k' in name))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "" == run.stdout.strip()


class TestAlterReplicaLogDirs:
    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize(
        ("is_shown", "codes"),
        [
            (True, {"t": [NONE, NONE, UNKNOWN_TOPIC, UNKNOWN_TOPIC], "nowhere": [UNKNOWN_TOPIC]}),
            (False, {"t": [LOG_DIR_NOT_FOUND] * 4, "nowhere": [LOG_DIR_NOT_FOUND]}),
        ],
    )
    async def test_partitions_are_in_the_one_folder(
        self, is_shown: bool, codes: dict[str, list[int]], version: int
    ) -> None:
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic("t", partitions=2)
            (shown,) = (await client.ask(DescribeLogDirsRequest(topics=None), 4)).results
            folder = k34.AlterReplicaLogDir(
                path=shown.log_dir if is_shown else "/elsewhere",
                topics=[
                    k34.AlterReplicaLogDirTopic(name=name, partitions=partitions)
                    for name, partitions in UNKNOWN_BESIDE_KNOWN.items()
                ],
            )
            answer = await client.ask(k34.AlterReplicaLogDirsRequest(dirs=[folder]), version)
            assert codes == {
                topic.topic_name: [each.error_code for each in topic.partitions]
                for topic in answer.results
            }
            assert UNKNOWN_BESIDE_KNOWN == {
                topic.topic_name: [each.partition_index for each in topic.partitions]
                for topic in answer.results
            }


class TestElectLeaders:
    @pytest.mark.parametrize("version", range(3))
    @pytest.mark.parametrize("election_type", [0, 1])
    async def test_every_leader_is_the_right_one(self, election_type: int, version: int) -> None:
        request = k43.ElectLeadersRequest(
            election_type=election_type if version else 0,
            topic_partitions=[
                k43.TopicPartitions(topic=name, partitions=partitions)
                for name, partitions in UNKNOWN_BESIDE_KNOWN.items()
            ],
        )
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic("t", partitions=2)
            answer = await client.ask(request, version)
            assert NONE == answer.error_code
            assert {
                "t": [
                    (0, ELECTION_NOT_NEEDED),
                    (1, ELECTION_NOT_NEEDED),
                    (2, UNKNOWN_TOPIC),
                    (-1, UNKNOWN_TOPIC),
                ],
                "nowhere": [(0, UNKNOWN_TOPIC)],
            } == {
                topic.topic: [
                    (each.partition_id, each.error_code) for each in topic.partition_result
                ]
                for topic in answer.replica_election_results
            }

    @pytest.mark.parametrize("version", range(3))
    async def test_of_all_partitions_none_elected(self, version: int) -> None:
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic("a")
            await gateway.create_topic("b")
            answer = await client.ask(k43.ElectLeadersRequest(topic_partitions=None), version)
            results = {one.topic: one.partition_result for one in answer.replica_election_results}
            assert {"a": [], "b": []} == results

    async def test_unknown_type_of_election_is_refused(self) -> None:
        topics = [k43.TopicPartitions(topic="t", partitions=[0])]
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic("t")
            answer = await client.ask(
                k43.ElectLeadersRequest(election_type=9, topic_partitions=topics), 2
            )
            (result,) = answer.replica_election_results[0].partition_result
            assert (INVALID_REQUEST, INVALID_REQUEST) == (answer.error_code, result.error_code)

    @pytest.mark.parametrize("version", [1, 2])
    async def test_unknown_type_without_partitions_is_no_error(self, version: int) -> None:
        async with running_gateway() as gateway, gateway.client() as client:
            for topics in ([k43.TopicPartitions(topic="t", partitions=[])], []):
                request = k43.ElectLeadersRequest(election_type=7, topic_partitions=topics)
                assert NONE == (await client.ask(request, version)).error_code


class TestPartitionReassignments:
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
    async def test_partition_belongs_on_the_one_node(
        self, *, name: str, index: int, replicas: list[int] | None, code: int, version: int
    ) -> None:
        partition = k45.ReassignablePartition(partition_index=index, replicas=replicas)
        request = k45.AlterPartitionReassignmentsRequest(
            topics=[k45.ReassignableTopic(name=name, partitions=[partition])]
        )
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic("t")
            answer = await client.ask(request, version)
            (topic,) = answer.responses
            (outcome,) = topic.partitions
            assert (NONE, name, index, code) == (
                answer.error_code,
                topic.name,
                outcome.partition_index,
                outcome.error_code,
            )
            assert (code in (NONE, NONE_IN_PROGRESS)) == (outcome.error_message is None)

    @pytest.mark.parametrize("may_change", [False, True])
    async def test_answer_repeats_whether_the_factor_may_change(self, may_change: bool) -> None:
        request = k45.AlterPartitionReassignmentsRequest(allow_replication_factor_change=may_change)
        async with running_gateway() as gateway, gateway.client() as client:
            answer = await client.ask(request, 1)
            assert may_change == answer.allow_replication_factor_change

    @pytest.mark.parametrize("name", [None, "t", "nowhere"])
    async def test_no_reassignment_is_under_way(self, name: str | None) -> None:
        topics = (
            [k46.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0])]
            if name
            else None
        )
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic("t")
            answer = await client.ask(k46.ListPartitionReassignmentsRequest(topics=topics), 0)
            assert (NONE, None, []) == (answer.error_code, answer.error_message, answer.topics)


def quorum_request(name: str, index: int) -> k55.DescribeQuorumRequest:
    """Ask for the quorum of one partition."""
    partitions = [k55.PartitionData(partition_index=index)]
    return k55.DescribeQuorumRequest(topics=[k55.TopicData(topic_name=name, partitions=partitions)])


class TestDescribeQuorum:
    @pytest.mark.parametrize("version", range(3))
    async def test_this_node_leads_alone(self, version: int) -> None:
        async with running_gateway() as gateway, gateway.client() as client:
            answer = await client.ask(quorum_request("__cluster_metadata", 0), version)
            (partition,) = answer.topics[0].partitions
            (voter,) = partition.current_voters
            assert (NONE, NONE, 1, 1) == (
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

    async def test_log_end_grows_with_each_new_topic(self) -> None:
        async with running_gateway() as gateway, gateway.client() as client:
            ends = []
            for name in "ab":
                answer = await client.ask(quorum_request("__cluster_metadata", 0), 2)
                ends.append(answer.topics[0].partitions[0].high_watermark)
                await gateway.create_topic(name)
            assert ends[0] < ends[1]

    @pytest.mark.parametrize("is_topic", [True, False])
    async def test_request_for_two_partitions_is_refused(self, is_topic: bool) -> None:
        twice = quorum_request("__cluster_metadata", 0)
        if is_topic:
            twice.topics *= 2
        else:
            twice.topics[0].partitions *= 2
        async with running_gateway() as gateway, gateway.client() as client:
            answer = await client.ask(twice, 2)
            codes = [one.error_code for topic in answer.topics for one in topic.partitions]
            assert ([UNKNOWN_TOPIC] * 2, []) == (codes, answer.nodes)

    @pytest.mark.parametrize(("name", "index"), [("t", 0), ("__cluster_metadata", 1)])
    async def test_other_partitions_have_no_quorum(self, name: str, index: int) -> None:
        async with running_gateway() as gateway, gateway.client() as client:
            await gateway.create_topic("t")
            answer = await client.ask(quorum_request(name, index), 2)
            assert UNKNOWN_TOPIC == answer.topics[0].partitions[0].error_code
            assert [] == answer.nodes
