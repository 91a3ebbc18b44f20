"""Topics, at every version: Metadata, creation, deletion, partitions, settings, the cluster."""

from __future__ import annotations

from typing import Final

from compat_tests.differential import words
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages import k19_create_topics as k19
from kledger.gateway.wire.messages import k20_delete_topics as k20
from kledger.gateway.wire.messages import k32_describe_configs as k32
from kledger.gateway.wire.messages import k33_alter_configs as k33
from kledger.gateway.wire.messages import k35_describe_log_dirs as k35
from kledger.gateway.wire.messages import k37_create_partitions as k37
from kledger.gateway.wire.messages import k44_incremental_alter_configs as k44
from kledger.gateway.wire.messages import k75_describe_topic_partitions as k75
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k60_describe_cluster import DescribeClusterRequest

METADATA: Final = 3
CREATE: Final = 19
DELETE: Final = 20
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
LOG_DIRS: Final = 35
CREATE_PARTITIONS: Final = 37
INCREMENTAL: Final = 44
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
BAD_NAMES: Final = ("a b", "", ".", "..", "x" * 249, "x" * 250, "ä", "a/b", "a:b")


@script
def metadata_of_topics(side: Side) -> None:
    side.has("here", 3)
    for version in side.versions(METADATA):
        for label, names in {
            "one": ["here"],
            "one twice": ["here", "here"],
            "unknown": ["not-here"],
            "known and unknown": ["here", "not-here"],
            "bad names": [*BAD_NAMES],
        }.items():
            asked = [MetadataRequestTopic(name=one) for one in names]
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
            # Before version 4 every question creates.
            if version >= 4 or names == ["here"]:
                side.ask(label, request, version)
        if version >= 1:
            side.ask("none", MetadataRequest(topics=[]), version)


@script
def metadata_shows_allowed_operations(side: Side) -> None:
    side.has("allowed")
    asked = [MetadataRequestTopic(name="allowed")]
    for version in side.versions(METADATA, since=8):
        for cluster in (False, True):
            for topic in (False, True):
                request = MetadataRequest(
                    topics=asked,
                    include_cluster_authorized_operations=cluster and version <= 10,
                    include_topic_authorized_operations=topic,
                )
                side.ask(f"cluster {cluster}, topic {topic}", request, version)


@script
def metadata_by_id(side: Side) -> None:
    side.has("by-id")
    topic_id = side.topic_id("by-id")
    for version in side.versions(METADATA, since=10):
        for label, asked in {
            "known": MetadataRequestTopic(name=None, topic_id=topic_id),
            "unknown": MetadataRequestTopic(name=None, topic_id=words.UNKNOWN_ID),
            "neither": MetadataRequestTopic(name=None),
            "both": MetadataRequestTopic(name="by-id", topic_id=topic_id),
            "another name": MetadataRequestTopic(name="other", topic_id=topic_id),
        }.items():
            side.ask(label, MetadataRequest(topics=[asked]), version)


@script
def metadata_creates_topics(side: Side) -> None:
    for version in side.versions(METADATA):
        asked = [MetadataRequestTopic(name=f"auto-{version}")]
        request = MetadataRequest(topics=asked)
        known = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        side.ask("bad name", MetadataRequest(topics=[MetadataRequestTopic(name="a b")]), version)
        side.quietly(request, version)
        side.wait_served(f"auto-{version}", 1)
        side.ask("a moment later", known if version >= 4 else request, version)


@script
def topics_are_created(side: Side) -> None:
    for version in side.versions(CREATE):
        plain = f"plain-{version}"
        side.ask("one", words.create_topic(plain, 2), version)
        side.ask("it exists", words.create_topic(plain, 2), version)
        for partitions, replicas in ((-1, -1), (0, 1), (-2, 1), (1, 0), (1, 3), (1, -2), (1, 1)):
            request = words.create_topic(f"p{partitions}r{replicas}-{version}", partitions)
            request.topics[0].replication_factor = replicas
            request.validate_only = True
            side.ask(f"{partitions} partitions, {replicas} replicas", request, version)
        for name in (*BAD_NAMES[:5], *BAD_NAMES[5:]):
            request = words.create_topic(name)
            request.validate_only = True
            side.ask(f"name {name[:6]!r} of {len(name)}", request, version)
        for name, value in {
            "retention_ms": "60000",
            "retention_bytes": "many",
            "cleanup_policy": "compact,delete",
            "no_such_setting": "1",
            "min_insync_replicas": "0",
            "compression_type": "lzma",
            "max_message_bytes": "-1",
            "remote_storage_enable": "true",
        }.items():
            request = words.create_topic(f"s-{name}-{version}", 1, {name: value})
            side.ask(f"{name}={value}", request, version)
        _create_oddly(side, version)


