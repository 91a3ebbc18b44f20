"""MissingLogs: partitions that must be opened before a request can be served.

Rule: all that a request lacks is opened at once, then it is started again; what could not be opened
is told to it then, and forgotten when a request goes through: another one tries again.
Must not know: requests, what is done with logs.
"""

import asyncio
from collections.abc import Sequence

from gateway.error_map import error_code_of
from gateway.wire.error_codes import ErrorCode
from topics import Topic, TopicsError

Missing = tuple[Topic, int]

OPENED_TOGETHER_MAX = 64
"""Logs that are opened side by side: what they store is committed, and synced, once for all."""


async def open_together(missing: Sequence[Missing]) -> dict[Missing, TopicsError]:
    """Open logs, return why some could not be."""
    failed: dict[Missing, TopicsError] = {}

    async def open_one(topic: Topic, index: int) -> None:
        try:
            await topic.open_partition(index)
        except TopicsError as error:
            failed[topic, index] = error

    for start in range(0, len(missing), OPENED_TOGETHER_MAX):
        some = missing[start : start + OPENED_TOGETHER_MAX]
        await asyncio.gather(*(open_one(*each) for each in some))
    return failed


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
        self._failed.update(await open_together(missing))

    def forget(self) -> None:
        """A request goes through."""
        if self._failed:
            self._failed.clear()
