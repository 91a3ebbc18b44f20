"""The number of channels and their allocation, as Coherence has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.named_topics.channel_plan import allocate, default_channel_count


@pytest.mark.parametrize(
    ("partitions", "channels"),
    [(1, 1), (2, 2), (3, 2), (4, 3), (9, 5), (13, 5), (25, 7), (257, 17), (289, 19), (1024, 37)],
)
def test_default_channel_count_is_the_prime_above_the_square_root(
    partitions: int, channels: int
) -> None:
    assert channels == default_channel_count(partitions)


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (17, [], {}),
        (17, [5], {5: range(17)}),
        (3, [7, 3, 5], {3: range(1), 5: range(1, 2), 7: range(2, 3)}),
        (2, [1, 2, 3], {1: range(1), 2: range(1, 2), 3: range(2, 2)}),
        (17, [1, 2, 3], {1: range(6), 2: range(6, 12), 3: range(12, 17)}),
        (5, [9, 8], {8: range(3), 9: range(3, 5)}),
    ],
)
def test_channels_are_allocated_in_the_order_of_ids(
    count: int, members: list[int], expected: dict[int, range]
) -> None:
    assert expected == allocate(count, members)


@given(st.integers(1, 60), st.sets(st.integers(1, 1 << 40), min_size=1, max_size=80))
def test_every_channel_has_one_owner_and_shares_differ_by_one(
    count: int, members: set[int]
) -> None:
    allocated = allocate(count, members)
    assert list(range(count)) == [each for one in sorted(members) for each in allocated[one]]
    sizes = [len(allocated[member]) for member in sorted(members)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
