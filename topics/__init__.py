"""Topics: names, partitions and configuration, and a partition as a log of record batches.

Rule: both façades append and read through this package, so one implementation assigns offsets,
admits producers and enforces time rules. These names are its face.
Must not know: wire formats, connections, committed offsets of groups.
"""

from kledger.topics.config.config_keys import CONFIG_KEYS
from kledger.topics.config.config_values import ConfigType
from kledger.topics.config.topic_config import ConfigEntry, ConfigSource, TopicDefaults, describe
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
from kledger.topics.partition.transaction_state import AbortedTransaction
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
    "UnknownPartition",
    "UnknownTopic",
    "WalkNeeded",
    "WalkResult",
    "check_name",
    "check_partition_count",
    "describe",
    "run_walk",
]
