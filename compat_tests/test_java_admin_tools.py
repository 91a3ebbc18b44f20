"""Apache Kafka's administration tools: what they ask of a cluster rather than of its topics.

The answers are those of one node without security; the same tests hold for Apache Kafka itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests.conftest import MakeTopic, Tool
from compat_tests.deadlines import WAIT_S
from compat_tests.test_java_tools import TOOLS

pytestmark = pytest.mark.peer("kafka-java-tools")
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.mark.feature("configs: defaults of all brokers, and of one")
def test_configs_tool_alters_brokers(java: Tool, bootstrap: str) -> None:
    def configs(*arguments: str) -> str:
        return java(
            CONFIGS, "--bootstrap-server", bootstrap, "--entity-type", "brokers", *arguments
        )

    try:
        configs("--entity-default", "--alter", "--add-config", "log.retention.ms=70000000")
        configs("--entity-name", "1", "--alter", "--add-config", "log.retention.ms=80000000")
        assert "log.retention.ms=70000000" in configs("--entity-default", "--describe")
        assert "log.retention.ms=80000000" in configs("--entity-name", "1", "--describe")
    finally:
        for place in (("--entity-default",), ("--entity-name", "1")):
            configs(*place, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in configs("--entity-name", "1", "--describe")


@pytest.mark.feature("configs: quotas of clients, and a throttled producer")
def test_configs_tool_limits_a_client(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    client, name = "limited-client", make_topic()

    def configs(*arguments: str) -> str:
        entity = ("--entity-type", "clients", "--entity-name", client)
        return java(CONFIGS, "--bootstrap-server", bootstrap, *entity, *arguments)

    configs("--alter", "--add-config", "producer_byte_rate=50000,request_percentage=90")
    described = configs("--describe")
    assert "producer_byte_rate=50000.0" in described
    assert "request_percentage=90.0" in described
    sent = java(
        f"{TOOLS}.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", name, "--num-records", "700"),
        *("--record-size", "1000", "--throughput", "-1", "--print-metrics"),
        *("--command-property", f"client.id={client}"),
    )
    throttled = [line for line in sent.splitlines() if "produce-throttle-time-max" in line]
    assert any(float(line.rpartition(":")[2]) > 0 for line in throttled)
    configs("--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert "byte_rate" not in configs("--describe")


@pytest.mark.feature("features: describe")
def test_features_tool_describes_levels(java: Tool, bootstrap: str) -> None:
    printed = java(f"{TOOLS}.FeatureCommand", "--bootstrap-server", bootstrap, "describe")
    assert "transaction.version" in printed


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("metadata-quorum: status, replication")
def test_quorum_tool_shows_one_voter(java: Tool, bootstrap: str) -> None:
    flags = ("--bootstrap-server", bootstrap, "describe")
    status = java(f"{TOOLS}.MetadataQuorumCommand", *flags, "--status")
    assert "LeaderId:               1" in status
    replication = java(f"{TOOLS}.MetadataQuorumCommand", *flags, "--replication")
    assert "Leader" in replication.splitlines()[1]


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("reassign-partitions: execute, verify, list")
def test_reassign_tool_has_nothing_to_move(
    java: Tool, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    name, plan = make_topic(), tmp_path / "plan.json"
    place = {"topic": name, "partition": 0, "replicas": [leader_of(bootstrap, name)]}
    plan.write_text(json.dumps({"partitions": [place], "version": 1}))
    tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    flags = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(plan))
    assert "Successfully started" in java(tool, *flags, "--execute")
    assert f"Reassignment of partition {name}-0 is completed" in java(tool, *flags, "--verify")
    listed = java(tool, "--bootstrap-server", bootstrap, "--list")
    assert "No partition reassignments found" in listed


@pytest.mark.workers("there is another broker to move to")
def test_reassign_tool_is_refused_another_broker(
    java: Tool, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S).brokers
    if len(brokers) == 1:
        pytest.skip("there is no other broker")
    name, plan = make_topic(), tmp_path / "plan.json"
    leader = leader_of(bootstrap, name)
    place = {"topic": name, "partition": 0, "replicas": [min(brokers.keys() - {leader})]}
    plan.write_text(json.dumps({"partitions": [place], "version": 1}))
    tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    flags = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(plan))
    refused = java(tool, *flags, "--execute", expect=1)
    assert f"expected broker {leader} alone, which has the partition" in refused
    assert "Partitions do not move between brokers" in refused
    verified = java(tool, *flags, "--verify")
    assert f"There is no active reassignment of partition {name}-0" in verified


def leader_of(bootstrap: str, topic: str) -> int:
    """Give the broker that leads partition 0 of a topic."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S)
    return int(found.topics[topic].partitions[0].leader)


