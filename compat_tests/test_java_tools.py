"""Apache Kafka's own tools, called by their main classes.

They use the Java producer, consumer and admin client at their newest versions: topic ids, batched
look-ups, described partitions page by page.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compat_tests.compacted_topics import compact, create_compacted
from compat_tests.conftest import MakeTopic, Tool
from compat_tests.deadlines import WAIT_MS
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, samples
from compat_tests.test_confluent_kafka import consuming, receive, send_all

pytestmark = pytest.mark.peer("kafka-java-tools")
TOOLS = "org.apache.kafka.tools"
LINES = [f"key-{i % 3}\tvalue-{i}" for i in range(50)]
PATIENT = ("--request-timeout-ms", str(WAIT_MS))
"""The console producer waits for 1.5 s by itself, and drops a line after three more tries."""


def console_consumer(java: Tool, bootstrap: str, topic: str, count: int, *more: str) -> list[str]:
    """Read so many records from the beginning and give them as `key TAB value` lines."""
    printed = java(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", str(WAIT_MS)),
        *("--formatter-property", "print.key=true", *more),
    )
    return printed.splitlines()


def console_producer(java: Tool, bootstrap: str, topic: str, lines: list[str], *more: str) -> None:
    """Send `key TAB value` lines."""
    java(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic, *PATIENT),
        *("--reader-property", "parse.key=true", *more),
        stdin="\n".join(lines) + "\n",
    )


@pytest.mark.feature("broker-api-versions: every API is known to the client")
def test_broker_api_versions_lists_usable_apis(java: Tool, bootstrap: str) -> None:
    printed = java(f"{TOOLS}.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    usable = re.findall(r"(\w+)\((\d+)\): .*\[usable: (\d+)\]", printed)
    assert {"Produce", "Fetch", "Metadata", "JoinGroup"} <= {name for name, _, _ in usable}
    assert "UNKNOWN" not in printed


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("topics: create, list, describe, add partitions, delete")
def test_topics_tool_manages_a_topic(java: Tool, bootstrap: str, topic: str) -> None:
    def topics(*arguments: str) -> str:
        return java(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, *arguments)

    config = ("--config", "retention.ms=60000")
    topics("--create", "--topic", topic, "--partitions", "2", *config)
    assert topic in topics("--list").split()
    topics("--alter", "--topic", topic, "--partitions", "3")
    described = topics("--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=60000" in described
    topics("--delete", "--topic", topic)
    assert topic not in topics("--list").split()


@pytest.mark.feature("console producer to console consumer")
def test_console_tools_carry_lines(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    console_producer(java, bootstrap, name, LINES)
    assert console_consumer(java, bootstrap, name, len(LINES)) == LINES


@pytest.mark.feature("a topic of another namespace: create, write, read in a group, delete")
def test_tools_use_a_topic_of_a_namespace(
    java: Tool, bootstrap: str, namespaced_topic: str, group: str
) -> None:
    name = namespaced_topic

    def topics(*arguments: str) -> str:
        return java(f"{TOOLS}.TopicCommand", "--bootstrap-server", bootstrap, *arguments)

    topics("--create", "--topic", name, "--partitions", "2")
    assert name in topics("--list").split()
    assert "PartitionCount: 2" in topics("--describe", "--topic", name)
    console_producer(java, bootstrap, name, LINES)
    lines = console_consumer(java, bootstrap, name, len(LINES), "--group", group)
    assert sorted(lines) == sorted(LINES)
    described = java(
        f"{TOOLS}.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", bootstrap, "--describe", "--group", group),
    )
    lags = [line.split()[5] for line in described.splitlines() if name in line]
    assert lags == ["0", "0"]
    topics("--delete", "--topic", name)
    assert name not in topics("--list").split()


@pytest.mark.slow
@pytest.mark.feature("console producer, {codec}; read by librdkafka")
@pytest.mark.parametrize("codec", CODECS[1:])
def test_console_producer_compresses(
    java: Tool, bootstrap: str, make_topic: MakeTopic, group: str, codec: str
) -> None:
    name = make_topic()
    console_producer(java, bootstrap, name, LINES, "--compression-codec", codec)
    with consuming(bootstrap, name, group=group) as consumer:
        received = receive(consumer, len(LINES))
    assert [f"{as_text(m.key())}\t{as_text(m.value())}" for m in received] == LINES


def as_text(part: bytes | None) -> str:
    """See a key or value as the console shows it."""
    return "null" if part is None else part.decode()


@pytest.mark.slow
@pytest.mark.feature("console consumer reads librdkafka's {codec}, with headers and times")
@pytest.mark.parametrize("codec", CODECS[1:])
def test_console_consumer_reads_librdkafka(
    java: Tool, bootstrap: str, make_topic: MakeTopic, codec: str
) -> None:
    name, records = make_topic(), samples(40)
    send_all(bootstrap, name, records, compression_type=codec)
    show = ("print.timestamp", "print.headers", "print.offset")
    more = [word for key in show for word in ("--formatter-property", f"{key}=true")]
    lines = console_consumer(java, bootstrap, name, len(records), *more)
    for index, (line, record) in enumerate(zip(lines, records, strict=True)):
        headers = ",".join(f"{key}:{value.decode()}" for key, value in record.headers)
        expected = [f"CreateTime:{record.timestamp_ms}", f"Offset:{index}"]
        expected += [headers or "NO_HEADERS"]
        expected += [as_text(record.key), as_text(record.value)]
        assert line.split("\t") == expected


@pytest.mark.slow
@pytest.mark.feature("console consumer reads a compacted topic from the beginning")
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_console_consumer_reads_what_compaction_has_left(
    java: Tool, compacting_bootstrap: str, topic: str, isolation: str
) -> None:
    bootstrap = compacting_bootstrap
    create_compacted(bootstrap, topic)
    send_all(bootstrap, topic, [one for one in samples(200) if one.key], compression_type="lz4")
    left = compact(bootstrap, topic)
    show = ("--formatter-property", "print.offset=true", "--isolation-level", isolation)
    lines = console_consumer(java, bootstrap, topic, len(left), *show)
    expected = [[f"Offset:{one.offset}", as_text(one.key), as_text(one.value)] for one in left]
    assert expected == [line.split("\t") for line in lines]


@pytest.mark.feature("consumer-groups: list, describe, reset, delete")
def test_consumer_groups_tool_manages_a_group(
    java: Tool, bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(50))
    with consuming(bootstrap, name, group=group) as consumer:
        receive(consumer, 20)
        consumer.commit(asynchronous=False)
        described = groups_tool(java, bootstrap, "--describe", "--group", group)
        assert offsets_in(described, name) == ("20", "50", "30")
    assert group in groups_tool(java, bootstrap, "--list").split()
    reset = ("--reset-offsets", "--group", group, "--topic", name, "--execute")
    groups_tool(java, bootstrap, *reset, "--to-earliest")
    described = groups_tool(java, bootstrap, "--describe", "--group", group)
    assert offsets_in(described, name) == ("0", "50", "50")
    groups_tool(java, bootstrap, "--delete", "--group", group)
    assert group not in groups_tool(java, bootstrap, "--list").split()


@pytest.mark.slow
@pytest.mark.feature("consumer-groups: reset by {how}")
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("to-latest", "50"),
        ("to-offset 7", "7"),
        ("shift-by -5", "15"),
        ("to-current", "20"),
        ("to-datetime", "20"),
    ],
)
def test_consumer_groups_tool_resets_offsets(
    *, java: Tool, bootstrap: str, make_topic: MakeTopic, group: str, how: str, expected: str
) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(50))
    with consuming(bootstrap, name, group=group) as consumer:
        receive(consumer, 20)
        consumer.commit(asynchronous=False)
    if how == "to-datetime":
        moment = datetime.fromtimestamp((FIRST_TIMESTAMP_MS + 20 * STEP_MS) / 1000, UTC)
        how += moment.strftime(" %Y-%m-%dT%H:%M:%S.000Z")
    reset = ("--reset-offsets", "--group", group, "--topic", name, "--execute")
    groups_tool(java, bootstrap, *reset, *f"--{how}".split())
    described = groups_tool(java, bootstrap, "--describe", "--group", group)
    assert offsets_in(described, name)[0] == expected


@pytest.mark.slow
@pytest.mark.feature("consumer-groups: members, state, delete offsets")
def test_consumer_groups_tool_shows_members(
    java: Tool, bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name = make_topic(partitions=3)
    send_all(bootstrap, name, samples(5))
    with consuming(bootstrap, name, group=group, client_id="shown") as consumer:
        receive(consumer, 5)
        consumer.commit(asynchronous=False)
        flags = ("--describe", "--group", group)
        assert "shown" in groups_tool(java, bootstrap, *flags, "--members", "--verbose")
        assert "Stable" in groups_tool(java, bootstrap, *flags, "--state")
    groups_tool(java, bootstrap, "--delete-offsets", "--group", group, "--topic", name)


def groups_tool(java: Tool, bootstrap: str, *arguments: str) -> str:
    """Run kafka-consumer-groups."""
    tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    return java(tool, "--bootstrap-server", bootstrap, "--timeout", str(WAIT_MS), *arguments)


def offsets_in(described: str, topic: str) -> tuple[str, str, str]:
    """Give current offset, end offset and lag of partition 0 from the tool's table."""
    for line in described.splitlines():
        cells = line.split()
        if len(cells) > 5 and cells[1:3] == [topic, "0"]:
            return cells[3], cells[4], cells[5]
    raise AssertionError(f"{topic} is not in {described}")


