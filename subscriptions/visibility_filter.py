"""Screen: which stored entries a subscription may see, and which nobody can tell of yet.

Rule: what was told of an entry never changes, and everything behind the first entry of which
nothing can be told waits with it. Whoever waits listens, and looks again.
Must not know: what makes an entry visible; that is for those who know what entries mean.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from kledger.ledger import Entry, Position
from kledger.runtime.containment import FaultUnit
from kledger.runtime.listeners import Listener


class Visibility(NamedTuple):
    """What is known of some entries.

    Attributes:
        settled: of so many, from the first on, it is known whether they are visible.
        hidden: which of those are nobody's, and need nothing but to be acknowledged.
    """

    settled: int
    hidden: AbstractSet[Position]


NOTHING_HIDDEN: AbstractSet[Position] = frozenset()


class VisibilityFilter(Protocol):
    """One per partition."""

    def visibility_of(self, entries: Sequence[Entry]) -> Visibility:
        """Tell what is known of entries; ascending, possibly with gaps, possibly none."""

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back, on the loop, whenever more may be known; once for each listener.

        A fault of the listener closes `unit`.
        """

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling back; nothing if it was not there."""


class AllVisible:
    """Everything is visible."""

    def visibility_of(self, entries: Sequence[Entry]) -> Visibility:
        """Tell that all are visible."""
        return Visibility(len(entries), NOTHING_HIDDEN)

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Nothing ever changes."""

    def remove_listener(self, listener: Listener) -> None:
        """Nothing is kept."""


ALL_VISIBLE = AllVisible()
