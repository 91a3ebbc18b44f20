"""What each state accepts, and the errors of what it refuses."""

from collections.abc import Callable

import pytest

from kledger.ledger.errors import (
    AlreadyClosed,
    Deleted,
    Fenced,
    LedgerError,
    StorageFailed,
    Terminated,
)
from kledger.ledger.handle.handle_state import HandleState, LedgerState


def outcome(check: Callable[[], None]) -> type[LedgerError] | None:
    try:
        check()
    except LedgerError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    ("state", "write", "read", "change", "is_final"),
    [
        (LedgerState.LEDGER_OPENED, None, None, None, False),
        (LedgerState.WRITE_FAILED, StorageFailed, None, StorageFailed, False),
        (LedgerState.TERMINATED, Terminated, None, None, False),
        (LedgerState.FENCED_FOR_DELETION, Fenced, Fenced, Fenced, False),
        (LedgerState.FENCED, Fenced, Fenced, Fenced, True),
        (LedgerState.CLOSED, AlreadyClosed, Fenced, AlreadyClosed, True),
    ],
)
def test_states(
    state: LedgerState,
    write: type[LedgerError] | None,
    read: type[LedgerError] | None,
    change: type[LedgerError] | None,
    is_final: bool,
) -> None:
    gate = HandleState("orders")
    gate.enter(state)
    checks = (gate.check_writable, gate.check_readable, gate.check_changeable)
    assert [write, read, change] == [outcome(check) for check in checks]
    assert is_final == gate.is_final


def test_the_names_are_pulsars() -> None:
    names = "NONE LEDGER_OPENED CLOSING_LEDGER CLOSED_LEDGER CREATING_LEDGER CLOSED FENCED"
    assert {*names.split(), "FENCED_FOR_DELETION", "TERMINATED", "WRITE_FAILED"} == {
        state.name for state in LedgerState
    }


def test_a_deleted_handle_raises_deleted() -> None:
    gate = HandleState("orders")
    gate.enter(LedgerState.CLOSED)
    gate.is_deleted = True
    for check in (gate.check_writable, gate.check_readable, gate.check_changeable):
        with pytest.raises(Deleted, match="orders was deleted"):
            check()
