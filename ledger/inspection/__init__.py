"""Inspection of a stopped store: what is damaged, what is in it, and the entries themselves.

Rule: nothing is changed and nothing is repaired. Blocking from beginning to end. This is the face
for whoever looks into folders, apart from the one that servers load.
Must not know: Kafka, who asks.
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
from kledger.ledger.metadata.records import LedgerRecord

__all__ = [
    "CheckEntry",
    "Inspection",
    "LedgerRecord",
    "Problem",
    "StoppedStore",
    "StoredManagedLedger",
    "StoredState",
    "Verification",
    "inspect_folder",
]


@dataclass(slots=True, kw_only=True)
class Inspection:
    """What was looked at, and what is wrong with it.

    Attributes:
        torn_tail: what the next start will cut off; the trace of a crash, and no damage.
    """

    file_count: int
    group_count: int
    entry_count: int
    torn_tail: str | None
    managed_ledger_count: int = 0
    problems: list[Problem] = field(default_factory=list)


def inspect_folder(path: str | Path, *, check_entry: CheckEntry) -> Inspection:
    """Look for damage in the folder of a store that is stopped.

    Raises:
        StoreInUse: it is not stopped.
        StoreUnusable: there is no store in it, or it cannot be read.
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
