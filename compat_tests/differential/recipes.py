"""Recipes: what a good request of an API has in its fields, and what has to be there before it.

Rule: fields are known by their names, whatever the version; what no recipe names has its default.
Must not know: what is done to a good request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from compat_tests.differential import words
from compat_tests.differential.group_scripts import SESSION_MS, Member
from compat_tests.differential.side import Side
from compat_tests.differential.txn_producer import LONG_MS, Producer
from compat_tests.records import FIRST_TIMESTAMP_MS
from kledger.gateway.wire.messages.k11_join_group import JoinGroupRequestProtocol
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicState
from kledger.gateway.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kledger.gateway.wire.primitives import ZERO_UUID

Known = dict[str, Any]
SHARED: Final = "of-all-recipes"
"""A topic that is there."""


def nothing(_side: Side, _tag: str) -> Known:
    """Nothing has to be there."""
    return {}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to ask for one API.

    Attributes:
        known: what a good request has in its fields.
        prepare: makes ready and gives more of that; gets a name that was not there before.
        is_spent: what was made ready serves one request only.
        since: the oldest version that is asked.
        without: labels that are not asked: the answer depends on what else there is, or Kafka has
            none, or its controller falls over it and is away for seconds.
    """

    key: int
    known: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Side, str], Known] = nothing
    is_spent: bool = False
    since: int = 0
    without: tuple[str, ...] = ()


# What has to be there.


def a_topic(side: Side, tag: str) -> Known:
    """A topic of two partitions, with records in the first."""
    topic = side.has(tag, 2)
    side.write(topic, words.batch(b"a", b"b", b"c"))
    names = ("name", "topic", "topic_name", "resource_name")
    return dict.fromkeys(names, topic) | {"topic_id": side.topic_id(topic)}


def a_group(side: Side, tag: str) -> Known:
    """A group with an offset, and a topic."""
    known = a_topic(side, tag)
    side.settle("commit", words.commit(tag, known["name"], {0: 1}), 7)
    return known | {"group_id": tag, "groups_names": [tag]}


def a_described_group(side: Side, tag: str) -> Known:
    """The same, for those who look at groups by a list of names."""
    return a_group(side, tag) | {"groups": [tag]}


def a_member_to_be(_side: Side, tag: str) -> Known:
    """The id that a member of the consumer protocol gave itself."""
    return {"group_id": tag, "member_id": f"member-{tag}", "subscribed_topic_names": [SHARED]}


def a_consumer_group(side: Side, tag: str) -> Known:
    """A group of the consumer protocol, with one member."""
    heartbeat = ConsumerGroupHeartbeatRequest(**BEATING | a_member_to_be(side, tag))
    side.settle("join", heartbeat, 1)
    return {"group_ids": [tag]}


def a_member(side: Side, tag: str) -> Known:
    """A classic group with one member that has its assignment."""
    member = Member(side, tag)
    member.join("join")
    member.sync("sync", member)
    return {
        "group_id": tag,
        "member_id": member.member_id,
        "generation_id": member.generation,
        "generation_id_or_member_epoch": member.generation,
    }


def a_member_and_a_topic(side: Side, tag: str) -> Known:
    """Both."""
    return a_topic(side, tag) | a_member(side, tag)


def a_new_member(side: Side, tag: str) -> Known:
    """An id of a member that may join now."""
    member = Member(side, tag)
    answer = side.settle("an id", member.joining(), 9)
    return {"group_id": tag, "member_id": answer.member_id}


def a_name(_side: Side, tag: str) -> Known:
    """A name that nothing has."""
    return {"name": tag, "transactional_id": tag}


def a_producer(side: Side, tag: str) -> Known:
    """A transactional producer that has begun nothing."""
    producer = Producer(side, tag, SHARED)
    producer.init("init")
    return {
        "name": SHARED,
        "transactional_id": tag,
        "v3_and_below_transactional_id": tag,
        "producer_id": producer.producer_id,
        "v3_and_below_producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "v3_and_below_producer_epoch": producer.epoch,
        "group_id": tag,
        "transactional_ids": [tag],
        "producer_id_filters": [producer.producer_id],
    }


def a_transaction(side: Side, tag: str) -> Known:
    """A producer that has added a partition and a group."""
    known = a_producer(side, tag)
    producer = Producer(side, tag, SHARED)
    producer.producer_id, producer.epoch = known["producer_id"], known["producer_epoch"]
    producer.add("add", 0)
    producer.add_group("add group", tag)
    return known


