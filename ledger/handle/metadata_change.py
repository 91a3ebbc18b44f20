"""Metadata change: one atomic step of a managed ledger's metadata, and its way through the log.

Rule: the whole step is one operation in the ordered stream of the store, between the entries before
and behind it; it takes effect in memory when it is durable, in that order.
Must not know: which steps there are.
"""

from dataclasses import dataclass
from typing import Protocol

from kledger.ledger.commits.operations import Operation, Row, RowsDone
from kledger.ledger.errors import LedgerError
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import MetadataChange
from kledger.ledger.metadata.records import encode_ledger, encode_managed_ledger
from kledger.runtime.containment import FaultUnit


class ChangeOwner(FaultUnit, Protocol):
    """The handle whose metadata changes."""

    def apply(self, change: MetadataChange) -> None:
        """The change is durable."""
        ...

    def changed(self) -> None:
        """All changes of a group took effect."""
        ...

    def revert(self) -> None:
        """See `Submitter`."""
        ...

    def resume(self) -> None:
        """See `Submitter`."""
        ...


@dataclass(slots=True, eq=False)
class ChangeSubmitter:
    """The submitter of one change: it acts for its owner."""

    owner: ChangeOwner
    change: MetadataChange
    done: RowsDone

    @property
    def unit_kind(self) -> str:
        """The owner's."""
        return self.owner.unit_kind

    @property
    def unit_name(self) -> str:
        """The owner's."""
        return self.owner.unit_name

    def close_after_fault(self, error: Exception) -> None:
        """Close the owner: nobody knows which change it holds to."""
        self.owner.close_after_fault(error)

    def confirm(self, operation: Operation) -> None:
        """Take the change over, then tell the caller."""
        self.owner.apply(self.change)
        self.done(None)

    def group_confirmed(self) -> None:
        """Let the owner tell its listeners."""
        self.owner.changed()

    def revert(self) -> None:
        """The change never happened."""
        self.owner.revert()

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Tell the caller."""
        self.done(error)

    def resume(self) -> None:
        """The owner goes on."""
        self.owner.resume()


def change_rows(name: str, change: MetadataChange) -> list[Row]:
    """Return the rows that make a change durable."""
    managed_ledger_id = change.head.managed_ledger_id
    rows: list[Row] = [(keys.managed_ledger_key(name), encode_managed_ledger(change.head))]
    rows += [
        (keys.ledger_key(managed_ledger_id, record.ledger_id), encode_ledger(record))
        for record in change.put
    ]
    rows += [(keys.ledger_key(managed_ledger_id, ledger_id), None) for ledger_id in change.removed]
    return rows
