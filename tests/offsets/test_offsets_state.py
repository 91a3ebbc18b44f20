"""Committed, pending and expired offsets."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from kledger.offsets import NO_EXPIRY, CommittedOffset, ExpiryRule, OffsetsState, TopicPartition

TOPIC_ID = uuid.UUID(int=1)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def at(offset: int, commit_ms: int = 0, expire_ms: int = NO_EXPIRY) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", commit_ms, expire_ms, TOPIC_ID)


def state_of(**groups: dict[TopicPartition, CommittedOffset]) -> OffsetsState:
    state = OffsetsState()
    for group, topic_partitions in groups.items():
        for place, committed in topic_partitions.items():
            state.apply(group, place, committed)
    return state


@given(
    st.lists(
        st.tuples(
            st.sampled_from("gh"), st.sampled_from([T0, T1, U0]), st.none() | st.integers(0, 9)
        )
    )
)
def test_state_is_what_was_applied_last(
    changes: list[tuple[str, TopicPartition, int | None]],
) -> None:
    state = OffsetsState()
    model: dict[tuple[str, TopicPartition], CommittedOffset] = {}
    for group, place, offset in changes:
        committed = None if offset is None else at(offset)
        state.apply(group, place, committed)
        if committed is None:
            model.pop((group, place), None)
        else:
            model[group, place] = committed

    assert model == {(g, p): c for g in state.groups() for p, c in state.all_committed(g).items()}
    assert set(state.groups()) == {group for group, _ in model}
    for group in "gh":
        assert state.has_group(group) == any(g == group for g, _ in model)
        for place in (T0, T1, U0):
            assert state.committed(group, place) == model.get((group, place))


def test_offsets_count_from_each_commit_or_from_when_the_group_was_empty() -> None:
    state = state_of(g={T0: at(1, commit_ms=0), T1: at(1, commit_ms=500)})

    by_commit = ExpiryRule(now_ms=1_200, retention_ms=1_000)
    assert state.expired("g", by_commit) == [T0]
    since_empty = ExpiryRule(now_ms=1_200, retention_ms=1_000, counted_from_ms=300)
    assert state.expired("g", since_empty) == []
    later = ExpiryRule(now_ms=1_300, retention_ms=1_000, counted_from_ms=300)
    assert state.expired("g", later) == [T0, T1]


def test_topics_in_use_are_kept() -> None:
    state = state_of(g={T0: at(1), U0: at(1)})

    rule = ExpiryRule(now_ms=9_999, retention_ms=1, kept_topics=frozenset({"t"}))

    assert state.expired("g", rule) == [U0]


def test_time_named_by_an_old_client_goes_first() -> None:
    state = state_of(g={T0: at(1, expire_ms=5_000), T1: at(1, expire_ms=50)})

    rule = ExpiryRule(now_ms=1_000, retention_ms=1)

    assert state.expired("g", rule) == [T1]


def test_row_101_pending_offsets_are_seen_but_not_read() -> None:
    state = state_of(g={T0: at(1)})

    state.add_pending(9, "g", {T0: at(5), T1: at(6)})
    assert state.committed("g", T0) == at(1)
    assert [state.has_pending("g", place) for place in (T0, T1, U0)] == [True, True, False]
    assert state.expired("g", ExpiryRule(now_ms=9_999, retention_ms=1)) == []

    # The owner of a commit stores and applies what was pending, then ends it.
    for group, topic_partitions in state.pending(9).items():
        for place, committed in topic_partitions.items():
            state.apply(group, place, committed)
    state.end_pending(9)
    assert state.committed("g", T0) == at(5)
    assert not state.has_pending("g", T0)


def test_row_101_aborted_offsets_leave_no_trace() -> None:
    state = OffsetsState()
    state.add_pending(9, "g", {T0: at(5)})
    state.add_pending(8, "g", {T0: at(6)})
    assert state.has_group("g")

    state.end_pending(9)
    assert state.has_pending("g", T0)
    state.end_pending(8)

    assert not state.has_pending("g", T0)
    assert not state.has_group("g")
    assert state.committed("g", T0) is None


def test_lowest_offset_is_that_of_the_slowest_group_of_that_very_topic() -> None:
    state = state_of(g={T0: at(7), T1: at(1)}, h={T0: at(3), U0: at(2)}, i={T1: at(9)})
    asked = [(T0, TOPIC_ID), (T1, TOPIC_ID), (U0, TOPIC_ID), (T0, uuid.UUID(int=2))]
    assert [3, 1, 2, None] == [
        state.lowest_committed(place.topic, topic_id, place.partition) for place, topic_id in asked
    ]
    state.apply("h", T0, None)
    assert 7 == state.lowest_committed("t", TOPIC_ID, 0)


def test_an_offset_that_is_sent_twice_waits_for_one_transaction() -> None:
    state = OffsetsState()
    for producer_id, offset in ((9, 5), (9, 6), (8, 7)):
        state.add_pending(producer_id, "g", {T0: at(offset)})
    state.add_pending(7, "other", {})
    assert [True, False] == [state.has_group(group) for group in ("g", "other")]
    for producer_id, expected in ((9, True), (9, True), (8, False)):
        state.end_pending(producer_id)
        assert [expected] * 2 == [state.has_pending("g", T0), state.has_group("g")]


def test_an_unknown_group_has_nothing_and_loses_nothing() -> None:
    state = state_of(g={T0: at(1)})
    state.drop_pending("h", T0)
    state.drop_pending("g", T0)
    assert ({}, {}, []) == (
        dict(state.all_committed("h")),
        state.pending_at("h", T0),
        state.pending_topic_partitions("h"),
    )  # fmt: skip
    state.add_pending(9, "g", {T0: at(5)})
    state.drop_pending("g", T1)
    assert {9: at(5)} == state.pending_at("g", T0)


def test_what_is_deleted_waits_for_no_transaction() -> None:
    state = OffsetsState()
    state.add_pending(9, "g", {T0: at(5), T1: at(6)})
    state.add_pending(8, "g", {T0: at(7)})
    assert {9: at(5), 8: at(7)} == state.pending_at("g", T0)

    state.drop_pending("g", T0)

    assert {} == state.pending_at("g", T0)
    assert ([T1], {"g": {T1: at(6)}}) == (state.pending_topic_partitions("g"), state.pending(9))
    assert {} == state.pending(8)
    state.end_pending(9)
    assert not state.is_unstable("g")


def test_an_offset_that_was_sent_later_overtakes() -> None:
    state = state_of(g={T0: at(1, commit_ms=10)})
    overtaken = [state.is_superseded("g", T0, at(5, commit_ms=each)) for each in (9, 10, 11)]
    assert [True, False, False] == overtaken
    assert not state.is_superseded("g", T1, at(5))


def test_groups_are_those_with_any_offset() -> None:
    state = state_of(g={T0: at(1)}, h={T0: at(1)})
    state.add_pending(9, "g", {T0: at(5)})
    state.add_pending(9, "i", {T0: at(5)})
    assert ["g", "h", "i"] == list(state.groups())
