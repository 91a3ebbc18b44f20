"""A screen that a test moves: entries behind the curtain cannot be told of yet."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter

from kledger.ledger import LATEST, Entry, Position
from kledger.runtime.containment import FaultUnit
from kledger.subscriptions.visibility_filter import Visibility


class SwitchableFilter:
    """A `Screen`; says of the entries before `at` which are hidden, and of others nothing."""

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
        """Let what lies before a place be told of, these as hidden."""
        self.at = at
        self.hidden.update(hidden)
        for listener in tuple(self.listeners):
            listener()