def _create_oddly(side: Side, version: int) -> None:
    dotted = words.create_topic(f"clash.{version}")
    side.ask("with a dot", dotted, version)
    side.ask("with an underscore", words.create_topic(f"clash_{version}"), version)
    twice = words.create_topic(f"twice-{version}")
    twice.topics *= 2
    side.ask("twice", twice, version)
    side.ask("nothing", k19.CreateTopicsRequest(), version)
    placed = words.create_topic(f"placed-{version}", -1)
    placed.topics[0].replication_factor = -1
    placed.topics[0].assignments = [
        k19.CreatableReplicaAssignment(partition_index=one, broker_ids=[1]) for one in range(2)
    ]
    side.ask("placed", placed, version)
    placed.topics[0].name = f"misplaced-{version}"
    for label, brokers in {"nowhere": [], "elsewhere": [7], "twice": [1, 1]}.items():
        placed.topics[0].assignments[1].broker_ids = brokers
        side.ask(f"placed {label}", placed, version)
    placed.topics[0].assignments[1] = k19.CreatableReplicaAssignment(
        partition_index=2, broker_ids=[1]
    )
    side.ask("placed with a gap", placed, version)
    placed.topics[0].num_partitions = 2
    side.ask("placed and counted", placed, version)
    null = words.create_topic(f"null-{version}", 1, {"retention_ms": "1"})
    null.topics[0].configs[0].value = None
    side.ask("a setting that is null", null, version)


@script
def topics_are_deleted(side: Side) -> None:
    for version in side.versions(DELETE):
        topic = side.has(f"gone-{version}")
        request = k20.DeleteTopicsRequest(
            topic_names=[topic, f"never-{version}"],
            topics=[k20.DeleteTopicState(name=one) for one in (topic, f"never-{version}")],
            timeout_ms=10_000,
        )
        side.ask("known and unknown", request, version)
        side.ask("again", request, version)
        side.ask("nothing", k20.DeleteTopicsRequest(timeout_ms=1_000), version)
        bad = k20.DeleteTopicsRequest(
            topic_names=["a b"], topics=[k20.DeleteTopicState(name="a b")], timeout_ms=1_000
        )
        side.ask("bad name", bad, version)
        again = side.has(f"twice-gone-{version}")
        twice = k20.DeleteTopicsRequest(
            topic_names=[again] * 2,
            topics=[k20.DeleteTopicState(name=again)] * 2,
            timeout_ms=1_000,
        )
        side.ask("twice", twice, version)
    for label, states in {
        "by id": [k20.DeleteTopicState(topic_id=side.topic_id(side.has("gone-by-id")))],
        "unknown id": [k20.DeleteTopicState(topic_id=words.UNKNOWN_ID)],
        "neither": [k20.DeleteTopicState()],
        "both": [k20.DeleteTopicState(name="x", topic_id=words.UNKNOWN_ID)],
    }.items():
        side.ask(label, k20.DeleteTopicsRequest(topics=states, timeout_ms=1_000), 6)


@script
def partitions_are_added(side: Side) -> None:
    for version in side.versions(CREATE_PARTITIONS):
        topic = side.has(f"grows-{version}", 2)
        for count in (3, 3, 2, 0, -1):
            asked = k37.CreatePartitionsTopic(name=topic, count=count, assignments=None)
            request = k37.CreatePartitionsRequest(topics=[asked], timeout_ms=10_000)
            side.ask(f"to {count}", request, version)
        for label, brokers in {"here": [[1]], "elsewhere": [[7]], "too many": [[1], [1]]}.items():
            placed = [k37.CreatePartitionsAssignment(broker_ids=one) for one in brokers]
            asked = k37.CreatePartitionsTopic(name=topic, count=4, assignments=placed)
            request = k37.CreatePartitionsRequest(
                topics=[asked], timeout_ms=10_000, validate_only=True
            )
            side.ask(f"placed {label}", request, version)
        for names in (["no-grows"], ["a b"], [topic, topic], []):
            topics = [
                k37.CreatePartitionsTopic(name=one, count=5, assignments=None) for one in names
            ]
            request = k37.CreatePartitionsRequest(topics=topics, timeout_ms=10_000)
            side.ask(f"{len(names)}: {names}", request, version)


@script
def settings_of_topics_are_described(side: Side) -> None:
    side.has("described", retention_ms="60000", cleanup_policy="compact")
    for version in side.versions(DESCRIBE_CONFIGS):
        for label, keys in {
            "all": None,
            "one": ["retention.ms"],
            "unknown": ["no.such"],
            "two": ["cleanup.policy", "segment.bytes"],
        }.items():
            for synonyms in (False, True):
                resource = k32.DescribeConfigsResource(
                    resource_type=TOPIC, resource_name="described", configuration_keys=keys
                )
                request = k32.DescribeConfigsRequest(
                    resources=[resource], include_synonyms=synonyms
                )
                side.ask(f"{label}, synonyms {synonyms}", request, version)
        for kind, name in (
            (TOPIC, "no-described"), (TOPIC, "a b"), (TOPIC, ""), (BROKER, "7"), (BROKER, "x"),
            (LOGGER, "7"), (0, "x"), (3, "x"), (77, "x"),
        ):  # fmt: skip
            resource = k32.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=["retention.ms"]
            )
            request = k32.DescribeConfigsRequest(resources=[resource])
            side.ask(f"kind {kind} name {name!r}", request, version)


