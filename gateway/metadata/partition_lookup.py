"""Partition lookup: from the topics and partitions that a request names to their logs.

Rule: an open log costs no await. All logs that a request lacks are opened together, then the
request is started again. A failure to open one is answered then, and forgotten when a request
passes: the next one tries to open it again.
Must not know: requests, what is done with logs.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from kledger.gateway.api_errors import error_code_of
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.runtime.concurrent_work import run_some_at_a_time
from kledger.topics import PartitionLog, Topic, TopicRegistry, TopicsError, UnknownTopic

UnopenedPartition: TypeAlias = tuple[Topic, int]
LogOrOpenError: TypeAlias = PartitionLog | TopicsError
"""A log, or the error of opening it."""
PartitionKeyT = TypeVar("PartitionKeyT", bound=tuple[str, int])
"""A partition, by the name of its topic and its index."""

CONCURRENT_OPENS_MAX = 64
"""Logs that are opened together: what they store is committed in one batch, with one sync."""


class TopicLookup:
    """Topics by the bytes of requests: a name in UTF-8, or the 16 bytes of an id.

    Found topics are cached until the registry changes, so a request costs one look-up in a
    dictionary, and no name is decoded twice. The keys are the topics' own objects.
    """

    __slots__ = ("_by_id", "_by_name", "_epoch", "_registry")

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry
        self._epoch = registry.epoch
        self._by_name: dict[bytes, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}

    def by_name(self, name: bytes) -> Topic | None:
        """Return the topic of that name, or None."""
        if self._epoch != self._registry.epoch:
            self._forget()
        topic = self._by_name.get(name)
        if topic is None:
            topic = self._registry.get(name.decode("utf-8", "replace"))
            if topic is not None:
                self._by_name[topic.name_bytes] = topic
        return topic

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with that id, or None."""
        if self._epoch != self._registry.epoch:
            self._forget()
        topic = self._by_id.get(topic_id)
        if topic is None:
            topic = self._registry.get_by_id(uuid.UUID(bytes=topic_id))
            if topic is not None:
                self._by_id[topic.id_bytes] = topic
        return topic

    def _forget(self) -> None:
        self._epoch = self._registry.epoch
        self._by_name.clear()
        self._by_id.clear()


async def open_partitions(
    wanted: Iterable[UnopenedPartition],
) -> dict[UnopenedPartition, LogOrOpenError]:
    """Open the logs that are not open; return each log, or the error of opening it."""
    logs: dict[UnopenedPartition, LogOrOpenError] = {}
    missing = []
    for topic, index in wanted:
        log = topic.partition(index)
        if log is None:
            missing.append((topic, index))
        else:
            logs[topic, index] = log

    async def open_one(partition: UnopenedPartition) -> None:
        topic, index = partition
        try:
            logs[partition] = await topic.open_partition(index)
        except TopicsError as error:
            logs[partition] = error

    await run_some_at_a_time(open_one, missing, CONCURRENT_OPENS_MAX)
    return logs


async def open_partitions_by_name(
    registry: TopicRegistry, wanted: Iterable[PartitionKeyT]
) -> dict[PartitionKeyT, LogOrOpenError]:
    """Open logs by the names of their topics; an unknown topic is `UnknownTopic`."""
    topics = {key: registry.get(key[0]) for key in wanted}
    logs = await open_partitions(
        (topic, key[1]) for key, topic in topics.items() if topic is not None
    )
    return {
        key: UnknownTopic(f"no topic is called {key[0]!r}")
        if topic is None
        else logs[topic, key[1]]
        for key, topic in topics.items()
    }


class PartitionOpener:
    """Opens logs for one handler, and keeps the failures until its request is started again."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[UnopenedPartition, TopicsError] = {}

    def require(self, topic: Topic, index: int, missing: list[UnopenedPartition]) -> int:
        """Return the error of a partition without an open log; NONE: it was added to `missing`."""
        if not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not topic.leads(index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        failed = self._failed.get((topic, index))
        if failed is not None:
            return error_code_of(failed)
        missing.append((topic, index))
        return ErrorCode.NONE

    async def open(self, missing: Sequence[UnopenedPartition]) -> None:
        """Open logs; `require` returns the failures."""
        for key, log in (await open_partitions(missing)).items():
            if isinstance(log, TopicsError):
                self._failed[key] = log

    def forget_failures(self) -> None:
        """Forget failures: a request passed."""
        if self._failed:
            self._failed.clear()
