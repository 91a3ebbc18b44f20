"""The limits of messages in flight."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from kledger.native.client.send_window_state import SendWindow


def test_waiting_items_leave_in_order() -> None:
    window = SendWindow[str](2)
    assert [True, True, False, False] == [window.enter(each, 1) for each in "abcd"]
    assert ["c", "d"] == list(window.waiting)
    assert ["c"] == window.leave(1, 1)
    assert not window.enter("e", 1)
    assert ["d", "e"] == window.leave(2, 2)
    assert [] == window.leave(2, 2)
    assert window.enter("f", 1)


def test_try_enter_fails_while_items_wait() -> None:
    window = SendWindow[str](2)
    assert [True, True, False] == [window.try_enter(1) for _ in range(3)]
    assert "2 of 2 messages and 2 bytes" == str(window)
    assert not window.enter("a", 1)
    assert ["a"] == window.leave(1, 1)
    assert not window.try_enter(1)
    assert [] == window.leave(2, 2)
    assert window.try_enter(1)


def test_bytes_are_limited_but_one_large_item_enters() -> None:
    window = SendWindow[str](100, bytes_max=10)
    assert window.enter("large", 50)
    assert not window.enter("small", 1)
    assert ["small"] == window.leave(1, 50)


@given(st.lists(st.one_of(st.none(), st.integers(1, 9))), st.integers(1, 4), st.integers(1, 20))
def test_nothing_overtakes_and_limits_hold(
    steps: list[int | None], count_max: int, bytes_max: int
) -> None:
    """A number enters with that size; None lets the oldest leave."""
    window = SendWindow[int](count_max, bytes_max)
    inside: deque[tuple[int, int]] = deque()
    sizes: list[int] = []
    entered: list[int] = []
    for step in steps:
        if step is not None:
            sizes.append(step)
            if window.enter(len(sizes) - 1, step):
                entered.append(len(sizes) - 1)
                inside.append((len(sizes) - 1, step))
        elif inside:
            _, size = inside.popleft()
            for item in window.leave(1, size):
                entered.append(item)
                inside.append((item, sizes[item]))
        assert len(inside) <= count_max
        assert sum(size for _, size in list(inside)[:-1]) < bytes_max
        assert inside or len(entered) == len(sizes)
    assert list(range(len(entered))) == entered
    assert list(range(len(entered), len(sizes))) == list(window.waiting)
