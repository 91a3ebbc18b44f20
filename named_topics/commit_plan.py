"""Commit plan: what becomes of one commit. Pure.

Rule: the rules of Coherence's topics, in this order. (1) An unknown group, (2) a position of
another type, (3) a subscriber that does not own the channel, unless that is allowed, and (4) a
position that was not read are rejected. (5) What is committed stays so; (6) where no element is
at or below the position, nothing happens. (7) Else all elements up to the position are committed.
"Read" means that the application has got the element, or that a seek has gone there.
Must not know: rows, subscribers, when a commit is durable.
"""

from typing import NamedTuple

from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.model import (
    ALREADY_COMMITTED,
    COMMITTED,
    ILLEGAL_ARGUMENT,
    ILLEGAL_STATE,
    NO_OFFSET,
    NOTHING_TO_COMMIT,
    REJECTED,
    UNOWNED,
    CommitOutcome,
)


class ChannelView(NamedTuple):
    """What a commit meets.

    Attributes:
        record: where the group stands.
        end_offset: behind the last element of the channel.
        read_offset: the last element that a subscriber of the group has read, or sought to.
        is_owner: whether the committer owns the channel.
        may_be_unowned: whether it may commit without owning it.
    """

    record: ChannelRecord
    end_offset: int
    read_offset: int
    is_owner: bool
    may_be_unowned: bool


class CommitDecision(NamedTuple):
    """The outcome, and the record to write; None: nothing changes."""

    outcome: CommitOutcome
    record: ChannelRecord | None = None


def rejected(error: str, reason: str) -> CommitDecision:
    """Return the decision to refuse a commit."""
    return CommitDecision(CommitOutcome(REJECTED, error, reason))


# A request may have thousands of commits, so what is the same for all of them is made once.
_OUTCOMES = {
    status: CommitOutcome(status, "", "")
    for status in (COMMITTED, UNOWNED, ALREADY_COMMITTED, NOTHING_TO_COMMIT)
}


def unchanged(status: str) -> CommitDecision:
    """Return the decision that nothing is to be done."""
    return CommitDecision(_OUTCOMES[status])


def decide_commit(
    view: ChannelView | None, channel: int, offset: int, *, what: str
) -> CommitDecision:
    """Decide one commit.

    Args:
        view: what it meets; None: there is no such group, or no such channel.
        channel: where.
        offset: the position; below NO_OFFSET: it is of another type or another channel.
        what: the group, for messages.
    """
    if view is None:
        return rejected(ILLEGAL_STATE, f"{what} does not exist, or has no channel {channel}")
    if offset < NO_OFFSET:
        return rejected(ILLEGAL_ARGUMENT, f"expected a position of channel {channel}")
    if not (view.is_owner or view.may_be_unowned):
        return rejected(ILLEGAL_STATE, f"the subscriber does not own channel {channel} of {what}")
    record = view.record
    if offset > view.read_offset:
        return rejected(
            ILLEGAL_ARGUMENT,
            f"position {offset} of channel {channel} is unread, {what} has read up to "
            f"{view.read_offset}",
        )
    if offset <= record.committed_offset:
        return unchanged(ALREADY_COMMITTED)
    if min(offset, view.end_offset - 1) < record.next_offset:
        return unchanged(NOTHING_TO_COMMIT)
    return CommitDecision(
        _OUTCOMES[COMMITTED if view.is_owner else UNOWNED],
        ChannelRecord(offset + 1, offset, record.revision),
    )
