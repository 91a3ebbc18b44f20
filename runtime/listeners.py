"""Listeners: callbacks for a change of one object.

Rule: a listener belongs to a unit of failure. One that raises closes its own unit; the others are
called all the same, and the code that made the change gets no exception.
Must not know: what has changed.
"""

from collections.abc import Callable

from kledger.runtime.containment import Containment, FaultUnit, unit_of

Listener = Callable[[], None]


class Listeners:
    """The listeners of one object, called in the order in which they were added."""

    __slots__ = ("_containment", "_listeners")

    def __init__(self, containment: Containment) -> None:
        self._containment = containment
        self._listeners: dict[Listener, FaultUnit | None] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def has_others(self, unit: FaultUnit) -> bool:
        """Whether a listener belongs to another unit, or to none."""
        return any(each is not unit for each in self._listeners.values())

    def add(self, listener: Listener, unit: FaultUnit | None = None) -> None:
        """Call back from now on; a listener that was added before keeps its position.

        Args:
            listener: called on the loop, without arguments.
            unit: what a fault of it closes; None when there is nothing to close.
        """
        self._listeners[listener] = unit

    def remove(self, listener: Listener) -> None:
        """Stop calling back; an unknown listener is ignored."""
        self._listeners.pop(listener, None)

    def listen(self, listener: Listener, unit: FaultUnit | None = None) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        self.add(listener, unit)
        return lambda: self.remove(listener)

    def notify(self) -> None:
        """Call every listener that is added now."""
        for listener, unit in tuple(self._listeners.items()):
            try:
                listener()
            except Exception as error:  # noqa: BLE001 - it closes the listener's unit
                self._containment.failed(unit or unit_of(listener, "listener"), error)
