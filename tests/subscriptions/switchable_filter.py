"""A visibility filter that a test switches: entries up to a position are settled."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

from kledger.ledger import LATEST, Entry, Position
from kledger.runtime.containment import FaultUnit
from kledger.subscriptions.visibility_filter import Visibility


class SwitchableFilter:
    """A `VisibilityFilter`: entries before `at` are settled, and hidden when in `hidden`."""

    def __init__(self) -> None:
        self.at = LATEST
        self.hidden: set[Position] = set()
        self.listeners: dict[Callable[[], None], None] = {}
        self.looks = 0

    def visibility_of(self, entries: Sequence[Entry]) -> Visibility:
        self.looks += 1
        settled = bisect_left(entries, self.at, key=attrgetter("position"))
        return Visibility(settled, {each.position for each in entries[:settled]} & self.hidden)

    def add_listener(self, listener: Callable[[], None], unit: FaultUnit | None = None) -> None:
        self.listeners[listener] = None

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self.listeners.pop(listener, None)

    def move(self, at: Position = LATEST, *, hidden: Sequence[Position] = ()) -> None:
        """Settle all entries before a position, these as hidden, and call the listeners."""
        self.at = at
        self.hidden.update(hidden)
        for listener in tuple(self.listeners):
            listener()
