"""Metadata submission: a change of the metadata of a managed ledger, on its way to the storage.

Rule: it is one operation of the ordered stream, between the entries before and after it, and takes
effect when it is durable.
Must not know: why the metadata changes.
"""

from dataclasses import dataclass
from typing import Protocol

from kledger.ledger.commits.committer import Operation, RowsDone
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import LedgerError
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import MetadataChange
from kledger.ledger.metadata.records import (
    encode_copy_deletion,
    encode_ledger,
    encode_managed_ledger,
)
from kledger.runtime.containment import FaultUnit


class ChangeOwner(FaultUnit, Protocol):
    """The handle whose metadata changes."""

    def apply(self, change: MetadataChange) -> None:
        """Let a durable change take effect."""
        ...

    def changed(self) -> None:
        """Notify the listeners, after all operations of a group took effect."""
        ...

    def revert(self) -> None:
        """See `Submitter`."""
        ...

    def resume(self) -> None:
        """See `Submitter`."""
        ...


@dataclass(slots=True, eq=False)
class ChangeSubmitter:
    """The submitter of one change of metadata, on behalf of its owner.

    The change is one operation of the ordered stream, between the entries before and after it.
    """

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
        """Close the owner: its metadata may lack the change."""
        self.owner.close_after_fault(error)

    def confirm(self, operation: Operation) -> None:
        """Let the change take effect, then call `done`."""
        self.owner.apply(self.change)
        self.done(None)

    def group_confirmed(self) -> None:
        """Let the owner notify its listeners."""
        self.owner.changed()

    def revert(self) -> None:
        """Rewind the owner."""
        self.owner.revert()

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Call `done` with the error."""
        self.done(error)

    def resume(self) -> None:
        """Let the owner accept appends again."""
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
    rows += [
        (keys.copy_deletion_key(deletion.attempt), encode_copy_deletion(deletion))
        for deletion in change.unneeded
    ]
    rows += [(keys.copy_deletion_key(attempt), None) for attempt in change.needed]
    return rows
