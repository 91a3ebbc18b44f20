"""How many partitions members get: all are assigned, and no move would be fairer."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.coordinator.assignor_plan import Counts, balance_counts

MEMBERS = 6


@st.composite
def starts(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[Counts]]:
    """Draw the subscribers and partitions of topics, and the counts before."""
    subscribers, totals, counts = [], [], []
    for _ in range(draw(st.integers(0, 8))):
        some = sorted(draw(st.sets(st.integers(0, MEMBERS - 1), min_size=1)))
        held = draw(st.dictionaries(st.sampled_from(some), st.integers(1, 20)))
        subscribers.append(some)
        totals.append(sum(held.values()) + draw(st.integers(0, 9)))
        counts.append(held)
    return subscribers, totals, counts


@given(starts())
def test_all_partitions_are_assigned_and_no_move_is_left(
    start: tuple[list[list[int]], list[int], list[Counts]],
) -> None:
    subscribers, totals, counts = start
    balance_counts(subscribers, totals, counts)
    sizes = [sum(held.get(member, 0) for held in counts) for member in range(MEMBERS)]
    for members, total, held in zip(subscribers, totals, counts, strict=True):
        assert total == sum(held.values())
        assert set(held) <= set(members)
        assert all(count > 0 for count in held.values())
        least = min(sizes[member] for member in members)
        assert all(sizes[member] - least < 2 for member in held)
    again = [dict(held) for held in counts]
    balance_counts(subscribers, totals, again)
    assert counts == again, "what is fair stays"


def test_topics_with_few_subscribers_are_assigned_first() -> None:
    """In the other order member 0 would have two, and no subscriber to move one to."""
    counts: list[Counts] = [{}, {}, {}]
    balance_counts([[0], [0, 1, 2], [0, 1]], [1, 1, 1], counts)
    assert [{0: 1}, {2: 1}, {1: 1}] == counts


def test_moves_continue_along_a_chain_of_common_topics() -> None:
    """Each member shares a topic with the next one; the last one is new."""
    subscribers = [[member, member + 1] for member in range(3)]
    counts: list[Counts] = [{0: 9}, {1: 9}, {2: 9}]
    balance_counts(subscribers, [9, 9, 9], counts)
    sizes = [sum(held.get(member, 0) for held in counts) for member in range(4)]
    assert 27 == sum(sizes)
    assert all(abs(one - other) < 2 for one, other in pairwise(sizes))


def test_of_equal_members_the_first_receives_and_the_last_gives() -> None:
    counts: list[Counts] = [{0: 2, 1: 2}]
    balance_counts([[0, 1, 2]], [5], counts)
    assert [{0: 2, 1: 2, 2: 1}] == counts
    counts = [{0: 3, 1: 3}]
    balance_counts([[0, 1, 2, 3]], [6], counts)
    assert [{0: 2, 1: 2, 2: 1, 3: 1}] == counts
    counts = [{0: 3, 1: 3}]
    balance_counts([[0, 1, 2]], [6], counts)
    assert [{0: 2, 1: 2, 2: 2}] == counts
    counts = [{}]
    balance_counts([[0, 1, 2]], [4], counts)
    assert [{0: 2, 1: 1, 2: 1}] == counts
