"""Picking consumers: tables."""

from typing import NamedTuple

import pytest

from kledger.subscriptions.dispatch.consumer_pick import pick_exclusive, pick_failover, pick_shared


class Someone(NamedTuple):
    number: int
    name: str
    priority_level: int


def consumers(text: str) -> list[Someone]:
    """Make consumers of words like `b1`: name and level; the number is the index."""
    return [Someone(number, word[0], int(word[1])) for number, word in enumerate(text.split())]


def shown(someone: Someone | None) -> str:
    return "-" if someone is None else f"{someone.name}{someone.priority_level}"


def test_exclusive_picks_the_only_consumer() -> None:
    assert "-" == shown(pick_exclusive([]))
    assert "a0" == shown(pick_exclusive(consumers("a0")))


@pytest.mark.parametrize(
    ("there", "partition", "expected"),
    [
        ("", 0, "-"),
        ("a0", 0, "a0"),
        ("a0", 5, "a0"),
        ("b0 a0", 0, "a0"),
        ("b0 a0", 1, "b0"),
        ("b0 a0", 2, "a0"),
        ("c0 a0 b0", 4, "b0"),
        ("a1 b0", 0, "b0"),
        ("a1 b0", 1, "b0"),
        ("a2 b1 c1", 1, "c1"),
    ],
)
def test_failover_picks_by_priority_name_and_partition(
    there: str, partition: int, expected: str
) -> None:
    assert expected == shown(pick_failover(consumers(there), partition))
    assert expected == shown(pick_failover(consumers(there)[::-1], partition))


def test_failover_of_equal_names_picks_the_first_to_join() -> None:
    older, newer = Someone(3, "a", 0), Someone(5, "a", 0)
    assert older == pick_failover([newer, older], 0)


@pytest.mark.parametrize(
    ("with_room", "last", "expected"),
    [
        ("", -1, "-"),
        ("a0 b0 c0", -1, "a0"),
        ("a0 b0 c0", 0, "b0"),
        ("a0 b0 c0", 1, "c0"),
        ("a0 b0 c0", 2, "a0"),
        ("a0 b0 c0", 9, "a0"),
        ("a1 b0 c1", -1, "b0"),
        ("a1 b0 c1", 1, "b0"),
        ("a1 b1 c2", 0, "b1"),
        ("a1 b1 c2", 1, "a1"),
    ],
)
def test_shared_rotates_within_the_highest_priority(
    with_room: str, last: int, expected: str
) -> None:
    assert expected == shown(pick_shared(consumers(with_room), last))
