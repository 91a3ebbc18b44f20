"""Which topics a subscription resolves to."""

from dataclasses import replace

import pytest

from kledger.gateway.coordinator.consumer.consumer_group_state import SubscribedTopics
from tests.gateway.coordinator.consumer.test_consumer_member_state import MEMBER
from tests.gateway.coordinator.consumer_words import CatalogOfTest

CATALOG = CatalogOfTest(**{"orders": 1, "orders-new": 2, "Mixed": 3, "grüße": 1})


@pytest.mark.parametrize(
    ("names", "regex", "expected"),
    [
        ((), "", set()),
        (("orders", "missing"), "", {"orders"}),
        ((), "orders", {"orders"}),
        ((), "orders.*", {"orders", "orders-new"}),
        ((), "(?i)mixed", {"Mixed"}),
        ((), ".*ß.", {"grüße"}),
        (("Mixed",), "orders-.+", {"Mixed", "orders-new"}),
        ((), "order", set()),
    ],
)
def test_subscription_resolves_to_topics(
    names: tuple[str, ...], regex: str, expected: set[str]
) -> None:
    member = replace(MEMBER, topic_names=names, topic_regex=regex)
    assert expected == set(SubscribedTopics(CATALOG).of(member))


def test_topics_of_all_members_are_joined() -> None:
    members = [replace(MEMBER, topic_names=(name,)) for name in ("orders", "Mixed", "missing")]
    assert {"orders", "Mixed"} == set(SubscribedTopics(CATALOG).of_all(members))


def test_expression_that_backtracks_takes_linear_time() -> None:
    """A backtracking engine would take exponential time."""
    catalog = CatalogOfTest(**{"a" * 200: 1})
    assert {} == SubscribedTopics(catalog).of(replace(MEMBER, topic_regex="(a*)*b"))
