"""Kledger and Apache Kafka refuse alike: a super user, users with some rights, and a stranger.

Rule: every API is asked in every version by each user about things with different rights, and all
codes, bit fields and lists of names are compared. What else is in an answer is compared elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from compat_tests.deadlines import rounds
from compat_tests.differential import words
from compat_tests.differential.differences import (
    Asked,
    Difference,
    Explanation,
    compare,
    summary,
    unexplained,
)
from compat_tests.differential.masks import Masks, Plain
from compat_tests.differential.named_requests import Names, named_request
from compat_tests.differential.secured_pair import (
    SUPER_USER,
    SecuredAddresses,
    SecuredPair,
    secured_pair,
)
from compat_tests.differential.side import LOADING, Exchange, Side
from kledger.gateway.wire.messages.k29_describe_acls import DescribeAclsRequest
from kledger.gateway.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from kledger.gateway.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)

pytestmark = pytest.mark.slow
OPERATOR, FEW, STRANGER = "operator", "few", "stranger"
USERS: Final = (SUPER_USER, OPERATOR, FEW, STRANGER)
LOGINS_AND_TOKENS: Final = {17, 18, 36, 38, 39, 40, 41}
"""Compared elsewhere, or not about rights."""
DESTRUCTIVE: Final = {20, 21}
"""Not asked by the super user about what the others are asked about next."""
RIGHTS: Final[dict[str, tuple[AclOperation, ...]]] = {
    "hidden": (),
    "described": (AclOperation.DESCRIBE,),
    "read": (AclOperation.READ,),
    "written": (AclOperation.WRITE,),
    "created": (AclOperation.CREATE,),
    "altered": (AclOperation.ALTER,),
    "shown": (AclOperation.DESCRIBE_CONFIGS,),
    "set": (AclOperation.ALTER_CONFIGS,),
    "mixed": (AclOperation.WRITE, AclOperation.READ),
    "prefixed": (),
}
"""Names of topics, groups and transactional ids, and what the user with few rights may do."""
OF_OPERATOR: Final = (
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.CREATE,
    AclOperation.IDEMPOTENT_WRITE,
)
"""What the operator may do with the cluster, and with nothing else."""
CLUSTER, CLUSTER_NAME = ResourceType.BROKER, "kafka-cluster"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
GROUPS_TOO: Final = (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.ALTER_CONFIGS)
IDS_TOO: Final = (AclOperation.DESCRIBE, AclOperation.WRITE)
MISSING: Final = "missing"
"""Stands before the names of topics that do not exist; they have the same rights."""
EXPLANATIONS: Final[tuple[Explanation, ...]] = (
    Explanation(
        scripts=(FEW, STRANGER),
        api="DescribeLogDirs",
        versions=(1, 2),
        path="results/0",
        theirs="missing",
        reason="the folder has the code; before version 3 Kafka answers with nothing",
    ),
    Explanation(
        scripts=(FEW, STRANGER),
        api="ListPartitionReassignments",
        path="topics",
        ours="[[]]",
        reason="Kafka repeats the partitions of the request beside the code",
    ),
    Explanation(
        scripts=(FEW, STRANGER),
        api="DescribeClientQuotas",
        path="entries",
        ours="[[]]",
        theirs="missing",
        reason="an empty list beside the code; Kafka's is null",
    ),
)
"""What differs, by user."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPair]:
    """Both servers, with topics and rules."""
    with secured_pair(tmp_path_factory, USERS) as running:
        for server in running.servers:
            prepare(Side(server.open, running.versions, Masks(0)))
        yield running


def rule(kind: ResourceType, name: str, operation: AclOperation, **changes: Any) -> AclCreation:
    """Return a rule that allows the user with few rights to do something."""
    fields: dict[str, Any] = {
        "resource_type": kind.value,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": f"User:{FEW}",
        "host": "*",
        "operation": operation.value,
        "permission_type": ALLOW,
    }
    return AclCreation(**fields | changes)


def prepare(side: Side) -> None:
    """Create the topics and the rules, and wait until they are in force."""
    for name in RIGHTS:
        side.has(name)
    side.producer()
    creations = [
        rule(kind, each, operation)
        for name, operations in RIGHTS.items()
        for operation in operations
        for kind, each in (
            (ResourceType.TOPIC, name),
            (ResourceType.TOPIC, MISSING + name),
            *([(ResourceType.GROUP, name)] if operation in GROUPS_TOO else []),
            *([(ResourceType.TRANSACTIONAL_ID, name)] if operation in IDS_TOO else []),
        )
    ]
    creations += [
        rule(ResourceType.TOPIC, "mixed", AclOperation.READ, permission_type=DENY),
        rule(ResourceType.GROUP, "mix", AclOperation.ALL, resource_pattern_type=PREFIXED),
        rule(ResourceType.TOPIC, "pre", AclOperation.WRITE, resource_pattern_type=PREFIXED),
    ]
    creations += [
        rule(CLUSTER, CLUSTER_NAME, operation, principal=f"User:{OPERATOR}")
        for operation in OF_OPERATOR
    ]
    answer = side.quietly(CreateAclsRequest(creations=creations), 3)
    assert not any(each.error_code for each in answer.results), answer
    every = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    side.ask_until(
        "rules",
        every,
        3,
        lambda found: sum(len(each.acls) for each in found.resources) == len(creations),
    )
    side.close()


