"""The facts of Kafka's message definitions, for tests to hold the declarations against.

Rule: reads the JSON by itself, so that a mistake in our own reading cannot hide.
"""

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from kledger.gateway.wire.schema import ApiMessage

FACTS = Path(__file__).parents[2] / "data" / "kafka-messages-4.3.0.json"

STEMS = {
    0: "produce", 1: "fetch", 2: "list_offsets", 3: "metadata", 8: "offset_commit",
    9: "offset_fetch", 10: "find_coordinator", 11: "join_group", 12: "heartbeat", 13: "leave_group",
    14: "sync_group", 15: "describe_groups", 16: "list_groups", 17: "sasl_handshake",
    18: "api_versions", 19: "create_topics", 20: "delete_topics", 21: "delete_records",
    22: "init_producer_id", 23: "offset_for_leader_epoch", 24: "add_partitions_to_txn",
    25: "add_offsets_to_txn", 26: "end_txn", 27: "write_txn_markers", 28: "txn_offset_commit",
    29: "describe_acls", 30: "create_acls", 31: "delete_acls", 32: "describe_configs",
    33: "alter_configs", 34: "alter_replica_log_dirs", 35: "describe_log_dirs",
    36: "sasl_authenticate", 37: "create_partitions", 38: "create_delegation_token",
    39: "renew_delegation_token", 40: "expire_delegation_token", 41: "describe_delegation_token",
    42: "delete_groups", 43: "elect_leaders", 44: "incremental_alter_configs",
    45: "alter_partition_reassignments", 46: "list_partition_reassignments", 47: "offset_delete",
    48: "describe_client_quotas", 49: "alter_client_quotas", 50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials", 55: "describe_quorum", 57: "update_features",
    60: "describe_cluster", 61: "describe_producers", 65: "describe_transactions",
    66: "list_transactions", 68: "consumer_group_heartbeat", 69: "consumer_group_describe",
    71: "get_telemetry_subscriptions", 72: "push_telemetry", 74: "list_config_resources",
    75: "describe_topic_partitions",
}  # fmt: skip

UNSTABLE = {22: 6}
"""Versions that Kafka 4.3 does not offer by default; they are not declared."""


@cache
def definitions() -> list[dict[str, Any]]:
    """Return every definition of the file."""
    found: list[dict[str, Any]] = json.loads(FACTS.read_text("utf-8"))["messages"]
    return found


def definition(cls: type[ApiMessage]) -> dict[str, Any]:
    """Return the definition of one of our messages."""
    (found,) = (one for one in definitions() if one["name"] == cls.__name__)
    return found


@cache
def messages() -> tuple[type[ApiMessage], ...]:
    """Return every message class, request before response, by key."""
    found = []
    for key, stem in STEMS.items():
        module = import_module(f"kledger.gateway.wire.messages.k{key:02d}_{stem}")
        found += [module.REQUEST, module.RESPONSE]
    return tuple(found)


def versions(cls: type[ApiMessage]) -> range:
    """Return the versions that a class declares."""
    return range(cls.__api__.versions.low, cls.__api__.versions.high + 1)


def bounds(text: str) -> tuple[int, int]:
    """Read `3+`, `0-7`, `2` and `none`."""
    if text == "none":
        return 1, 0
    if text.endswith("+"):
        return int(text[:-1]), 1000
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def holds(text: str, version: int) -> bool:
    """Say whether a version is in a range of the file."""
    low, high = bounds(text)
    return low <= version <= high


def default_of(field: dict[str, Any]) -> Any:
    """Return the default that Kafka's generator gives a field; structs are "fresh"."""
    kind, text = field["type"], field.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        return "fresh"
    if kind == "bool":
        return text in {True, "true"}
    if kind == "string":
        return text or ""
    if kind in {"bytes", "records"}:
        return b""
    if kind == "uuid":
        return UUID(int=0)
    if kind == "float64":
        return float(text or 0)
    return int(str(text), 0) if text not in {None, ""} else 0


def snake(name: str) -> str:
    """Turn `TopicData` into `topic_data`."""
    out = ""
    for index, letter in enumerate(name):
        after_small = index and (name[index - 1].islower() or name[index - 1].isdigit())
        before_small = index and name[index + 1 : index + 2].islower()
        if letter.isupper() and (after_small or before_small):
            out += "_"
        out += letter.lower()
    return out
