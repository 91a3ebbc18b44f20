"""Requests that a foreign client may send."""

from dataclasses import replace

import pytest

from kledger.native.broker import ConsumerRequest
from kledger.native.errors import InvalidArgument
from kledger.native.server.service import check_count, check_name, check_request
from kledger.subscriptions.model import SubscriptionType

GOOD = ConsumerRequest(topic="orders", partition=0, subscription="s", type=SubscriptionType.SHARED)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\x00"])
def test_names_that_are_not_printable_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="subscription: expected 1 to 255 printable"):
        check_name("subscription", name)


@pytest.mark.parametrize("name", ["s", "x" * 255, "ü-1/2 %", "日本"])
def test_other_names_are_taken(name: str) -> None:
    check_name("subscription", name)


def test_counts_have_bounds() -> None:
    check_count("count", 1)
    check_count("count", 0, 0)
    for count in (0, 1 << 31):
        with pytest.raises(InvalidArgument, match="count: expected 1 to 2147483647, got"):
            check_count("count", count)


@pytest.mark.parametrize(
    "change",
    [
        {"subscription": ""},
        {"consumer_name": "a\n"},
        {"start": "newest"},
        {"priority_level": -1},
        {"unacked_max": -1},
        {"unacked_subscription_max": 1 << 40},
        {"failover_delay_ms": 10**12},
        {"key_ranges": ((1, 2),) * 1_025},
    ],
)
def test_every_field_of_a_request_is_checked(change: dict[str, object]) -> None:
    check_request(GOOD)
    with pytest.raises(InvalidArgument):
        check_request(replace(GOOD, **change))  # type: ignore[arg-type]
