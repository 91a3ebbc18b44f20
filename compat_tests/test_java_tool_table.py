"""Every script of Apache Kafka's bin/ that speaks to a broker: its verbs, flags and refusals.

Rule: one line per use; the same lines hold for Apache Kafka itself. Uses that lead to each other
have tests of their own (`test_java_tools`, `test_java_admin_tools`); brokers without a script's
APIs answer it with a refusal.
"""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import TopicPartition

from compat_tests import peers
from compat_tests.conftest import TOOL_JVM, Tool, create_topic
from compat_tests.records import samples
from compat_tests.servers.process import die_with_parent
from compat_tests.test_confluent_kafka import consuming, receive, send_all

pytestmark = [pytest.mark.peer("kafka-java-tools"), pytest.mark.slow]
TOOLS: Final = "org.apache.kafka.tools"
TOOLS_AT_ONCE: Final = 2
CLASSES: Final = {
    "kafka-acls": f"{TOOLS}.AclCommand",
    "kafka-cluster": f"{TOOLS}.ClusterTool",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": f"{TOOLS}.DelegationTokenCommand",
    "kafka-features": f"{TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-groups": f"{TOOLS}.GroupsCommand",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "kafka-share-groups": f"{TOOLS}.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": f"{TOOLS}.streams.StreamsGroupCommand",
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-verifiable-share-consumer": f"{TOOLS}.VerifiableShareConsumer",
}
"""The scripts of the table, and the main class that each of them starts."""


class Use(NamedTuple):
    """One command line; `{topic}` has two partitions, `{group}` no member.

    The address stands in front where no `{address}` says where else.
    """

    script: str
    arguments: str
    says: str
    """An expression that is found in what it prints."""
    status: int = 0


