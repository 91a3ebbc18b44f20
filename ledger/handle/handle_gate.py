"""Handle gate: what the handle of a managed ledger may do at the moment.

Rule: readers, cursors and the handle itself ask here, so that none of them keeps the handle: when
it is closed and its user lets go of it, nothing is left in a cycle for the garbage collector.
Must not know: what asks, how a state was reached.
"""

from kledger.ledger.errors import LedgerError
from kledger.ledger.handle.ledger_state import (
    UNREADABLE,
    LedgerState,
    deleted_error,
    read_error,
    write_error,
)

_OVER = (LedgerState.CLOSED, LedgerState.FENCED)


class HandleGate:
    """The gate of one handle.

    Attributes:
        state: as `LedgerState` describes it.
        is_writable: whether appends are accepted.
        is_deleted: whether the managed ledger was deleted while the handle had it.
    """

    __slots__ = ("_name", "is_deleted", "is_writable", "state")

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = LedgerState.NONE
        self.is_writable = False
        self.is_deleted = False

    @property
    def is_over(self) -> bool:
        """Whether the state is final, and the handle of no use any more."""
        return self.state in _OVER

    def enter(self, state: LedgerState) -> None:
        """Go to another state."""
        self.state = state
        self.is_writable = state is LedgerState.LEDGER_OPENED

    def check_writable(self) -> None:
        """Raise what an append gets, unless it is accepted."""
        if not self.is_writable:
            raise self._write_error()

    def check_readable(self) -> None:
        """Raise what a read gets, unless it may go on."""
        if self.is_writable:
            return
        if self.is_deleted:
            raise deleted_error(self._name)
        if self.state in UNREADABLE:
            raise read_error(self.state, self._name)

    def check_changeable(self) -> None:
        """Raise what a change gets; a terminated managed ledger can be trimmed and described."""
        if self.state is not LedgerState.TERMINATED:
            self.check_writable()

    def _write_error(self) -> LedgerError:
        if self.is_deleted:
            return deleted_error(self._name)
        return write_error(self.state, self._name)