def play(bootstrap: str, versions: dict[int, range], user: str) -> list[Exchange]:
    """Ask for everything as one user."""
    side = Side(bootstrap, versions, Masks(int(time.time() * 1000)), (user, f"{user}-secret"))
    try:
        for key in side.common_keys():
            if key in LOGINS_AND_TOKENS or (user == SUPER_USER and key in DESTRUCTIVE):
                continue
            for version in side.versions(key):
                for name in (*RIGHTS, *(MISSING + each for each in RIGHTS)):
                    group = name.removeprefix(MISSING)
                    topic_id = words.UNKNOWN_ID
                    if version >= {0: 13, 1: 13, 8: 10, 9: 10}.get(key, 99) and name == group:
                        topic_id = ids_of(bootstrap, versions)[name]
                    names = Names(name, topic_id, group, group)
                    side.settle(f"{user}: {name}", named_request(key, version, names), version)
    finally:
        side.close()
    return side.log


_IDS: dict[str, dict[str, Any]] = {}


def ids_of(bootstrap: str, versions: dict[int, range]) -> dict[str, Any]:
    """Return the ids of the topics, as the super user sees them."""
    if bootstrap not in _IDS:
        side = Side(bootstrap, versions, Masks(0), (SUPER_USER, f"{SUPER_USER}-secret"))
        _IDS[bootstrap] = {name: side.topic_id(name) for name in RIGHTS}
        side.close()
    return _IDS[bootstrap]


def about_rights(answer: Plain) -> Plain:
    """Keep codes, bit fields and the names of lists."""
    if isinstance(answer, list):
        return [about_rights(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: bool(value) if name == "records" else about_rights(value)
        for name, value in answer.items()
        if _is_about_rights(name, value)
    }


def _is_about_rights(name: str, value: Plain) -> bool:
    if isinstance(value, dict | list):
        return name not in {"configs", "config_resources", "brokers", "nodes", "replicas"}
    return "error_code" in str(name) or "authorized_operations" in str(name)


def differences(ours: list[Exchange], theirs: list[Exchange]) -> list[Difference]:
    """Compare two records; the same was asked, in the same order."""
    assert [one[:3] for one in ours] == [one[:3] for one in theirs]
    return [
        found
        for left, right in zip(ours, theirs, strict=True)
        for found in compare(
            Asked(*left[:3]), about_rights(left.answer), about_rights(right.answer)
        )
    ]


@pytest.mark.parametrize("user", USERS)
def test_both_refuse_the_same(pair: SecuredPair, user: str) -> None:
    ours, theirs = (play(each.guarded, pair.versions, user) for each in pair.servers)
    found = differences(ours, theirs)
    own = [each for each in EXPLANATIONS if user in each.scripts]
    missing, stale = unexplained(found, own)
    assert not missing, f"{len(missing)} differences\n{summary(missing)}"
    assert not stale, "\n" + "\n".join(map(str, stale))


def topics_by_expression(server: SecuredAddresses, versions: dict[int, range]) -> set[str]:
    """Return the topics that a member gets by an expression that matches every name."""
    side = Side(server.guarded, versions, Masks(0), (FEW, f"{FEW}-secret"))
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="mixture",
        member_id=str(uuid4()),
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=".*",
        topic_partitions=[],
    )
    try:
        for _ in rounds("an assignment"):
            answer = side.quietly(heartbeat, 1)
            assert answer.error_code in {0, *LOADING}, answer
            if not answer.error_code:
                heartbeat.member_epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
        names = {topic_id: name for name, topic_id in ids_of(server.guarded, versions).items()}
        return {names[each.topic_id] for each in answer.assignment.topic_partitions}
    finally:
        heartbeat.member_epoch = -1
        side.quietly(heartbeat, 1)
        side.close()


def test_an_expression_matches_what_may_be_described(pair: SecuredPair) -> None:
    ours, theirs = (topics_by_expression(each, pair.versions) for each in pair.servers)
    assert ours == theirs
    assert "hidden" not in ours
    assert "described" in ours
