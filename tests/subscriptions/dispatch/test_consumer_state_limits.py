"""Limits of unacknowledged records."""

import pytest

from kledger.subscriptions.dispatch.consumer_state import UNLIMITED, UnackedLimit


@pytest.mark.parametrize(
    ("limit", "consumer_resumes", "subscription_resumes"),
    [(1, 0, 0), (2, 1, 0), (3, 1, 1), (10, 5, 4), (11, 5, 5)],
)
def test_blocks_at_the_limit_and_unblocks_at_half(
    limit: int, consumer_resumes: int, subscription_resumes: int
) -> None:
    """A consumer resumes at half or less, a subscription below half."""
    for made, resumes in (
        (UnackedLimit.of_consumer(limit), consumer_resumes),
        (UnackedLimit.of_subscription(limit), subscription_resumes),
    ):
        made.add(limit - 1)
        assert (False, 1) == (made.is_blocked, made.left)
        made.add(1)
        assert (True, 0) == (made.is_blocked, made.left)
        for count in range(limit - 1, resumes, -1):
            assert not made.remove(1)
            assert (True, 0) == (made.is_blocked, made.left), count
        assert made.remove(1)
        assert (False, limit - resumes) == (made.is_blocked, made.left)
        assert resumes == made.count


def test_last_delivery_may_exceed_the_limit() -> None:
    made = UnackedLimit.of_consumer(10)
    made.add(25)
    assert (25, True) == (made.count, made.is_blocked)
    assert not made.remove(19)
    assert made.remove(1)


def test_without_a_limit_it_only_counts() -> None:
    made = UnackedLimit.of_subscription(0)
    made.add(1 << 40)
    assert (UNLIMITED, False) == (made.left, made.is_blocked)
    assert not made.remove(1 << 40)


def test_clear_unblocks() -> None:
    made = UnackedLimit.of_consumer(2)
    made.add(2)
    made.clear()
    assert (0, False) == (made.count, made.is_blocked)


def test_removing_more_than_was_added_is_refused() -> None:
    with pytest.raises(AssertionError, match="1 records more"):
        UnackedLimit.of_consumer(2).remove(1)
