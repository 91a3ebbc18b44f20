"""Topics: names, partitions and configuration, and a partition as a log of record batches.

Rule: both façades append and read here, so offsets are given out, producers admitted and time
rules kept in one place. What stands here is the face that the façades use.
Must not know: wire formats, connections, committed offsets of groups.
"""

from kledger.topics.config_keys import CONFIG_KEYS
from kledger.topics.config_values import ConfigType
from kledger.topics.errors import (
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidTopicName,
    TopicsError,
    TopicTerminated,
    UnknownPartition,
    UnknownTopic,
)
from kledger.topics.partition_log import PartitionLog
from kledger.topics.partition_places import Location
from kledger.topics.record_walk import RecordWalk, Walked, WalkNeeded
from kledger.topics.registry import TopicRegistry
from kledger.topics.results import AppendResult, ReadResult
from kledger.topics.topic import Topic
from kledger.topics.topic_config import ConfigEntry, ConfigSource, TopicDefaults, describe
from kledger.topics.topic_names import check_name
from kledger.topics.transaction_state import AbortedTransaction

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
    "Location",
    "PartitionLog",
    "ReadResult",
    "RecordWalk",
    "Topic",
    "TopicDefaults",
    "TopicRegistry",
    "TopicTerminated",
    "TopicsError",
    "UnknownPartition",
    "UnknownTopic",
    "WalkNeeded",
    "Walked",
    "check_name",
    "describe",
]
