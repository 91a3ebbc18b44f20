"""Handle state: what the handle of a managed ledger may do at the moment.

Rule: leaving LEDGER_OPENED is final, except through WRITE_FAILED and a termination that was not
stored. Readers and cursors ask this object instead of the handle: a closed handle is then part of
no reference cycle and is freed at once.
Must not know: its callers, how a state was reached. Theory: Pulsar's ManagedLedgerImpl.State.
"""

from enum import Enum

from kledger.ledger.errors import (
    AlreadyClosed,
    Deleted,
    Fenced,
    LedgerError,
    StorageFailed,
    Terminated,
)


class LedgerState(Enum):
    """The states of Pulsar.

    One atomic group closes a ledger and creates the next, in order with all appends, and appends
    are accepted meanwhile. So two of Pulsar's states only describe a rollover, one is never seen.
    """

    NONE = "none"
    """Not opened yet; a user never gets a handle in it. Leads to LEDGER_OPENED or TERMINATED."""
    LEDGER_OPENED = "ledger_opened"
    """Everything is accepted. Leads everywhere."""
    CLOSING_LEDGER = "closing_ledger"
    """As LEDGER_OPENED: appends are in the next ledger; the last one has unconfirmed entries."""
    CLOSED_LEDGER = "closed_ledger"
    """Never seen: a ledger is closed together with the creation of the next, or terminated."""
    CREATING_LEDGER = "creating_ledger"
    """As LEDGER_OPENED: the last ledger is confirmed, the creation of the next one is in flight."""
    CLOSED = "closed"
    """Writers get AlreadyClosed, cursorless reads Fenced. Final."""
    FENCED = "fenced"
    """Everything gets Fenced: another handle took over, or the store stopped. Final."""
    FENCED_FOR_DELETION = "fenced_for_deletion"
    """Everything gets Fenced. Leads to CLOSED, or back when the deletion was not stored."""
    TERMINATED = "terminated"
    """Writers get Terminated, readers are served. Final once it is stored."""
    WRITE_FAILED = "write_failed"
    """Failed appends are being reported: new ones get StorageFailed. Leads to LEDGER_OPENED."""


_FINAL = (LedgerState.CLOSED, LedgerState.FENCED)
_UNREADABLE = (LedgerState.CLOSED, LedgerState.FENCED, LedgerState.FENCED_FOR_DELETION)


class HandleState:
    """The state of one handle, and the errors that it raises.

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
    def is_final(self) -> bool:
        """Whether the handle can never be used again."""
        return self.state in _FINAL

    @property
    def is_readable(self) -> bool:
        """Whether reads are served."""
        return self.state not in _UNREADABLE

    def enter(self, state: LedgerState) -> None:
        """Go to another state."""
        self.state = state
        self.is_writable = state is LedgerState.LEDGER_OPENED

    def check_writable(self) -> None:
        """Raise the error of a refused append, unless appends are accepted."""
        if not self.is_writable:
            raise self._write_error()

    def check_readable(self) -> None:
        """Raise the error of a refused read, unless reads are served."""
        if self.is_writable:
            return
        if self.is_deleted:
            raise self._deleted_error()
        if self.state in _UNREADABLE:
            is_closed = self.state is LedgerState.CLOSED
            raise Fenced(f"{self._name} is {'closed' if is_closed else 'fenced'}")

    def check_changeable(self) -> None:
        """Raise the error of a refused change; a terminated managed ledger can still be trimmed."""
        if self.state is not LedgerState.TERMINATED:
            self.check_writable()

    def _write_error(self) -> LedgerError:
        name = self._name
        if self.is_deleted:
            return self._deleted_error()
        match self.state:
            case LedgerState.CLOSED:
                return AlreadyClosed(f"{name} is closed")
            case LedgerState.TERMINATED:
                return Terminated(f"{name} is terminated")
            case LedgerState.WRITE_FAILED:
                return StorageFailed(f"{name} is waiting to recover from a failed write")
            case _:
                return Fenced(f"{name} is fenced")

    def _deleted_error(self) -> LedgerError:
        return Deleted(f"{self._name} was deleted")
