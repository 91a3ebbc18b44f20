"""Seek plan: where a seek leads, and what it does to the commit. Pure.

Rule: the Javadoc of `Subscriber.seek`. The next element is the one behind the position; a position
before the head leads to the head, one behind the tail to the tail. Forwards the commit stays;
backwards over it, it moves back to the position, which is then durable. `seek_to_head` removes it.
A seek that commits moves it in either direction.

The position that a seek returns is the one before the next element, so that a seek to it leads to
the same element again; `seek_to_head` alone returns that element's own. In an empty channel it is
the one before the first offset.
Must not know: rows, logs, subscribers.
"""

from typing import NamedTuple

from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.model import (
    NO_OFFSET,
    TO_HEAD,
    TO_POSITION,
    TO_TAIL,
    ChannelTarget,
    SeekOutcome,
)


class SeekBounds(NamedTuple):
    """The elements of a channel: from `head_offset` to before `end_offset`."""

    head_offset: int
    end_offset: int


class SeekDecision(NamedTuple):
    """The outcome, and the record to write."""

    outcome: SeekOutcome
    record: ChannelRecord


def decide_seek(
    record: ChannelRecord,
    target: ChannelTarget,
    bounds: SeekBounds,
    *,
    time_offset: int | None = None,
    is_committing: bool = False,
) -> SeekDecision:
    """Decide one seek.

    Args:
        record: where the group stands.
        target: where to go.
        bounds: of the elements that are available to the group.
        time_offset: of the first element with a later timestamp than the target's; None: there is
            none.
        is_committing: whether the commit moves along.
    """
    head, end = bounds
    match target.kind:
        case kind if kind == TO_POSITION:
            wanted = target.value + 1
        case kind if kind == TO_HEAD:
            wanted = head
        case kind if kind == TO_TAIL:
            wanted = end
        case _:
            wanted = end if time_offset is None else time_offset
    next_offset = min(max(wanted, head), end)
    sought = next_offset - 1
    committed, rollback = record.committed_offset, record.next_offset
    if target.kind == TO_HEAD:
        committed, rollback = NO_OFFSET, head
        sought = head if head < end else head - 1
    elif is_committing or next_offset < rollback:
        committed, rollback = sought, next_offset
    revised = ChannelRecord(rollback, committed, record.revision + 1)
    return SeekDecision(SeekOutcome(target.channel, sought, next_offset, revised.revision), revised)
