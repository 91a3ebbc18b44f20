"""Which offsets expire, in which order pending ones hold, and where pending ones are."""

import uuid

import pytest

from kledger.offsets import NO_EXPIRY, CommittedOffset, ExpiryRule, TopicPartition
from kledger.offsets.offsets_state import PendingIndex, expired, is_superseded, sent_after

TOPIC_ID = uuid.UUID(int=1)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def at(offset: int, commit_ms: int = 0, expire_ms: int = NO_EXPIRY) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms, expire_ms, TOPIC_ID)


def test_offsets_count_from_each_commit_or_from_when_the_group_was_empty() -> None:
    committed = {T0: at(1, commit_ms=0), T1: at(1, commit_ms=500)}

    by_commit = ExpiryRule(now_ms=1_200, retention_ms=1_000)
    assert [T0] == list(expired(committed, by_commit))
    since_empty = ExpiryRule(now_ms=1_200, retention_ms=1_000, counted_from_ms=300)
    assert [] == list(expired(committed, since_empty))
    later = ExpiryRule(now_ms=1_300, retention_ms=1_000, counted_from_ms=300)
    assert [T0, T1] == list(expired(committed, later))


def test_topics_in_use_are_kept() -> None:
    rule = ExpiryRule(now_ms=9_999, retention_ms=1, kept_topics=frozenset({"t"}))
    assert [U0] == list(expired({T0: at(1), U0: at(1)}, rule))


def test_time_named_by_an_old_client_goes_first() -> None:
    committed = {T0: at(1, expire_ms=1_001), T1: at(1, expire_ms=50), U0: at(1, expire_ms=1_000)}
    assert [T1, U0] == list(expired(committed, ExpiryRule(now_ms=1_000, retention_ms=1)))


@pytest.mark.parametrize(
    ("sent_ms", "pending_ms", "committed_ms", "expected_ms"),
    [
        (10, [], None, 10),
        (10, [9], None, 10),
        (10, [10], None, 11),
        (10, [30, 20], None, 31),
        (10, [], 9, 10),
        (10, [], 10, 10),
        (10, [], 12, 12),
        (10, [14], 12, 15),
        (10, [11], 12, 12),
    ],
)
def test_time_of_an_offset_is_after_those_that_were_sent_before(
    sent_ms: int, pending_ms: list[int], committed_ms: int | None, expected_ms: int
) -> None:
    committed = None if committed_ms is None else at(1, commit_ms=committed_ms)
    pending = [at(2, commit_ms=each) for each in pending_ms]
    assert at(3, commit_ms=expected_ms) == sent_after(at(3, sent_ms), pending, committed)


def test_an_offset_that_was_sent_later_overtakes() -> None:
    committed = at(1, commit_ms=10)
    overtaken = [is_superseded(at(5, commit_ms=each), committed) for each in (9, 10, 11)]
    assert [True, False, False] == overtaken
    assert not is_superseded(at(5), None)


def test_row_101_offsets_are_pending_until_each_transaction_has_ended() -> None:
    index = PendingIndex()
    index.replay("g", {(9, T0): at(5), (8, T0): at(6), (9, T1): at(6)})
    index.replay("g", {(9, T0): at(7)})
    assert [True, True, False] == [index.has_pending("g", each) for each in (T0, T1, U0)]
    assert {T0: {8, 9}, T1: {9}} == index.producers("g")

    index.replay("g", {(9, T0): None, (9, T1): None})
    assert [True, False] == [index.has_pending("g", each) for each in (T0, T1)]
    assert index.is_unstable("g")
    index.replay("g", {(8, T0): None})
    assert [False, False] == [index.has_pending("g", T0), index.is_unstable("g")]


def test_partitions_of_a_producer_are_those_of_its_own_transaction() -> None:
    index = PendingIndex()
    index.replay("g", {(9, T0): at(5), (9, T1): at(5), (8, T0): at(6)})
    index.replay("h", {(9, U0): at(5)})
    assert {"g": {T0, T1}, "h": {U0}} == index.partitions(9)
    assert {"g": {T0}} == index.partitions(8)
    index.replay("h", {(9, U0): None})
    index.replay("g", {(9, T1): None})
    assert [{"g": {T0}}, {"g": {T0}}, {}] == [index.partitions(each) for each in (9, 8, 7)]


def test_a_pending_offset_that_is_not_there_is_deleted_without_effect() -> None:
    index = PendingIndex()
    index.replay("g", {(9, T0): None})
    assert (False, {}, {}) == (index.is_unstable("g"), index.partitions(9), index.producers("g"))
    index.replay("g", {(8, T0): at(1)})
    index.replay("g", {(9, T0): None})
    assert index.has_pending("g", T0)
