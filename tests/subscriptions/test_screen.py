"""The screen of those who have none."""

from kledger.subscriptions.screen import EVERYTHING, Sight
from tests.subscriptions.dispatch_words import entry


def test_everything_is_visible() -> None:
    assert Sight(0, frozenset()) == EVERYTHING.look([])
    assert Sight(3, frozenset()) == EVERYTHING.look([entry(0), entry(1), entry(7)])


def test_nobody_is_called_back() -> None:
    calls: list[int] = []

    def listener() -> None:
        calls.append(1)

    EVERYTHING.add_listener(listener)
    EVERYTHING.remove_listener(listener)
    EVERYTHING.remove_listener(listener)
    assert [] == calls
