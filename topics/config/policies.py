"""Policies: settings of topics that a namespace can have too, under Pulsar's names.

Rule: a policy is a setting of topics, stored and resolved as such; a value of the topic precedes
that of its namespace, and that the server's, key by key. A value is checked before it is stored,
and shown in one spelling.
Must not know: namespaces, topics, clients.
Source: Pulsar's OffloadPolicies, Policies; PIP-73 for the read priority and its spelling.
"""

from collections.abc import Mapping

from kledger.topics.config.config_keys import (
    COMPACTION_THRESHOLD,
    CONFIG_KEYS,
    DATA_READ_PRIORITY,
    OFFLOAD_DELETION_LAG_MS,
    OFFLOAD_THRESHOLD_BYTES,
    OFFLOAD_THRESHOLD_SECONDS,
    TIERED_FIRST,
    TIERED_STORAGE_FIRST,
)
from kledger.topics.config.config_values import SHOWN_MAX, normal_text, parse
from kledger.topics.errors import InvalidConfig

POLICIES: Mapping[str, str] = {
    "managedLedgerDataReadPriority": DATA_READ_PRIORITY,
    "managedLedgerOffloadThresholdInBytes": OFFLOAD_THRESHOLD_BYTES,
    "managedLedgerOffloadThresholdInSeconds": OFFLOAD_THRESHOLD_SECONDS,
    "managedLedgerOffloadDeletionLagMs": OFFLOAD_DELETION_LAG_MS,
    "compactionThreshold": COMPACTION_THRESHOLD,
}
"""Settings of topics by the names of policies."""


def policy_configs(policies: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the settings of topics for policies that are to be set; None removes one.

    Raises:
        InvalidConfig: a policy is unknown or its value is not allowed; it says what is allowed.
    """
    return {_config_of(name): _checked(name, text) for name, text in policies.items()}


def policies_of(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the policies among settings of one level, in PIP-73's spelling."""
    return {name: _shown(configs[config]) for name, config in POLICIES.items() if config in configs}


def _config_of(name: str) -> str:
    if name not in POLICIES:
        raise InvalidConfig(
            f"policy: expected one of {', '.join(POLICIES)}, got {name[:SHOWN_MAX]!r}"
        )
    return POLICIES[name]


def _checked(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    key = CONFIG_KEYS[POLICIES[name]]
    return _shown(normal_text(parse(name, key.type, text, key.allowed)))


def _shown(text: str) -> str:
    return TIERED_FIRST if text.strip() == TIERED_STORAGE_FIRST else text.strip()
