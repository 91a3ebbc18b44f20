"""The seven rules of a commit, in their order."""

import pytest

from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.commit_plan import ChannelView, decide_commit
from kledger.named_topics.model import NO_OFFSET, WRONG_POSITION


def view(
    *,
    next_offset: int = 3,
    committed: int = 2,
    end: int = 10,
    read: int = 6,
    is_owner: bool = True,
    may_be_unowned: bool = False,
) -> ChannelView:
    return ChannelView(
        ChannelRecord(next_offset, committed, 4), end, read, is_owner, may_be_unowned
    )


@pytest.mark.parametrize(
    ("met", "offset", "status", "error"),
    [
        # Each row breaks its own rule and all behind it: the first one counts.
        (None, WRONG_POSITION, "rejected", "state"),
        (view(is_owner=False), WRONG_POSITION, "rejected", "argument"),
        (view(is_owner=False), 7, "rejected", "state"),
        (view(), 7, "rejected", "argument"),
        (view(), 2, "already_committed", ""),
        (view(), NO_OFFSET, "already_committed", ""),
        (view(next_offset=5, committed=NO_OFFSET), 4, "nothing_to_commit", ""),
        (view(next_offset=10, committed=NO_OFFSET, read=12), 12, "nothing_to_commit", ""),
        (view(is_owner=False, may_be_unowned=True), 7, "rejected", "argument"),
    ],
)
def test_nothing_changes(met: ChannelView | None, offset: int, status: str, error: str) -> None:
    decision = decide_commit(met, 0, offset, what="group g")
    assert (status, error) == decision.outcome[:2]
    assert bool(error) == bool(decision.outcome.reason)
    assert decision.record is None


@pytest.mark.parametrize(("is_owner", "status"), [(True, "committed"), (False, "unowned")])
@pytest.mark.parametrize("offset", [3, 6])
def test_everything_up_to_the_position_is_committed(
    is_owner: bool, status: str, offset: int
) -> None:
    decision = decide_commit(
        view(is_owner=is_owner, may_be_unowned=True), 0, offset, what="group g"
    )
    assert (status, "", "") == decision.outcome
    assert ChannelRecord(offset + 1, offset, 4) == decision.record
