"""A change of metadata: its rows, and how it takes effect."""

from kledger.ledger.commits.committer import Operation
from kledger.ledger.errors import Fenced, LedgerError
from kledger.ledger.handle.metadata_submission import ChangeSubmitter, change_rows
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import MetadataChange
from kledger.ledger.metadata.records import (
    ManagedLedgerRecord,
    decode_ledger,
    decode_managed_ledger,
)
from kledger.ledger.position import EARLIEST
from tests.ledger.words import closed, opened

HEAD = ManagedLedgerRecord(managed_ledger_id=3, version=8, properties={"a": "b"})
CHANGE = MetadataChange(head=HEAD, put=(closed(5, 2), opened(6)), removed=(4,))


class Owner:
    """Records the calls of its methods."""

    unit_kind = "partition"
    unit_name = "orders"

    def __init__(self) -> None:
        self.calls: list[object] = []

    def close_after_fault(self, error: Exception) -> None:
        self.calls.append(error)

    def apply(self, change: MetadataChange) -> None:
        self.calls.append(change)

    def changed(self) -> None:
        self.calls.append("changed")

    def revert(self) -> None:
        self.calls.append("revert")

    def resume(self) -> None:
        self.calls.append("resume")

    def done(self, error: LedgerError | None) -> None:
        self.calls.append(("done", error))


def operation(submitter: ChangeSubmitter) -> Operation:
    return (submitter, EARLIEST, 0, b"", lambda position, error: None)


def test_rows_are_the_record_and_its_changed_and_removed_ledgers() -> None:
    head, first, second, removed = change_rows("orders", CHANGE)
    assert keys.managed_ledger_key("orders") == head[0]
    assert HEAD == decode_managed_ledger(head[1] or b"")
    assert (keys.ledger_key(3, 5), closed(5, 2)) == (first[0], decode_ledger(5, first[1] or b""))
    assert (keys.ledger_key(3, 6), opened(6)) == (second[0], decode_ledger(6, second[1] or b""))
    assert (keys.ledger_key(3, 4), None) == removed


def test_a_durable_change_takes_effect_before_its_caller_is_called() -> None:
    owner = Owner()
    submitter = ChangeSubmitter(owner, CHANGE, owner.done)
    submitter.confirm(operation(submitter))
    submitter.group_confirmed()
    assert [CHANGE, ("done", None), "changed"] == owner.calls


def test_a_failed_change_never_takes_effect() -> None:
    owner, error = Owner(), Fenced("fenced")
    submitter = ChangeSubmitter(owner, CHANGE, owner.done)
    submitter.revert()
    submitter.fail(operation(submitter), error)
    submitter.resume()
    assert ["revert", ("done", error), "resume"] == owner.calls


def test_a_fault_of_a_change_closes_its_owner() -> None:
    owner, error = Owner(), RuntimeError("broken")
    submitter = ChangeSubmitter(owner, CHANGE, owner.done)
    submitter.close_after_fault(error)
    assert [error] == owner.calls
    assert ("partition", "orders") == (submitter.unit_kind, submitter.unit_name)
