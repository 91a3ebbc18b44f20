"""Ledger state: what a handle of a managed ledger may do at the moment.

Rule: leaving LEDGER_OPENED is final, except by way of WRITE_FAILED and a termination that was not
stored. Appends, reads and changes ask here.
Must not know: how a state was reached. Theory: Pulsar's ManagedLedgerImpl.State.
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

    A ledger is closed and the next created by one atomic group, in order with all appends; nothing
    is refused meanwhile. So three of Pulsar's states are no more than news here.
    """

    NONE = "none"
    """Not opened yet: there is no handle to ask. Leads to LEDGER_OPENED or TERMINATED."""
    LEDGER_OPENED = "ledger_opened"
    """Everything is accepted. Leads everywhere."""
    CLOSING_LEDGER = "closing_ledger"
    """As LEDGER_OPENED: appends go to the next ledger, and wait for entries of the last one."""
    CLOSED_LEDGER = "closed_ledger"
    """Never seen: a ledger is not closed without the next one, except for the end."""
    CREATING_LEDGER = "creating_ledger"
    """As LEDGER_OPENED: the last ledger is whole, and the next one on its way to the storage."""
    CLOSED = "closed"
    """Writers get AlreadyClosed, cursorless reads Fenced. Final."""
    FENCED = "fenced"
    """Everything gets Fenced: another handle took over, or the store stopped. Final."""
    FENCED_FOR_DELETION = "fenced_for_deletion"
    """Everything gets Fenced. Leads to CLOSED, or back when the deletion was not stored."""
    TERMINATED = "terminated"
    """Writers get Terminated, readers are served. Final once it is stored."""
    WRITE_FAILED = "write_failed"
    """Failed appends are being told: new ones get StorageFailed. Leads to LEDGER_OPENED."""


UNREADABLE = (LedgerState.CLOSED, LedgerState.FENCED, LedgerState.FENCED_FOR_DELETION)
"""In these, reads are refused."""


def write_error(state: LedgerState, name: str) -> LedgerError:
    """Return what an append gets in a state other than LEDGER_OPENED."""
    match state:
        case LedgerState.CLOSED:
            return AlreadyClosed(f"{name} is closed")
        case LedgerState.TERMINATED:
            return Terminated(f"{name} is terminated")
        case LedgerState.WRITE_FAILED:
            return StorageFailed(f"{name} is waiting to recover from a failed write")
        case _:
            return Fenced(f"{name} is fenced")


def read_error(state: LedgerState, name: str) -> LedgerError:
    """Return what a cursorless read gets in a state of `UNREADABLE`."""
    return Fenced(f"{name} is {'closed' if state is LedgerState.CLOSED else 'fenced'}")


def deleted_error(name: str) -> LedgerError:
    """Return what everything gets on a handle whose managed ledger was deleted."""
    return Deleted(f"{name} was deleted")
