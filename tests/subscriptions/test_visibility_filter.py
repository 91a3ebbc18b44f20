"""The filter that hides nothing."""

from kledger.subscriptions.visibility_filter import ALL_VISIBLE, Visibility
from tests.subscriptions.dispatch.builders import entry


def test_everything_is_visible() -> None:
    assert Visibility(0, frozenset()) == ALL_VISIBLE.visibility_of([])
    assert Visibility(3, frozenset()) == ALL_VISIBLE.visibility_of([entry(0), entry(1), entry(7)])


def test_listener_is_never_called() -> None:
    calls: list[int] = []

    def listener() -> None:
        calls.append(1)

    ALL_VISIBLE.add_listener(listener)
    ALL_VISIBLE.remove_listener(listener)
    ALL_VISIBLE.remove_listener(listener)
    assert [] == calls
