"""The values of named topics on the wire; that any value arrives is tested with the calls."""

import pytest

from kledger.named_topics.model import ChannelCommit, CommitOutcome, CommitRequest
from kledger.native.errors import InvalidArgument
from kledger.native.rpc.named_topic_values import (
    commit_outcomes_from,
    commit_outcomes_to,
    commit_request_from,
    commit_request_to,
)

COMMITTED = CommitOutcome("committed", "", "")
REFUSED = CommitOutcome("rejected", "state", "it does not own channel 3")


def test_thousands_of_commits_are_a_few_kilobytes_and_their_outcomes_a_few_bytes() -> None:
    commits = tuple(ChannelCommit(number % 17, number, 1000, 0) for number in range(1000))
    request = CommitRequest("workers", 1, commits)
    message = commit_request_to(request)
    assert 7_000 > message.ByteSize()
    assert request == commit_request_from(message)
    (outcome,) = commit_outcomes_to([COMMITTED] * 1000)
    assert 20 > outcome.ByteSize()
    assert [COMMITTED] * 1000 == commit_outcomes_from([outcome])


def test_outcomes_keep_their_order() -> None:
    outcomes = [COMMITTED, REFUSED, REFUSED, COMMITTED]
    messages = commit_outcomes_to(outcomes)
    assert [1, 2, 1] == [each.count for each in messages]
    assert outcomes == commit_outcomes_from(messages)


def test_columns_of_different_lengths_are_refused() -> None:
    message = commit_request_to(CommitRequest("workers", 1, (ChannelCommit(0, 5, 6, 7),)))
    message.revisions.append(8)
    with pytest.raises(InvalidArgument, match="1 channels, 1 offsets, 1 read_offsets, 2 revisions"):
        commit_request_from(message)
