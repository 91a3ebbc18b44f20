"""What one consumer may get."""

import pytest

from kledger.subscriptions.dispatch.consumer_state import PERMITS_HELD_MAX, ConsumerState
from kledger.subscriptions.errors import InvalidRequest
from tests.subscriptions.dispatch.builders import consumer


def limited(unacked_max: int) -> ConsumerState:
    return ConsumerState(0, consumer(unacked_max=unacked_max), is_limited=True)


def test_nothing_without_permits() -> None:
    state = limited(0)
    assert 0 == state.room
    state.add_permits(3)
    state.count_delivered(5)
    assert -2 == state.room
    state.add_permits(4)
    assert 2 == state.room


def test_permits_of_a_blocked_consumer_count_later() -> None:
    state = limited(4)
    state.add_permits(4)
    state.count_delivered(4)
    state.add_permits(10)
    assert 0 == state.room
    state.unacked.remove(2)
    assert 2 == state.room
    state.unacked.remove(2)
    assert 4 == state.room
    assert 10 == state.permits


def test_limit_holds_for_limited_types_only() -> None:
    state = ConsumerState(0, consumer(unacked_max=1), is_limited=False)
    state.add_permits(100)
    state.count_delivered(50)
    assert 50 == state.room


@pytest.mark.parametrize("count", [0, -1])
def test_permits_are_positive(count: int) -> None:
    with pytest.raises(InvalidRequest, match="at least 1"):
        limited(0).add_permits(count)


def test_permits_are_limited() -> None:
    state = limited(0)
    state.add_permits(1 << 60)
    state.add_permits(1 << 60)
    assert PERMITS_HELD_MAX == state.permits


def test_limit_is_not_negative() -> None:
    with pytest.raises(InvalidRequest, match="unacked_max is -1"):
        limited(-1)