IN_TIME: Final[Known] = {"timeout_ms": 10_000}
NO_TOPIC: Final = [DeleteTopicState(name="no-variants")]
SETTING: Final[Known] = {
    "resource_type": 2,
    "name": "retention.ms",
    "value": "60000",
    "validate_only": True,
}
GROWN: Final[Known] = {"count": 3, "assignments": None, "validate_only": True} | IN_TIME
UNKNOWN_OPERATIONS: Final = tuple(
    f"resources.configs.config_operation={one}" for one in (-2, -1, 7, 127)
)
BEATING: Final[Known] = {
    "member_epoch": 0,
    "rebalance_timeout_ms": SESSION_MS,
    "topic_partitions": [],
}
JOINING: Final[Known] = {
    "session_timeout_ms": SESSION_MS,
    "rebalance_timeout_ms": SESSION_MS,
    "protocol_type": "consumer",
    "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"r")],
}
OFFSET: Final[Known] = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_metadata": "m",
    "partition_indexes": [0],
}
CREATED: Final[Known] = {
    "num_partitions": 1,
    "replication_factor": 1,
    "assignments": [],
    "configs": [],
    "validate_only": True,
}
ADDED: Final[Known] = {"partitions": [0], "partition_indexes": [0], "transaction_result": True}
ACL: Final[Known] = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_name": "t",
    "resource_name_filter": "t",
    "principal": "User:a",
    "principal_filter": "User:a",
    "host": "*",
    "host_filter": "*",
    "operation": 3,
    "permission_type": 3,
}
TOKEN: Final[Known] = {
    "owner_principal_type": "User",
    "owner_principal_name": "a",
    "principal_type": "User",
    "principal_name": "a",
    "max_lifetime_ms": 60_000,
    "hmac": b"abc",
    "renew_period_ms": 60_000,
    "expiry_time_period_ms": 60_000,
}
ELECTED: Final[Known] = {"partitions": [0]} | IN_TIME
SCRAM: Final[Known] = {
    "mechanism": 1,
    "iterations": 4_096,
    "salt": b"salt",
    "salted_password": b"password",
}
RECIPES: Final = (
    Recipe(2, {"replica_id": -1, "timestamp": FIRST_TIMESTAMP_MS}, a_topic),
    Recipe(
        3,
        {"allow_auto_topic_creation": False, "topic_id": ZERO_UUID},
        a_topic,
        since=4,
        without=("topics=null",),
    ),
    Recipe(8, OFFSET, a_member_and_a_topic),
    Recipe(9, OFFSET, a_group),
    Recipe(10, {"key": "g", "coordinator_keys": ["g"]}),
    Recipe(11, JOINING, a_new_member, is_spent=True, without=("protocols twice",)),
    Recipe(12, {}, a_member),
    Recipe(13, {}, a_member, is_spent=True),
    Recipe(14, {"protocol_type": "consumer", "protocol_name": "range"}, a_member),
    Recipe(15, {}, a_described_group),
    Recipe(
        16,
        {"states_filter": ["Dead"], "types_filter": ["share"]},
        without=("states_filter=[]",),
    ),
    Recipe(19, CREATED | IN_TIME, a_name, is_spent=True),
    Recipe(20, {"topic_names": ["no-variants"], "topics": NO_TOPIC} | IN_TIME),
    Recipe(21, {"partition_index": 0, "offset": 1} | IN_TIME, a_topic),
    Recipe(22, {"transaction_timeout_ms": LONG_MS}, a_name, is_spent=True),
    Recipe(23, {"replica_id": -1, "partition": 0}, a_topic),
    Recipe(24, ADDED, a_producer, is_spent=True, without=("transactions=[]",)),
    Recipe(25, {}, a_producer, is_spent=True),
    Recipe(26, {"committed": True}, a_transaction, is_spent=True),
    Recipe(
        27,
        ADDED,
        a_transaction,
        is_spent=True,
        without=("markers.topics twice", "markers.topics.partition_indexes twice"),
    ),
    Recipe(28, OFFSET, a_transaction, is_spent=True),
    Recipe(29, ACL),
    Recipe(30, ACL),
    Recipe(31, ACL),
    Recipe(32, {"resource_type": 2, "configuration_keys": ["retention.ms"]}, a_topic),
    Recipe(33, SETTING, a_topic, without=("resources twice",)),
    Recipe(34, {"path": "/nowhere", "partitions": [0]}, a_topic),
    Recipe(35, {"partitions": [0]}, a_topic, without=("topics=null",)),
    Recipe(37, GROWN, a_topic, without=("topics.count=2147483647",)),
    Recipe(38, TOKEN),
    Recipe(39, TOKEN),
    Recipe(40, TOKEN),
    Recipe(41, TOKEN),
    Recipe(42, {}, a_group, is_spent=True),
    Recipe(43, ELECTED, a_topic, without=("topic_partitions=null",)),
    Recipe(44, SETTING, a_topic, without=UNKNOWN_OPERATIONS),
    Recipe(45, {"partition_index": 0, "replicas": [1]} | IN_TIME, a_topic),
    Recipe(46, {"partition_indexes": [0]} | IN_TIME, a_topic),
    Recipe(47, {"partition_index": 0}, a_group),
    Recipe(50, {"name": "somebody"}),
    Recipe(51, SCRAM | {"name": "somebody", "upsertions": []}),
    Recipe(55, {"topic_name": "__cluster_metadata", "partition_index": 0}),
    Recipe(57, {"feature": "group.version", "max_version_level": 1, "validate_only": True}),
    Recipe(60),
    Recipe(61, {"partition_indexes": [0]}, a_topic),
    Recipe(65, {}, a_transaction),
    Recipe(
        66,
        {"state_filters": ["Ongoing"]},
        a_transaction,
        # Whether a transaction is 7 ms old depends on how fast the script goes.
        without=("producer_id_filters=[]", "duration_filter=7"),
    ),
    Recipe(68, BEATING, a_member_to_be, is_spent=True),
    Recipe(69, {}, a_consumer_group),
    Recipe(75, {}, a_topic, without=("topics=[]",)),
)