@pytest.mark.feature("get-offsets: earliest, latest, by time, largest timestamp")
def test_get_offsets_tool_finds_offsets(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(50))
    times = {"-1": "50", "-2": "0", "-3": "49", str(FIRST_TIMESTAMP_MS + 7 * STEP_MS): "7"}
    for time, expected in times.items():
        flags = ("--bootstrap-server", bootstrap, "--topic", name, "--time", time)
        printed = java(f"{TOOLS}.GetOffsetShell", *flags)
        assert printed.strip() == f"{name}:0:{expected}"


@pytest.mark.slow
@pytest.mark.feature("get-offsets: earliest local, latest tiered")
def test_get_offsets_tool_knows_tiers(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(5))
    flags = ("--bootstrap-server", bootstrap, "--topic", name, "--time")
    assert java(f"{TOOLS}.GetOffsetShell", *flags, "earliest-local").strip() == f"{name}:0:0"
    assert java(f"{TOOLS}.GetOffsetShell", *flags, "latest-tiered").strip() in {"", f"{name}:0:"}


@pytest.mark.feature("configs: describe, alter, delete for a topic")
def test_configs_tool_changes_a_topic(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()

    def configs(*arguments: str) -> str:
        flags = ("--bootstrap-server", bootstrap, "--entity-type", "topics", "--entity-name", name)
        return java("kafka.admin.ConfigCommand", *flags, *arguments)

    configs("--alter", "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    described = configs("--describe")
    assert "retention.ms=60000" in described
    assert "cleanup.policy=compact,delete" in described
    configs("--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in configs("--describe")


@pytest.mark.slow
@pytest.mark.feature("configs: describe the broker, all settings")
def test_configs_tool_describes_the_broker(java: Tool, bootstrap: str) -> None:
    flags = ("--bootstrap-server", bootstrap, "--entity-type", "brokers", "--entity-name", "1")
    described = java("kafka.admin.ConfigCommand", *flags, "--describe", "--all")
    assert "num.partitions=1" in described


@pytest.mark.feature("delete-records")
def test_delete_records_tool_moves_the_start(
    java: Tool, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(30))
    plan = tmp_path / "plan.json"
    place = {"topic": name, "partition": 0, "offset": 12}
    plan.write_text(json.dumps({"partitions": [place], "version": 1}))
    flags = ("--bootstrap-server", bootstrap, "--offset-json-file", str(plan))
    assert "low_watermark: 12" in java(f"{TOOLS}.DeleteRecordsCommand", *flags)


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("log-dirs: describe")
def test_log_dirs_tool_shows_the_size(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(30))
    flags = ("--bootstrap-server", bootstrap, "--describe", "--topic-list", name)
    printed = java(f"{TOOLS}.LogDirsCommand", *flags)
    described = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    folders = [folder for broker in described["brokers"] for folder in broker["logDirs"]]
    (partition,) = [partition for folder in folders for partition in folder["partitions"]]
    assert partition["partition"] == f"{name}-0"
    assert partition["size"] > 0


@pytest.mark.workers("partitions of several leaders")
@pytest.mark.feature("producer and consumer performance tests")
def test_performance_tools_move_records(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name, count = make_topic(partitions=2), 20_000
    flags = ("--bootstrap-server", bootstrap, "--topic", name, "--num-records", str(count))
    sent = java(
        f"{TOOLS}.ProducerPerformance",
        *flags,
        *("--record-size", "100", "--throughput", "-1", "--command-property", "acks=all"),
    )
    assert f"{count} records sent" in sent
    received = java(f"{TOOLS}.ConsumerPerformance", *flags, "--timeout", str(WAIT_MS))
    counted = int(received.splitlines()[-1].split(", ")[4])
    assert counted >= count


@pytest.mark.slow
@pytest.mark.feature("end-to-end latency tool")
def test_end_to_end_latency_tool_runs(java: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    flags = ("--bootstrap-server", bootstrap, "--topic", make_topic(), "--num-records", "100")
    printed = java(
        f"{TOOLS}.EndToEndLatency", *flags, "--record-size", "100", "--producer-acks", "1"
    )
    assert "Percentiles" in printed


@pytest.mark.slow
@pytest.mark.feature("verifiable producer and consumer in a group")
def test_verifiable_clients_agree(
    java_process: Tool, bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name, count = make_topic(partitions=4), 500
    flags = ("--bootstrap-server", bootstrap, "--topic", name, "--max-messages", str(count))
    sent = java_process(f"{TOOLS}.VerifiableProducer", *flags, "--acks", "-1")
    assert sent.count('"name":"producer_send_success"') == count
    received = java_process(
        f"{TOOLS}.VerifiableConsumer", *flags, "--group-id", group, "--reset-policy", "earliest"
    )
    consumed = [json.loads(line) for line in received.splitlines() if "records_consumed" in line]
    assert sum(event["count"] for event in consumed) == count


@pytest.mark.slow
@pytest.mark.feature("groups tool: list")
def test_groups_tool_lists_groups(
    java: Tool, bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(5))
    with consuming(bootstrap, name, group=group) as consumer:
        receive(consumer, 5)
        listed = java(f"{TOOLS}.GroupsCommand", "--bootstrap-server", bootstrap, "--list")
    line = next(line for line in listed.splitlines() if line.startswith(group))
    assert line.split()[1:3] == ["Classic", "consumer"]
