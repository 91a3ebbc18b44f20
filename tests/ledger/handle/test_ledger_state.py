"""What each state answers."""

import pytest

from kledger.ledger.errors import (
    AlreadyClosed,
    Deleted,
    Fenced,
    LedgerError,
    StorageFailed,
    Terminated,
)
from kledger.ledger.handle.ledger_state import (
    UNREADABLE,
    LedgerState,
    deleted_error,
    read_error,
    write_error,
)


@pytest.mark.parametrize(
    ("state", "write", "read"),
    [
        (LedgerState.CLOSED, AlreadyClosed, Fenced),
        (LedgerState.FENCED, Fenced, Fenced),
        (LedgerState.FENCED_FOR_DELETION, Fenced, Fenced),
        (LedgerState.TERMINATED, Terminated, None),
        (LedgerState.WRITE_FAILED, StorageFailed, None),
        (LedgerState.LEDGER_OPENED, None, None),
    ],
)
def test_every_state_has_its_answers(
    state: LedgerState, write: type[LedgerError] | None, read: type[LedgerError] | None
) -> None:
    if write is not None:
        assert write is type(write_error(state, "orders"))
        assert "orders" in str(write_error(state, "orders"))
    found = read_error(state, "orders") if state in UNREADABLE else None
    assert read is (None if found is None else type(found))


def test_the_names_are_pulsars() -> None:
    names = "NONE LEDGER_OPENED CLOSING_LEDGER CLOSED_LEDGER CREATING_LEDGER CLOSED FENCED"
    assert {*names.split(), "FENCED_FOR_DELETION", "TERMINATED", "WRITE_FAILED"} == {
        state.name for state in LedgerState
    }


def test_deleted_is_closed_for_writers_and_fenced_for_readers() -> None:
    assert Deleted is type(deleted_error("orders"))
