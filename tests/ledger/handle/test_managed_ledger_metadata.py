"""A change of metadata: its rows, and the door through which it takes effect."""

from kledger.ledger.commits.committer import Operation
from kledger.ledger.errors import Fenced, LedgerError
from kledger.ledger.handle.managed_ledger import ChangeSubmitter, change_rows
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
    """Writes down what it is told."""

    unit_kind = "partition"
    unit_name = "orders"

    def __init__(self) -> None:
        self.heard: list[object] = []

    def close_after_fault(self, error: Exception) -> None:
        self.heard.append(error)

    def apply(self, change: MetadataChange) -> None:
        self.heard.append(change)

    def changed(self) -> None:
        self.heard.append("changed")

    def revert(self) -> None:
        self.heard.append("revert")

    def resume(self) -> None:
        self.heard.append("resume")

    def done(self, error: LedgerError | None) -> None:
        self.heard.append(("done", error))


def operation(ticket: ChangeSubmitter) -> Operation:
    return (ticket, EARLIEST, 0, b"", lambda position, error: None)


def test_rows_are_the_record_the_ledgers_and_what_goes() -> None:
    head, first, second, removed = change_rows("orders", CHANGE)
    assert keys.managed_ledger_key("orders") == head[0]
    assert HEAD == decode_managed_ledger(head[1] or b"")
    assert (keys.ledger_key(3, 5), closed(5, 2)) == (first[0], decode_ledger(5, first[1] or b""))
    assert (keys.ledger_key(3, 6), opened(6)) == (second[0], decode_ledger(6, second[1] or b""))
    assert (keys.ledger_key(3, 4), None) == removed


def test_a_durable_change_takes_effect_before_its_caller_hears() -> None:
    owner = Owner()
    ticket = ChangeSubmitter(owner, CHANGE, owner.done)
    ticket.confirm(operation(ticket))
    ticket.group_confirmed()
    assert [CHANGE, ("done", None), "changed"] == owner.heard


def test_a_failed_change_never_takes_effect() -> None:
    owner, error = Owner(), Fenced("gone")
    ticket = ChangeSubmitter(owner, CHANGE, owner.done)
    ticket.revert()
    ticket.fail(operation(ticket), error)
    ticket.resume()
    assert ["revert", ("done", error), "resume"] == owner.heard


def test_a_fault_of_a_change_closes_its_owner() -> None:
    owner, error = Owner(), RuntimeError("broken")
    ticket = ChangeSubmitter(owner, CHANGE, owner.done)
    ticket.close_after_fault(error)
    assert [error] == owner.heard
    assert ("partition", "orders") == (ticket.unit_kind, ticket.unit_name)
