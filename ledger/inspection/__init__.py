"""Inspection of a stopped store: its damage, its managed ledgers and their entries.

Rule: nothing is changed and nothing is repaired; all calls block. Only the
command line imports it; a server never loads it.
Must not know: Kafka, how results are printed.
"""

from dataclasses import dataclass, field
from pathlib import Path

from kledger.ledger.engine import data_folder
from kledger.ledger.engine.errors import StorageError
from kledger.ledger.errors import from_engine
from kledger.ledger.inspection.folder_inspection import FolderInspection
from kledger.ledger.inspection.ledger_check import CheckEntry, LedgerCheck, Problem
from kledger.ledger.inspection.stopped_store import (
    StoppedStore,
    StoredManagedLedger,
    StoredState,
    Verification,
)
from kledger.ledger.inspection.tier_listing import ListedCopy, TierListing, check_copy
from kledger.ledger.metadata.records import CopyDeletion, LedgerRecord

__all__ = [
    "CheckEntry",
    "CopyDeletion",
    "Inspection",
    "LedgerRecord",
    "ListedCopy",
    "Problem",
    "StoppedStore",
    "StoredManagedLedger",
    "StoredState",
    "TierListing",
    "Verification",
    "check_copy",
    "inspect_folder",
]


@dataclass(slots=True, kw_only=True)
class Inspection:
    """The extent of an inspection, and the problems found.

    Attributes:
        torn_tail: the end of the log that the next start will cut off, after a crash; not a damage.
    """

    file_count: int
    group_count: int
    entry_count: int
    torn_tail: str | None
    managed_ledger_count: int = 0
    problems: list[Problem] = field(default_factory=list)


def inspect_folder(path: str | Path, *, check_entry: CheckEntry) -> Inspection:
    """Search the folder of a stopped store for damage.

    Raises:
        StoreInUse: the store is not stopped.
        StoreUnusable: the folder has no store, or cannot be read.
    """
    folder = Path(path)
    try:
        engine = FolderInspection(folder)
    except StorageError as error:
        raise from_engine(error) from error
    try:
        found = Inspection(
            file_count=engine.file_count,
            group_count=engine.group_count,
            entry_count=engine.entry_count,
            torn_tail=engine.torn_tail,
        )
        check = LedgerCheck(engine, str(folder / data_folder.INDEX), check_entry)
        if engine.has_index:
            check.check_all()
        found.managed_ledger_count = check.managed_ledger_count
        found.problems = check.problems()
        return found
    finally:
        engine.close()