GROUPS, TOPICS, OFFSETS = "kafka-consumer-groups", "kafka-topics", "kafka-get-offsets"
FEATURES, TXN = "kafka-features", "kafka-transactions"
TOKENS = "kafka-delegation-tokens"
RESET = "--reset-offsets --group {group}"
NO_TOKENS = "UnsupportedByAuthenticationException"
ONE_OFFSET = r"(?m)^{group}\s+{topic}\s+0\s+"
USES: Final = (
    Use("kafka-acls", "--add --allow-principal User:a --operation Read --topic t",
        "SecurityDisabledException", 1),
    Use("kafka-acls", "--remove --force --topic t", "SecurityDisabledException", 1),
    Use("kafka-cluster", "cluster-id {address}", r"Cluster ID: \S{{22}}"),
    Use("kafka-cluster", "list-endpoints {address} --include-fenced-brokers", r"unfenced\s+broker"),
    Use("kafka-console-consumer", "--topic {topic} --from-beginning --max-messages 3"
        " --formatter-property print.partition=true --formatter-property print.offset=true",
        r"(?s)Partition:0\tOffset:0\t.*Partition:0\tOffset:2\t"),
    Use("kafka-console-consumer", "--include {topic}.* --from-beginning --max-messages 3"
        " --isolation-level read_committed"
        f" --formatter {TOOLS}.consumer.LoggingMessageFormatter", "total of 3 messages"),
    Use("kafka-console-consumer", "--topic {topic} --partition 0 --offset 2 --max-messages 3"
        f" --formatter {TOOLS}.consumer.NoOpMessageFormatter", "total of 3 messages"),
    Use(GROUPS, "--list --state", r"{group}\s+Empty"),
    Use(GROUPS, "--list --state stable,empty", r"{group}\s+Empty"),
    Use(GROUPS, "--list --type", r"{group}\s+Classic"),
    Use(GROUPS, "--describe --all-groups", ONE_OFFSET + r"2\s+20\s+18\s"),
    Use(GROUPS, "--describe --group {group} --offsets --verbose", ONE_OFFSET + r"-\s+2\s+20"),
    Use(GROUPS, "--describe --group {group} --members --verbose", "no active members"),
    Use(GROUPS, "--describe --group {group} --state --verbose", r"Empty\s+-\s+-\s+0"),
    Use(GROUPS, "--describe --group nobody", "GroupIdNotFoundException"),
    Use(GROUPS, RESET + " --topic {topic}:0,1 --to-earliest --dry-run", ONE_OFFSET + "0"),
    Use(GROUPS, RESET + " --all-topics --shift-by 5 --dry-run", ONE_OFFSET + "7"),
    Use(GROUPS, RESET + " --topic {topic} --by-duration PT0S --dry-run", ONE_OFFSET + "20"),
    Use(GROUPS, RESET + " --topic {topic}:0 --to-latest --export --dry-run", "{topic},0,20"),
    Use(GROUPS, RESET + " --from-file {plan} --dry-run", ONE_OFFSET + "9"),
    Use(GROUPS, "--validate-regex a.*", "is valid"),
    Use(GROUPS, "--delete-offsets --group {group} --topic {topic}:1", r"{topic}\s+1\s+Successful"),
    Use(GROUPS, "--delete --group nobody", "GroupIdNotFoundException"),
    Use(TOKENS, "--command-config {config} --describe", NO_TOKENS, 1),
    Use(TOKENS, "--command-config {config} --create --max-life-time-period -1"
        " --renewer-principal User:a", NO_TOKENS, 1),
    Use(TOKENS, "--command-config {config} --renew --renew-time-period -1 --hmac YWJj",
        NO_TOKENS, 1),
    Use(TOKENS, "--command-config {config} --expire --expiry-time-period -1 --hmac YWJj",
        NO_TOKENS, 1),
    Use(FEATURES, "version-mapping --release-version 4.0", "transaction.version=2"),
    Use(FEATURES, "feature-dependencies --feature transaction.version=2", "no dependencies"),
    Use(FEATURES, "upgrade --feature transaction.version=2", "was upgraded to 2"),
    Use(FEATURES, "upgrade --feature transaction.version=9", "Could not upgrade", 1),
    Use(FEATURES, "disable --feature nonsense", "Could not disable", 1),
    Use(OFFSETS, "--topic-partitions {topic}:0-1", "(?m)^{topic}:0:20$"),
    Use(OFFSETS, "--topic {topic} --partitions 0,1", "(?m)^{topic}:1:0$"),
    Use(OFFSETS, "--exclude-internal-topics", "(?m)^{topic}:0:20$"),
    Use(OFFSETS, "--topic nothing-like-it", "Could not match any", 1),
    Use("kafka-groups", "--list --group-type classic", r"{group}\s+Classic"),
    Use("kafka-groups", "--list --consumer", r"{group}\s+Classic"),
    Use("kafka-groups", "--list --share", r"GROUP\s+TYPE\s+PROTOCOL"),
    Use("kafka-groups", "--list --streams", r"GROUP\s+TYPE\s+PROTOCOL"),
    Use("kafka-leader-election", "--election-type unclean --topic {topic} --partition 0",
        "already elected"),
    Use("kafka-leader-election", "--election-type preferred --topic {topic} --partition 9",
        "UnknownTopicOrPartitionException", 1),
    Use("kafka-log-dirs", "--describe --topic-list {topic}", '"{topic}-1"'),
    Use("kafka-log-dirs", "--describe --broker-list 7", "do not exist", 1),
    Use("kafka-metadata-quorum", "describe --replication --human-readable", r"ms ago\s+Leader"),
    Use("kafka-share-groups", "--list", r"^\s*$"),
    Use("kafka-share-groups", "--describe --group {group}", "command failed due to"),
    Use("kafka-share-groups", "--delete --group {group}", "is not a share group"),
    Use("kafka-streams-groups", "--list", r"^\s*$"),
    Use("kafka-streams-groups", "--describe --group nobody", "command failed due to", 1),
    Use("kafka-streams-groups", "--delete --group nobody", "is not a streams group"),
    Use(TOPICS, "--create --topic {topic}", "TopicExistsException", 1),
    Use(TOPICS, "--create --topic {topic} --if-not-exists", r"^\s*$"),
    Use(TOPICS, "--create --topic a/b", "InvalidTopicException", 1),
    Use(TOPICS, "--create --topic {topic}-3 --replication-factor 99",
        "InvalidReplicationFactorException", 1),
    Use(TOPICS, "--create --topic {topic}-placed --replica-assignment 1,1", "Created topic"),
    Use(TOPICS, "--alter --topic {topic} --partitions 1", "InvalidPartitionsException", 1),
    Use(TOPICS, "--describe --topic {topic} --at-min-isr-partitions", r"Partition: 1\s+Leader: \d"),
    Use(TOPICS, "--describe --topic {topic} --under-min-isr-partitions", r"^\s*$"),
    Use(TOPICS, "--describe --topic {topic} --under-replicated-partitions", r"^\s*$"),
    Use(TOPICS, "--describe --topic {topic} --unavailable-partitions", r"^\s*$"),
    Use(TOPICS, "--describe --topics-with-overrides", "{topic}.*segment.bytes=2000000"),
    Use(TOPICS, "--describe --topic {topic} --partition-size-limit-per-response 1",
        r"(?s)Partition: 0.*Partition: 1"),
    Use(TOPICS, "--describe --topic-id AAAAAAAAAAAAAAAAAAAABQ", "does not exist", 1),
    Use(TOPICS, "--list --exclude-internal --topic {topic}", "(?m)^{topic}$"),
    Use(TOPICS, "--delete --topic nothing-like-it", "does not exist", 1),
    Use(TOPICS, "--delete --topic nothing-like-it --if-exists", r"^\s*$"),
    Use(TXN, "list --duration-filter 1 --transactional-id-pattern no.*", "TransactionalId"),
    Use(TXN, "describe --transactional-id nobody", "could not be found", 1),
    Use(TXN, "find-hanging --broker-id 1 --max-transaction-timeout 1", "Duration"),
    Use(TXN, "find-hanging --topic {topic}", "Duration"),
    Use(TXN, "forceTerminateTransaction --transactionalId nobody", r"^\s*$"),
    Use(TXN, "abort --topic {topic} --partition 0 --start-offset 0", "Could not find any open", 1),
    Use("kafka-verifiable-share-consumer", "--topic {topic} --group-id {group} --max-messages 0",
        "shutdown_complete"),
)  # fmt: skip


