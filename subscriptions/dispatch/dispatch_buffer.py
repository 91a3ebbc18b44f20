"""Held entries: what a dispatcher has read on and not handed out yet. A shell.

Rule: an entry is ready when the screen lets it be seen; the first that it cannot tell of holds up
all behind it, until the screen says that something has changed. What nobody may see is
acknowledged here, as nobody else would.
Must not know: consumers, why an entry is hidden.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress

from kledger.ledger import Cursor, Entry, EntryPart, LedgerError, Position
from kledger.runtime.containment import FaultUnit
from kledger.subscriptions.visibility_filter import VisibilityFilter


class DispatchBuffer:
    """One per dispatcher; what it holds is from one read.

    Attributes:
        ready: may be handed out, in order; who hands out takes them off.
        number: the revision under which all was read.
    """

    __slots__ = (
        "_changed",
        "_cursor",
        "_unit",
        "_unsettled",
        "_visibility_filter",
        "number",
        "ready",
    )

    def __init__(
        self,
        cursor: Cursor,
        visibility_filter: VisibilityFilter,
        *,
        changed: Callable[[], None],
        unit: FaultUnit | None = None,
    ) -> None:
        """Hold nothing yet.

        Args:
            cursor: of the subscription.
            visibility_filter: of its partition.
            changed: called when `refresh` would find more that is ready.
            unit: closed by a fault in hearing of it.
        """
        self._unit = unit
        self._cursor = cursor
        self._visibility_filter = visibility_filter
        self._changed = changed
        self._unsettled: list[Entry] = []
        self.ready: list[Entry] = []
        self.number = 0

    def __bool__(self) -> bool:
        return bool(self.ready or self._unsettled)

    def fill(self, entries: list[Entry], number: int) -> None:
        """Take in what was read under a revision; there must be nothing else."""
        assert not self, "something was read on that waits behind what is held"
        self.number = number
        self._settle(entries)

    def refresh(self) -> None:
        """Leave out what was acknowledged meanwhile, and see what is ready by now."""
        self.ready = self._unacknowledged(self.ready)
        if self._unsettled:
            self._settle(self._unacknowledged(self._unsettled))

    def clear(self) -> None:
        """Forget everything."""
        self.ready = []
        self._keep_unsettled([])

    def _unacknowledged(self, entries: list[Entry]) -> list[Entry]:
        is_acknowledged = self._cursor.state.is_acknowledged
        return [each for each in entries if not is_acknowledged(each.position)]

    def _settle(self, entries: list[Entry]) -> None:
        settled, hidden = self._visibility_filter.visibility_of(entries)
        if settled < len(entries) or self._unsettled:
            self._keep_unsettled(entries[settled:])
            entries = entries[:settled]
        if hidden:
            self._acknowledge_hidden(hidden)
            entries = [each for each in entries if each.position not in hidden]
        self.ready += entries

    def _keep_unsettled(self, entries: list[Entry]) -> None:
        if entries:
            self._visibility_filter.add_listener(self._on_filter_changed, self._unit)
        elif self._unsettled:
            self._visibility_filter.remove_listener(self._on_filter_changed)
        self._unsettled = entries

    def _on_filter_changed(self) -> None:
        if self._visibility_filter.visibility_of(self._unsettled[:1]).settled:
            self._changed()

    def _acknowledge_hidden(self, hidden: AbstractSet[Position]) -> None:
        """Acknowledge them; it becomes durable with whatever is acknowledged next."""
        parts = [EntryPart(position, None) for position in hidden]
        with suppress(LedgerError):  # whoever reads them again tries again
            self._cursor.acknowledge_nowait(parts, revision=self.number)
