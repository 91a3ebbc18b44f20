"""Listeners: callbacks of those who want to know that something has changed.

Rule: a listener belongs to a unit of failure. One that raises closes its own unit; the others hear
all the same, and so does whoever caused the change.
Must not know: what has changed.
"""

from collections.abc import Callable

from kledger.runtime.containment import Containment, FaultUnit, unit_of

Listener = Callable[[], None]


class Listeners:
    """The listeners of one thing, called in the order in which they were added."""

    __slots__ = ("_containment", "_listeners")

    def __init__(self, containment: Containment) -> None:
        self._containment = containment
        self._listeners: dict[Listener, FaultUnit | None] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def has_others(self, unit: FaultUnit) -> bool:
        """Whether somebody listens who does not belong to that unit."""
        return any(each is not unit for each in self._listeners.values())

    def add(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back from now on; a listener that is here already stays where it is.

        Args:
            listener: called on the loop, without arguments.
            unit: what a fault of it closes; None when there is nothing to close.
        """
        self._listeners[listener] = unit

    def remove(self, listener: Listener) -> None:
        """Stop calling back; nothing if it was not there."""
        self._listeners.pop(listener, None)

    def listen(self, listener: Listener, unit: FaultUnit | None = None) -> Callable[[], None]:
        """Add a listener, and return what removes it."""
        self.add(listener, unit)
        return lambda: self.remove(listener)

    def notify(self) -> None:
        """Call everyone who is here now."""
        for listener, unit in tuple(self._listeners.items()):
            try:
                listener()
            except Exception as error:  # noqa: BLE001 - it ends where the listener belongs to
                self._containment.failed(unit or unit_of(listener, "listener"), error)
