"""VisibilityFilter: which stored entries a subscription may see, and which are not settled yet.

Rule: what is settled about an entry never changes, and every entry behind the first unsettled one
is unsettled, too. A listener is called when more may be settled.
Must not know: what makes an entry visible; an implementation knows what entries mean.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from kledger.ledger import Entry, Position
from kledger.runtime.containment import FaultUnit
from kledger.runtime.listeners import Listener


class Visibility(NamedTuple):
    """What is settled about some entries.

    Attributes:
        settled: how many entries are settled, from the first one on.
        hidden: which of those are never delivered, and need only to be acknowledged.
    """

    settled: int
    hidden: AbstractSet[Position]


NOTHING_HIDDEN: AbstractSet[Position] = frozenset()


class VisibilityFilter(Protocol):
    """One per partition."""

    def visibility_of(self, entries: Sequence[Entry]) -> Visibility:
        """Return what is settled about entries: ascending, possibly with gaps, possibly none."""

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back, on the event loop, whenever more may be settled; once for each listener.

        A fault of the listener closes `unit`.
        """

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling back; without effect when it is not registered."""


class AllVisible:
    """Everything is visible."""

    def visibility_of(self, entries: Sequence[Entry]) -> Visibility:
        """Return that all are visible."""
        return Visibility(len(entries), NOTHING_HIDDEN)

    def add_listener(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Do nothing: nothing ever changes."""

    def remove_listener(self, listener: Listener) -> None:
        """Do nothing."""


ALL_VISIBLE = AllVisible()
