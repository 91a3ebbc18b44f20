"""MissingLogs: partitions that must be opened before a request can be served.

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

Missing: TypeAlias = tuple[Topic, int]
Opened: TypeAlias = PartitionLog | TopicsError
"""A log, or why it cannot be had."""
Place = TypeVar("Place", bound=tuple[str, int])
"""A partition, by the name of its topic."""

OPENED_TOGETHER_MAX = 64
"""Logs that are opened side by side: what they store is committed, and synced, once for all."""


async def open_together(wanted: Iterable[Missing]) -> dict[Missing, Opened]:
    """Open those logs that are not; return each log, or why it could not be opened."""
    logs: dict[Missing, Opened] = {}
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

    for start in range(0, len(missing), OPENED_TOGETHER_MAX):
        some = missing[start : start + OPENED_TOGETHER_MAX]
        await asyncio.gather(*(open_one(*each) for each in some))
    return logs


async def open_by_name(registry: TopicRegistry, wanted: Iterable[Place]) -> dict[Place, Opened]:
    """Open logs by the names of their topics; that there is no such topic is an answer, too."""
    topics = {place: registry.get(place[0]) for place in wanted}
    logs = await open_together(
        (topic, place[1]) for place, topic in topics.items() if topic is not None
    )
    return {
        place: UnknownTopic(f"no topic is called {place[0]!r}")
        if topic is None
        else logs[topic, place[1]]
        for place, topic in topics.items()
    }


class MissingLogs:
    """What could not be opened, for the handlers of one kind of request."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[Missing, TopicsError] = {}

    def want(self, topic: Topic, index: int, missing: list[Missing]) -> int:
        """Say why the log of a partition cannot be had; NONE: it was added to `missing`."""
        if not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        failed = self._failed.get((topic, index))
        if failed is not None:
            return error_code_of(failed)
        missing.append((topic, index))
        return ErrorCode.NONE

    async def open(self, missing: Sequence[Missing]) -> None:
        """Open logs; a failure is told to whoever wants the log next."""
        for place, log in (await open_together(missing)).items():
            if isinstance(log, TopicsError):
                self._failed[place] = log

    def forget(self) -> None:
        """A request goes through."""
        if self._failed:
            self._failed.clear()