@pytest.mark.feature("leader-election: one partition, all partitions")
def test_election_tool_needs_no_election(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    flags = ("--bootstrap-server", bootstrap, "--election-type", "preferred")
    tool, one = f"{TOOLS}.LeaderElectionCommand", ("--topic", make_topic(), "--partition", "0")
    assert "Valid replica already elected" in java(tool, *flags, *one)
    java(tool, *flags, "--all-topic-partitions")


@pytest.mark.feature("acls: refused without an authorizer")
def test_acls_tool_reports_that_there_is_no_authorizer(java: Tool, bootstrap: str) -> None:
    tool = "org.apache.kafka.tools.AclCommand"
    java(tool, "--bootstrap-server", bootstrap, "--list", expect=1)


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("configs: a group, and what limits it")
def test_configs_tool_alters_a_group(java: Tool, bootstrap: str) -> None:
    name = "group-with-settings"

    def configs(*arguments: str, expect: int = 0) -> str:
        entity = ("--entity-type", "groups", "--entity-name", name)
        return java(CONFIGS, "--bootstrap-server", bootstrap, *entity, *arguments, expect=expect)

    changes = "consumer.session.timeout.ms=50000,share.isolation.level=read_committed"
    configs("--alter", "--add-config", changes)
    shown = configs("--describe")
    assert "consumer.session.timeout.ms=50000" in shown
    assert "share.isolation.level=read_committed" in shown
    assert "streams.num.standby.replicas" not in shown
    assert "streams.num.standby.replicas=0" in configs("--describe", "--all")
    configs("--alter", "--add-config", "consumer.session.timeout.ms=70000", expect=1)
    listed = java(CONFIGS, "--bootstrap-server", bootstrap, "--entity-type", "groups", "--describe")
    assert name in listed
    configs("--alter", "--delete-config", "consumer.session.timeout.ms,share.isolation.level")
    assert "consumer.session.timeout.ms" not in configs("--describe")


@pytest.mark.feature("configs: a subscription to client metrics")
def test_configs_tool_alters_client_metrics(java: Tool, bootstrap: str) -> None:
    def configs(*arguments: str, expect: int = 0) -> str:
        entity = ("--entity-type", "client-metrics", "--entity-name", "by-configs")
        return java(CONFIGS, "--bootstrap-server", bootstrap, *entity, *arguments, expect=expect)

    changes = "interval.ms=2000,metrics=[org.apache.kafka.producer.,org.apache.kafka.consumer.]"
    configs("--alter", "--add-config", changes)
    shown = configs("--describe")
    assert "interval.ms=2000" in shown
    assert "metrics=org.apache.kafka.producer.,org.apache.kafka.consumer." in shown
    configs("--alter", "--add-config", "interval.ms=99", expect=1)
    configs("--alter", "--delete-config", "interval.ms,metrics")
    assert "interval.ms" not in configs("--describe")


@pytest.mark.feature("client-metrics: alter, describe, list, delete")
def test_client_metrics_tool_keeps_subscriptions(java: Tool, bootstrap: str) -> None:
    def metrics(*arguments: str, expect: int = 0) -> str:
        tool = f"{TOOLS}.ClientMetricsCommand"
        return java(tool, "--bootstrap-server", bootstrap, *arguments, expect=expect)

    named = ("--name", "by-tool")
    wanted = ("--metrics", "org.apache.kafka.producer.", "--interval", "5000")
    metrics("--alter", *named, *wanted, "--match", "client_id=app-.*,client_software_name=.*java")
    shown = metrics("--describe", *named)
    for words in (
        "interval.ms=5000",
        "metrics=org.apache.kafka.producer.",
        "match=client_id=app-.*,client_software_name=.*java",
    ):
        assert words in shown
    metrics("--alter", *named, "--match", "client_colour=red", expect=1)
    metrics("--alter", *named, "--interval", "")
    assert "interval.ms=5000" not in metrics("--describe", *named)
    assert "by-tool" in metrics("--list").split()
    metrics("--delete", *named)
    assert "by-tool" not in metrics("--list").split()
