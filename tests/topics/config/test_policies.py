"""Policies: names, values, spellings, and which level is in force."""

from collections.abc import Mapping

import pytest

from kledger.topics.config.policies import POLICIES, policies_of, policy_configs
from kledger.topics.config.topic_config import TopicConfig, TopicDefaults, effective_config
from kledger.topics.errors import InvalidConfig

FIELDS = {
    "managedLedgerDataReadPriority": "data_read_priority",
    "managedLedgerOffloadThresholdInBytes": "offload_threshold_bytes",
    "managedLedgerOffloadThresholdInSeconds": "offload_threshold_seconds",
    "managedLedgerOffloadDeletionLagMs": "offload_deletion_lag_ms",
    "compactionThreshold": "compaction_threshold_bytes",
}
ABSENT = {
    "managedLedgerDataReadPriority": "tiered-first",
    "managedLedgerOffloadThresholdInBytes": "-1",
    "managedLedgerOffloadThresholdInSeconds": "-1",
    "managedLedgerOffloadDeletionLagMs": "-1",
    "compactionThreshold": "0",
}


def in_force(*levels: Mapping[str, str]) -> TopicConfig:
    """Resolve the policies of topic, namespace and server."""
    topic, namespace, server = (
        {name: text for name, text in policy_configs(level).items() if text is not None}
        for level in levels
    )
    return effective_config(topic, TopicDefaults(configs=server), namespace)


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_topic_precedes_its_namespace_and_that_the_server(name: str) -> None:
    one, two, three = (
        ("bookkeeper-first", "tiered-first", "bookkeeper-first")
        if name == "managedLedgerDataReadPriority"
        else ("1", "2", "3")
    )
    for topic, namespace, server, expected in (
        (one, two, three, one), (None, two, three, two), (None, None, three, three),
        (one, None, None, one), (one, None, three, one), (None, None, None, ABSENT[name]),
    ):  # fmt: skip
        levels = [{} if each is None else {name: each} for each in (topic, namespace, server)]
        assert expected == str(getattr(in_force(*levels), FIELDS[name]))


def test_each_policy_is_resolved_by_itself() -> None:
    config = in_force(
        {"compactionThreshold": "1"},
        {"compactionThreshold": "2", "managedLedgerOffloadDeletionLagMs": "2"},
        {"managedLedgerOffloadDeletionLagMs": "3", "managedLedgerOffloadThresholdInBytes": "3"},
    )
    assert (1, 2, 3) == (
        config.compaction_threshold_bytes, config.offload_deletion_lag_ms,
        config.offload_threshold_bytes,
    )  # fmt: skip


def test_the_read_priority_is_shown_in_the_spelling_of_the_proposal() -> None:
    configs = policy_configs({"managedLedgerDataReadPriority": " tiered-storage-first"})
    assert {"kledger.data.read.priority": "tiered-first"} == configs
    stored_by_kafkas_tools = {"kledger.data.read.priority": "tiered-storage-first"}
    assert {"managedLedgerDataReadPriority": "tiered-first"} == policies_of(stored_by_kafkas_tools)


def test_other_settings_are_no_policies() -> None:
    assert {"compactionThreshold": "5"} == policies_of(
        {"retention.ms": "1", "kledger.compaction.threshold.bytes": "5"}
    )


def test_none_removes_a_policy() -> None:
    assert {"kledger.compaction.threshold.bytes": None} == policy_configs(
        {"compactionThreshold": None}
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("managedLedgerDataReadPriority", "fastest", "tiered-first, bookkeeper-first"),
        ("managedLedgerDataReadPriority", "", "tiered-first, bookkeeper-first"),
        ("managedLedgerOffloadThresholdInBytes", "-2", "at least -1"),
        (
            "managedLedgerOffloadThresholdInSeconds",
            "soon",
            "managedLedgerOffloadThresholdInSeconds",
        ),
        ("managedLedgerOffloadDeletionLagMs", "9223372036854775808", "managedLedgerOffloadDel"),
        ("compactionThreshold", "-1", "at least 0"),
        ("retention", "1", "expected one of managedLedgerDataReadPriority, managedLedgerOffload"),
    ],
)
def test_what_is_refused_says_what_is_allowed(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        policy_configs({"compactionThreshold": "1", name: text})
