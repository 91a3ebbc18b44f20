"""PartitionOpener: partitions that must be opened before a request can be served.

Rule: all that a request lacks is opened at once, then it is started again; what could not be opened
is told to it then, and forgotten when a request goes through: another one tries again.
Must not know: requests, what is done with logs.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from kledger.gateway.error_map import error_code_of
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.topics import PartitionLog, Topic, TopicRegistry, TopicsError, UnknownTopic

UnopenedPartition: TypeAlias = tuple[Topic, int]
LogOrOpenError: TypeAlias = PartitionLog | TopicsError
"""A log, or why it cannot be had."""
PartitionKeyT = TypeVar("PartitionKeyT", bound=tuple[str, int])
"""A partition, by the name of its topic."""

CONCURRENT_OPENS_MAX = 64
"""Logs that are opened side by side: what they store is committed, and synced, once for all."""


async def open_partitions(
    wanted: Iterable[UnopenedPartition],
) -> dict[UnopenedPartition, LogOrOpenError]:
    """Open those logs that are not; return each log, or why it could not be opened."""
    logs: dict[UnopenedPartition, LogOrOpenError] = {}
    missing = []
    for topic, index in wanted:
        log = topic.partition(index)
        if log is None:
            missing.append((topic, index))
        else:
            logs[topic, index] = log

    async def open_one(topic: Topic, index: int) -> None:
        try:
            logs[topic, index] = await topic.open_partition(index)
        except TopicsError as error:
            logs[topic, index] = error

    for start in range(0, len(missing), CONCURRENT_OPENS_MAX):
        some = missing[start : start + CONCURRENT_OPENS_MAX]
        await asyncio.gather(*(open_one(*each) for each in some))
    return logs


async def open_partitions_by_name(
    registry: TopicRegistry, wanted: Iterable[PartitionKeyT]
) -> dict[PartitionKeyT, LogOrOpenError]:
    """Open logs by the names of their topics; that there is no such topic is an answer, too."""
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
    """What could not be opened, for the handlers of one kind of request."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[UnopenedPartition, TopicsError] = {}

    def require(self, topic: Topic, index: int, missing: list[UnopenedPartition]) -> int:
        """Say why the log of a partition cannot be had; NONE: it was added to `missing`."""
        if not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        failed = self._failed.get((topic, index))
        if failed is not None:
            return error_code_of(failed)
        missing.append((topic, index))
        return ErrorCode.NONE

    async def open(self, missing: Sequence[UnopenedPartition]) -> None:
        """Open logs; a failure is told to whoever wants the log next."""
        for key, log in (await open_partitions(missing)).items():
            if isinstance(log, TopicsError):
                self._failed[key] = log

    def forget_failures(self) -> None:
        """A request goes through."""
        if self._failed:
            self._failed.clear()
