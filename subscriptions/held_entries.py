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
from kledger.subscriptions.screen import Screen


class HeldEntries:
    """One per dispatcher; what it holds is from one read.

    Attributes:
        ready: may be handed out, in order; who hands out takes them off.
        number: the revision under which all was read.
    """

    __slots__ = ("_changed", "_cursor", "_later", "_screen", "_unit", "number", "ready")

    def __init__(
        self,
        cursor: Cursor,
        screen: Screen,
        *,
        changed: Callable[[], None],
        unit: FaultUnit | None = None,
    ) -> None:
        """Hold nothing yet.

        Args:
            cursor: of the subscription.
            screen: of its partition.
            changed: called when `look` would find more that is ready.
            unit: closed by a fault in hearing of it.
        """
        self._unit = unit
        self._cursor = cursor
        self._screen = screen
        self._changed = changed
        self._later: list[Entry] = []
        self.ready: list[Entry] = []
        self.number = 0

    def __bool__(self) -> bool:
        return bool(self.ready or self._later)

    def hold(self, entries: list[Entry], number: int) -> None:
        """Take in what was read under a revision; there must be nothing else."""
        assert not self, "something was read on that waits behind what is held"
        self.number = number
        self._settle(entries)

    def look(self) -> None:
        """Leave out what was acknowledged meanwhile, and see what is ready by now."""
        self.ready = self._owed(self.ready)
        if self._later:
            self._settle(self._owed(self._later))

    def clear(self) -> None:
        """Forget everything."""
        self.ready = []
        self._wait_for([])

    def _owed(self, entries: list[Entry]) -> list[Entry]:
        is_acknowledged = self._cursor.state.is_acknowledged
        return [each for each in entries if not is_acknowledged(each.position)]

    def _settle(self, entries: list[Entry]) -> None:
        settled, hidden = self._screen.look(entries)
        if settled < len(entries) or self._later:
            self._wait_for(entries[settled:])
            entries = entries[:settled]
        if hidden:
            self._pass_over(hidden)
            entries = [each for each in entries if each.position not in hidden]
        self.ready += entries

    def _wait_for(self, entries: list[Entry]) -> None:
        if entries:
            self._screen.add_listener(self._heard, self._unit)
        elif self._later:
            self._screen.remove_listener(self._heard)
        self._later = entries

    def _heard(self) -> None:
        if self._screen.look(self._later[:1]).settled:
            self._changed()

    def _pass_over(self, hidden: AbstractSet[Position]) -> None:
        """Acknowledge them; it becomes durable with whatever is acknowledged next."""
        parts = [EntryPart(position, None) for position in hidden]
        with suppress(LedgerError):  # whoever reads them again tries again
            self._cursor.acknowledge_nowait(parts, revision=self.number)
