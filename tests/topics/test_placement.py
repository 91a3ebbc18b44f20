"""New partitions are spread over brokers; users may name the brokers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.topics.errors import InvalidPartitions
from kledger.topics.placement import Placement, place_partitions


@pytest.mark.parametrize(
    ("count", "led", "existing", "placed"),
    [
        (4, {}, (), (1, 2, 3, 1)),
        (2, {1: 5, 2: 4, 3: 4}, (), (2, 3)),
        (3, {1: 9}, (2, 3), (1, 2, 3)),
        (1, {1: 0, 2: 7, 3: 7}, (1, 1, 2), (3,)),
        (0, {}, (), ()),
    ],
)
def test_partitions_go_where_the_topic_has_the_fewest_then_where_all_have(
    count: int, led: dict[int, int], existing: tuple[int, ...], placed: tuple[int, ...]
) -> None:
    assert place_partitions(count, led, (1, 2, 3), existing) == placed


@given(
    count=st.integers(0, 60),
    led=st.dictionaries(st.integers(1, 5), st.integers(0, 9)),
    brokers=st.integers(1, 5),
)
def test_no_broker_gets_two_more_of_a_topic_than_another(
    count: int, led: dict[int, int], brokers: int
) -> None:
    ids = range(1, brokers + 1)
    counts = Counter(place_partitions(count, led, ids))
    assert max(counts[each] for each in ids) - min(counts[each] for each in ids) <= 1


def test_a_placement_counts_what_its_brokers_lead() -> None:
    placement = Placement(1, (1, 2))
    placement.count((), (1, 1, 1))
    assert placement.place(2) == (2, 1)
    placement.count((1, 1, 1), ())
    assert placement.place(1) == (1,)


def test_users_name_the_brokers_of_new_partitions() -> None:
    placement = Placement(1, (1, 2))
    assert placement.place(2, existing=(1,), assigned=[2, 2]) == (1, 2, 2)
    with pytest.raises(InvalidPartitions, match="broker 3: expected one of 1, 2"):
        placement.place(1, assigned=[3])