@script
def settings_of_topics_are_replaced(side: Side) -> None:
    for version in side.versions(ALTER_CONFIGS):
        topic = side.has(f"replaced-{version}", retention_ms="60000")
        for label, name, settings in (
            ("one", topic, {"cleanup.policy": "compact"}),
            ("unknown setting", topic, {"no.such": "1"}),
            ("bad value", topic, {"retention.ms": "soon"}),
            ("null", topic, {"retention.ms": None}),
            ("none", topic, {}),
            ("unknown topic", "no-replaced", {"retention.ms": "1"}),
            ("bad name", "a b", {"retention.ms": "1"}),
        ):
            configs = [k33.AlterableConfig(name=key, value=settings[key]) for key in settings]
            resource = k33.AlterConfigsResource(
                resource_type=TOPIC, resource_name=name, configs=configs
            )
            for validate in (True, False):
                request = k33.AlterConfigsRequest(resources=[resource], validate_only=validate)
                side.ask(f"{label}, validate {validate}", request, version)
        side.ask("as they are now", _described(topic), 4)


@script
def settings_of_topics_are_changed(side: Side) -> None:
    set_to, delete, append, subtract = range(4)
    for version in side.versions(INCREMENTAL):
        topic = side.has(f"changed-{version}", retention_ms="60000")
        for label, name, changes in (
            ("set", topic, [("segment.bytes", set_to, "2000000")]),
            ("append", topic, [("cleanup.policy", append, "compact")]),
            ("append again", topic, [("cleanup.policy", append, "compact")]),
            ("subtract", topic, [("cleanup.policy", subtract, "delete")]),
            ("append to a number", topic, [("retention.ms", append, "1")]),
            ("delete", topic, [("retention.ms", delete, None)]),
            ("delete what is not set", topic, [("retention.ms", delete, None)]),
            ("bad value", topic, [("retention.ms", set_to, "soon")]),
            ("null", topic, [("retention.ms", set_to, None)]),
            ("unknown setting", topic, [("no.such", set_to, "1")]),
            ("twice", topic, [("retention.ms", set_to, "1"), ("retention.ms", delete, None)]),
            ("nothing", topic, []),
            ("unknown topic", "no-changed", [("retention.ms", set_to, "1")]),
            ("bad name", "a b", [("retention.ms", set_to, "1")]),
        ):
            configs = [
                k44.AlterableConfig(name=key, config_operation=how, value=value)
                for key, how, value in changes
            ]
            resource = k44.AlterConfigsResource(
                resource_type=TOPIC, resource_name=name, configs=configs
            )
            for validate in (True, False):
                request = k44.IncrementalAlterConfigsRequest(
                    resources=[resource], validate_only=validate
                )
                side.ask(f"{label}, validate {validate}", request, version)
        side.ask("as they are now", _described(topic), 4)


def _described(topic: str) -> k32.DescribeConfigsRequest:
    keys = ["cleanup.policy", "retention.ms", "segment.bytes"]
    resource = k32.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=keys
    )
    return k32.DescribeConfigsRequest(resources=[resource], include_synonyms=True)


@script
def log_folders_are_described(side: Side) -> None:
    topic = side.has("folders", 2)
    side.write(topic, words.batch(b"a"))
    for version in side.versions(LOG_DIRS):
        for name, partitions in ((topic, [0, 1]), (topic, [7]), (topic, []), ("no-folders", [0])):
            named = k35.DescribableLogDirTopic(topic=name, partitions=partitions)
            request = k35.DescribeLogDirsRequest(topics=[named])
            side.ask(f"{name} {partitions}", request, version)
        side.ask("none", k35.DescribeLogDirsRequest(topics=[]), version)


@script
def topics_are_described_in_pages(side: Side) -> None:
    for name, partitions in (("page-a", 3), ("page-b", 2)):
        side.has(name, partitions)
    names = ["page-a", "page-b", "page-c", "page-a"]
    topics = [k75.TopicRequest(name=one) for one in names]
    for version in side.versions(75):
        for limit in (2_000, 4, 3, 1, 0, -1):
            request = k75.DescribeTopicPartitionsRequest(
                topics=topics, response_partition_limit=limit
            )
            side.ask(f"limit {limit}", request, version)
        for topic, partition in (("page-a", 1), ("page-b", 0), ("page-b", 7), ("zzz", 0), ("a", 0)):
            cursor = k75.Cursor(topic_name=topic, partition_index=partition)
            request = k75.DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)
            side.ask(f"from {topic} {partition}", request, version)


@script
def the_cluster_is_described(side: Side) -> None:
    for version in side.versions(60):
        for operations in (False, True):
            for kind in (1, 2, 3):
                for fenced in (False, True):
                    request = DescribeClusterRequest(
                        include_cluster_authorized_operations=operations,
                        endpoint_type=kind,
                        include_fenced_brokers=fenced,
                    )
                    label = f"operations {operations}, kind {kind}, fenced {fenced}"
                    side.ask(label, request, version)
