"""Retention plan: which elements of a channel are still there. Pure.

Rule: on a topic that does not retain, an element is there until every group has committed it, and
without a group none is. The logical start of a channel follows from the durable positions of the
groups, so that it is exact after a crash too, and before the log is trimmed. Expired elements are
not there for anyone.
Must not know: logs, rows.
"""

from collections.abc import Iterable
from typing import NamedTuple


class ChannelLog(NamedTuple):
    """The log of a channel.

    Attributes:
        start_offset: of the log.
        end_offset: behind the last committed record.
        unexpired_offset: of the first element that has not expired.
    """

    start_offset: int
    end_offset: int
    unexpired_offset: int = 0


def logical_start(log: ChannelLog, next_offsets: Iterable[int], *, is_retaining: bool) -> int:
    """Return the offset of the first element that is there.

    Args:
        log: of the channel.
        next_offsets: of every group: behind its last commit.
        is_retaining: whether committed elements stay.
    """
    start = max(log.start_offset, log.unexpired_offset)
    if not is_retaining:
        start = max(start, min(next_offsets, default=log.end_offset))
    return min(start, log.end_offset)


def first_offset_of_group(log: ChannelLog, *, is_retaining: bool) -> int:
    """Return where a new group begins: at the head of a retaining topic, else at the tail."""
    return logical_start(log, (), is_retaining=True) if is_retaining else log.end_offset
