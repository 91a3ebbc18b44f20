"""Named requests: one of every API, about a topic, a group and a transactional id of one's choice.

Rule: fields are known by their names, whatever the version. A request is harmless: it creates what
is validated only, or what has no effect on others.
Must not know: servers, responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from compat_tests.differential import words
from compat_tests.differential.connection import message_modules
from compat_tests.differential.recipes import ACL, CREATED, ELECTED, IN_TIME, SCRAM, TOKEN
from compat_tests.differential.variants import filled
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicState
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage


class Names(NamedTuple):
    """What requests are about."""

    topic: str
    topic_id: UUID = words.UNKNOWN_ID
    group: str = "g"
    transactional_id: str = "x"


def named_request(
    key: int, version: int, names: Names, changes: Mapping[str, Any] | None = None
) -> ApiMessage:
    """Build a request of an API that names these things; `changes` are fields by name."""
    known = _everywhere(names) | _of_api(names).get(key, {}) | dict(changes or {})
    request: ApiMessage = filled(message_modules()[key].REQUEST, version, known)
    return request


def _everywhere(names: Names) -> dict[str, Any]:
    return {
        "topic": names.topic,
        "name": names.topic,
        "topic_name": names.topic,
        "topic_names": [names.topic],
        "topic_id": names.topic_id,
        "subscribed_topic_names": [names.topic],
        "group_id": names.group,
        "group_ids": [names.group],
        "groups_names": [names.group],
        "transactional_id": names.transactional_id,
        "transactional_ids": [names.transactional_id],
        "v3_and_below_transactional_id": names.transactional_id,
        "partition_indexes": [0],
        "replica_id": -1,
        "validate_only": True,
        "committed_metadata": "m",
        **IN_TIME,
    }


def _of_api(names: Names) -> dict[int, dict[str, Any]]:
    setting = {
        "resource_type": 2, "resource_name": names.topic, "name": "retention.ms", "value": "60000",
    }  # fmt: skip
    partition = {"partitions": [0]}
    quota = {
        "entity_type": "client-id", "entity_name": "named", "match": "named",
        "key": "producer_byte_rate", "value": 1e9,
    }  # fmt: skip
    return {
        0: {"acks": -1, "transactional_id": None, "index": 0, "records": words.batch(b"v")},
        1: {
            "max_wait_ms": 0,
            "max_bytes": 1 << 20,
            "partition_max_bytes": 1 << 20,
            "session_epoch": -1,
            "forgotten_topics_data": [],
        },
        2: {"timestamp": -1},
        3: {
            "allow_auto_topic_creation": False,
            "topic_id": ZERO_UUID,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        10: {"key": names.group, "coordinator_keys": [names.group]},
        11: {"session_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": []},
        12: {"generation_id": 1, "member_id": "m"},
        13: {"member_id": "m", "members": []},
        14: {"protocol_type": "consumer", "protocol_name": "range", "assignments": []},
        15: {"groups": [names.group], "include_authorized_operations": True},
        16: {},
        18: {"client_software_name": "named", "client_software_version": "1"},
        19: CREATED,
        20: {"topics": [DeleteTopicState(name=names.topic)]},
        21: {"offset": 0},
        22: {"transactional_id": None, "transaction_timeout_ms": 60_000},
        24: partition | {"verify_only": False},
        28: {"member_id": "", "generation_id": -1},
        29: ACL,
        30: ACL | {"resource_pattern_type": 3, "resource_name": "nobody-minds"},
        31: ACL | {"pattern_type_filter": 3, "resource_name_filter": "nobody-has-this"},
        32: setting | {"configuration_keys": None},
        33: setting,
        34: partition | {"path": "/nowhere"},
        37: {"count": 100, "assignments": None},
        38: TOKEN,
        39: TOKEN,
        40: TOKEN,
        43: ELECTED,
        44: setting,
        45: {"replicas": [1]},
        48: quota | {"match_type": 0},
        49: quota,
        50: {"name": "nobody"},
        51: SCRAM | {"name": "nobody", "deletions": []},
        57: {"feature_updates": []},
        60: {"endpoint_type": 1, "include_cluster_authorized_operations": True},
        66: {"duration_filter": -1},
        68: {
            "member_epoch": 5,
            "member_id": "m",
            "rebalance_timeout_ms": 10_000,
            "topic_partitions": [],
        },
        69: {"include_authorized_operations": True},
        75: {"cursor": None},
    }
