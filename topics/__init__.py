"""Topics: names, partitions and configuration, and a partition as a log of record batches.

Rule: both façades append and read through this package, so one implementation assigns offsets,
admits producers and enforces time rules. These names are its public interface; the first use of one
loads its module, because compaction runs modules of this package in processes that use no others.
Must not know: wire formats, connections, committed offsets of groups.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kledger.topics.config.config_keys import CONFIG_KEYS
    from kledger.topics.config.config_values import ConfigType
    from kledger.topics.config.topic_config import (
        ConfigEntry,
        ConfigSource,
        TopicDefaults,
        describe,
    )
    from kledger.topics.errors import (
        InvalidConfig,
        InvalidReplicationFactor,
        InvalidTopicName,
        PartitionTerminated,
        TopicsError,
        UnknownPartition,
        UnknownTopic,
    )
    from kledger.topics.partition.long_walk import run_walk
    from kledger.topics.partition.partition_log import PartitionLog
    from kledger.topics.partition.record_walk import RecordWalk, WalkNeeded, WalkResult
    from kledger.topics.partition.results import AppendResult, LogLocation, ReadResult
    from kledger.topics.partition.transaction_state import AbortedTransaction, TransactionEnd
    from kledger.topics.registry import TopicRegistry, check_partition_count
    from kledger.topics.topic import Topic
    from kledger.topics.topic_names import check_name

__all__ = [
    "CONFIG_KEYS",
    "AbortedTransaction",
    "AppendResult",
    "ConfigEntry",
    "ConfigSource",
    "ConfigType",
    "InvalidConfig",
    "InvalidReplicationFactor",
    "InvalidTopicName",
    "LogLocation",
    "PartitionLog",
    "PartitionTerminated",
    "ReadResult",
    "RecordWalk",
    "Topic",
    "TopicDefaults",
    "TopicRegistry",
    "TopicsError",
    "TransactionEnd",
    "UnknownPartition",
    "UnknownTopic",
    "WalkNeeded",
    "WalkResult",
    "check_name",
    "check_partition_count",
    "describe",
    "run_walk",
]

# The module of each name.
_HOMES = {
    "kledger.topics.config.config_keys": ("CONFIG_KEYS",),
    "kledger.topics.config.config_values": ("ConfigType",),
    "kledger.topics.config.topic_config": (
        "ConfigEntry", "ConfigSource", "TopicDefaults", "describe",
    ),
    "kledger.topics.errors": (
        "InvalidConfig", "InvalidReplicationFactor", "InvalidTopicName", "PartitionTerminated",
        "TopicsError", "UnknownPartition", "UnknownTopic",
    ),
    "kledger.topics.partition.long_walk": ("run_walk",),
    "kledger.topics.partition.partition_log": ("PartitionLog",),
    "kledger.topics.partition.record_walk": ("RecordWalk", "WalkNeeded", "WalkResult"),
    "kledger.topics.partition.results": ("AppendResult", "LogLocation", "ReadResult"),
    "kledger.topics.partition.transaction_state": ("AbortedTransaction", "TransactionEnd"),
    "kledger.topics.registry": ("TopicRegistry", "check_partition_count"),
    "kledger.topics.topic": ("Topic",),
    "kledger.topics.topic_names": ("check_name",),
}  # fmt: skip

if not TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
