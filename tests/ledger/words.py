"""Words to build ledger things with, for the tests of this room."""

from collections.abc import Iterable

from ledger import Entry, Position
from ledger.ledger_list_state import LedgerListState, MetadataChange
from ledger.records import LedgerRecord, ManagedLedgerRecord


def pos(text: str) -> Position:
    return Position.parse(text)


def closed(ledger_id: int, entries: int, size: int = -1, closed_ms: int = 1) -> LedgerRecord:
    return LedgerRecord(
        ledger_id=ledger_id,
        entries=entries,
        size=10 * entries if size < 0 else size,
        closed_ms=closed_ms,
    )


def opened(ledger_id: int) -> LedgerRecord:
    return LedgerRecord(ledger_id=ledger_id)


def ledger_list(
    *records: LedgerRecord, confirmed: int = 0, terminated_at: Position | None = None
) -> LedgerListState:
    """Make a list whose open ledger has `confirmed` entries of 10 bytes."""
    head = ManagedLedgerRecord(managed_ledger_id=1, terminated_at=terminated_at)
    state = LedgerListState(head, records)
    for entry_id in range(confirmed):
        state.advance(Position(records[-1].ledger_id, entry_id), 10 * (entry_id + 1))
    return state


def change(
    state: LedgerListState,
    put: Iterable[LedgerRecord] = (),
    removed: Iterable[int] = (),
    terminated_at: Position | None = None,
) -> MetadataChange:
    """Make the next change of a list."""
    head = ManagedLedgerRecord(
        managed_ledger_id=state.head.managed_ledger_id,
        version=state.head.version + 1,
        terminated_at=terminated_at or state.head.terminated_at,
    )
    return MetadataChange(head=head, put=tuple(put), removed=tuple(removed))


def datas(entries: Iterable[Entry]) -> list[bytes]:
    return [entry.data for entry in entries]
