"""Assignors: every partition is assigned once, shares are fair, few partitions move."""

from uuid import UUID

from hypothesis import assume, given
from hypothesis import strategies as st

from kledger.gateway.coordinator.assignor_plan import (
    ASSIGNORS,
    Assignment,
    MemberSubscription,
    assign_range,
    assign_uniform,
)
from kledger.gateway.coordinator.consumer_messages import TopicIdPartition

TOPICS = {UUID(int=number): count for number, count in enumerate((3, 4, 1, 6))}
topic_sets = st.frozensets(st.sampled_from(sorted(TOPICS)), max_size=4)
groups = st.dictionaries(st.sampled_from("abcdefg"), topic_sets, min_size=1)


def subscriptions(
    wanted: dict[str, frozenset[UUID]], previous: Assignment | None = None
) -> dict[str, MemberSubscription]:
    return {
        member_id: MemberSubscription(
            member_id, topics, (previous or {}).get(member_id, frozenset())
        )
        for member_id, topics in wanted.items()
    }


def check_whole(wanted: dict[str, frozenset[UUID]], plan: Assignment) -> None:
    """Every partition of a subscribed topic has one owner, a subscriber."""
    assert set(plan) == set(wanted)
    for member_id, share in plan.items():
        assert {one.topic_id for one in share} <= wanted[member_id]
    owned = sorted(one for share in plan.values() for one in share)
    all_wanted = frozenset().union(*wanted.values())
    assert owned == [
        TopicIdPartition(topic_id, number)
        for topic_id in sorted(all_wanted)
        for number in range(TOPICS[topic_id])
    ]


@given(groups, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner(wanted: dict[str, frozenset[UUID]], name: str) -> None:
    check_whole(wanted, ASSIGNORS[name](subscriptions(wanted), TOPICS))


@given(groups, groups)
def test_uniform_is_complete_from_any_start(
    wanted: dict[str, frozenset[UUID]], earlier: dict[str, frozenset[UUID]]
) -> None:
    previous = assign_uniform(subscriptions(earlier), TOPICS)
    plan = assign_uniform(subscriptions(wanted, previous), TOPICS)
    check_whole(wanted, plan)
    assert plan == assign_uniform(subscriptions(wanted, plan), TOPICS), "what is fair stays"


@given(groups, groups)
def test_uniform_leaves_no_move_that_would_be_fairer(
    wanted: dict[str, frozenset[UUID]], earlier: dict[str, frozenset[UUID]]
) -> None:
    previous = assign_uniform(subscriptions(earlier), TOPICS)
    plan = assign_uniform(subscriptions(wanted, previous), TOPICS)
    for owner, share in plan.items():
        for topic_id in {one.topic_id for one in share}:
            for other, topics in wanted.items():
                if topic_id in topics:
                    assert len(share) - len(plan[other]) < 2, f"{owner} could give to {other}"


@given(groups, groups)
def test_uniform_swaps_no_partitions_of_a_topic(
    wanted: dict[str, frozenset[UUID]], earlier: dict[str, frozenset[UUID]]
) -> None:
    """With different subscriptions a member keeps as many of each topic as its count allows."""
    assume(len(set(wanted.values())) > 1)
    previous = assign_uniform(subscriptions(earlier), TOPICS)
    plan = assign_uniform(subscriptions(wanted, previous), TOPICS)
    for member_id in wanted.keys() & earlier.keys():
        for topic_id in wanted[member_id]:
            had, has = (
                {one for one in each[member_id] if one.topic_id == topic_id}
                for each in (previous, plan)
            )
            assert len(had & has) == min(len(had), len(has))


@given(groups, st.data())
def test_uniform_assigns_once_a_partition_that_several_had(
    wanted: dict[str, frozenset[UUID]], data: st.DataObject
) -> None:
    """As the leader of a classic group may have assigned it."""
    every = [TopicIdPartition(topic, number) for topic in TOPICS for number in range(TOPICS[topic])]
    previous = {one: data.draw(st.frozensets(st.sampled_from(every))) for one in wanted}
    check_whole(wanted, assign_uniform(subscriptions(wanted, previous), TOPICS))


@given(st.integers(1, 7), st.integers(1, 7))
def test_uniform_moves_only_what_it_must(before_count: int, after_count: int) -> None:
    """With the same topics for all, no remaining member loses more than its surplus."""
    topics = frozenset(TOPICS)
    total = sum(TOPICS.values())
    first = dict.fromkeys("abcdefg"[:before_count], topics)
    then = dict.fromkeys("abcdefg"[:after_count], topics)
    previous = assign_uniform(subscriptions(first), TOPICS)
    after = assign_uniform(subscriptions(then, previous), TOPICS)
    assert {total // after_count, -(-total // after_count)} >= set(map(len, after.values()))
    for name in first.keys() & then.keys():
        kept = len(previous[name] & after[name])
        assert kept == min(len(previous[name]), len(after[name]))


def test_range_gives_neighbours_and_the_first_get_more() -> None:
    topic = UUID(int=3)
    plan = assign_range(subscriptions(dict.fromkeys("abcd", frozenset({topic}))), TOPICS)
    numbers = {name: sorted(one.partition for one in share) for name, share in plan.items()}
    assert {"a": [0, 1], "b": [2, 3], "c": [4], "d": [5]} == numbers


def test_range_ranks_static_members_by_their_instance() -> None:
    topic = frozenset({UUID(int=0)})
    wanted = {
        "a": MemberSubscription("z", topic, frozenset()),
        "b": MemberSubscription("b", topic, frozenset()),
    }
    plan = assign_range(wanted, TOPICS)
    assert [0, 1] == sorted(one.partition for one in plan["b"])


def test_vanished_topics_are_not_assigned() -> None:
    deleted = frozenset({UUID(int=99)})
    kept = frozenset({TopicIdPartition(UUID(int=99), 0)})
    for assign in ASSIGNORS.values():
        assert {"a": frozenset()} == assign({"a": MemberSubscription("a", deleted, kept)}, TOPICS)