@pytest.fixture(scope="module")
def names(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for the names in the table; none of the uses changes what another one sees.

    The names are fresh ones: a process of pytest-xdist may come back to this module, while the
    server is the same.
    """
    folder = tmp_path_factory.mktemp("tools")
    topic, group = f"tool-table-{folder.name}", f"tool-table-group-{folder.name}"
    create_topic(bootstrap, topic, 2, {"segment_bytes": "2000000"})
    send_all(bootstrap, topic, samples(20))
    with consuming(bootstrap, topic, group=group) as consumer:
        receive(consumer, 2)
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    plan, config = folder / "plan.csv", folder / "client.properties"
    plan.write_text(f"{topic},0,9\n")
    config.touch()
    return {"topic": topic, "group": group, "plan": str(plan), "config": str(config)}


@pytest.mark.feature("{script}: its other verbs and flags")
@pytest.mark.parametrize("script", CLASSES)
def test_tool_does_and_says(
    java_process: Tool, bootstrap: str, names: dict[str, str], script: str
) -> None:
    def run(use: Use) -> str | None:
        line = use.arguments if "{address}" in use.arguments else f"{{address}} {use.arguments}"
        words = line.format(address=f"--bootstrap-server {bootstrap}", **names).split()
        said = java_process(CLASSES[script], *words, expect=use.status)
        found = re.search(use.says.format(**names), said)
        return None if found else f"{use.arguments}: expected {use.says}, got {said}"

    with ThreadPoolExecutor(TOOLS_AT_ONCE) as pool:
        wrong = [one for one in pool.map(run, [use for use in USES if use.script == script]) if one]
    assert not wrong, "\n".join(wrong)


@pytest.mark.feature("kafka-replica-verification: no lag on one node")
def test_replica_verification_finds_no_lag(bootstrap: str, names: dict[str, str]) -> None:
    command = peers.java_command(
        f"{TOOLS}.ReplicaVerificationTool",
        *("--broker-list", bootstrap, "--topics-include", names["topic"]),
        *("--report-interval-ms", "100"),
        options=TOOL_JVM,
    )
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
    ) as tool:
        assert tool.stdout is not None
        try:
            said = [tool.stdout.readline() for _ in range(2)]
        finally:
            tool.kill()
    assert "max lag is 0" in said[1]


@pytest.mark.feature("kafka-reassign-partitions: generate, throttle, cancel")
def test_reassign_tool_slows_what_does_not_move(
    java: Tool, bootstrap: str, names: dict[str, str], tmp_path: Path
) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"topics": [{"topic": names["topic"]}], "version": 1}))
    tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"

    def reassign(*arguments: str) -> str:
        return java(tool, "--bootstrap-server", bootstrap, *arguments)

    chosen = ("--topics-to-move-json-file", str(topics), "--broker-list", "1")
    said = reassign(*chosen, "--generate").splitlines()
    present, proposed = (line for line in said if line.startswith("{"))
    assert json.loads(proposed)["partitions"][1]["replicas"] == [1]
    plan.write_text(present)
    planned = ("--reassignment-json-file", str(plan))
    assert "throttle limit was set" in reassign(*planned, "--execute", "--throttle", "1000000")
    assert "is completed" in reassign(*planned, "--verify")
    assert "are active" in reassign(*planned, "--cancel")
