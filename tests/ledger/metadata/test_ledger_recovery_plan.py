"""How the list continues when a new handle opens it."""

from dataclasses import replace

from kledger.ledger.metadata.ledger_list_state import MetadataChange
from kledger.ledger.metadata.ledger_recovery_plan import plan_recovery
from kledger.ledger.metadata.records import LedgerRecord, ManagedLedgerRecord
from tests.ledger.words import closed, opened, pos

HEAD = ManagedLedgerRecord(managed_ledger_id=1, version=7, properties={"a": "b"})
NEXT = replace(HEAD, version=8)


def recover(*ledgers: LedgerRecord, found: LedgerRecord | None = None) -> MetadataChange:
    return plan_recovery(
        HEAD,
        ledgers,
        {found.ledger_id: found} if found else {},
        new_ledger_id=100,
        now_ms=50,
    )


def test_a_new_managed_ledger_gets_its_first_ledger() -> None:
    assert MetadataChange(head=NEXT, put=(opened(100),)) == recover()


def test_the_open_ledger_is_closed_with_its_true_counts() -> None:
    """Recovery: last ledger count from data, not metadata."""
    found = replace(opened(5), entries=3, size=30, max_timestamp_ms=9)
    expected = (replace(found, closed_ms=50), opened(100))
    assert MetadataChange(head=NEXT, put=expected) == recover(closed(4, 2), opened(5), found=found)


def test_ledgers_without_entries_leave_the_list() -> None:
    change = recover(closed(3, 2), closed(4, 0), opened(5), found=opened(5))
    assert MetadataChange(head=NEXT, put=(opened(100),), removed=(4, 5)) == change


def test_a_terminated_managed_ledger_gets_no_new_ledger() -> None:
    head = replace(HEAD, terminated_at=pos("4:1"))
    change = plan_recovery(head, [closed(4, 2)], {}, new_ledger_id=100, now_ms=50)
    assert MetadataChange(head=replace(head, version=8)) == change


def test_closing_at_time_zero_still_counts_as_closed() -> None:
    found = replace(opened(5), entries=1)
    change = plan_recovery(HEAD, [opened(5)], {5: found}, new_ledger_id=6, now_ms=0)
    assert 1 == change.put[0].closed_ms
