"""The managed ledger as a library: durable, unbounded logs of opaque entries, and their cursors.

Rule: other packages import from here, from `kledger.ledger.row_format`,
`kledger.ledger.record_table` and `kledger.ledger.testing`, nothing deeper; the command line also
imports `kledger.ledger.inspection`, which a server never loads.
Must not know: Kafka.
"""

from kledger.ledger.commits.committer import AppendDone, RowsDone, ignore_outcome
from kledger.ledger.compacted_entry import CompactedEntry
from kledger.ledger.compacted_reader import CompactedReader
from kledger.ledger.config import ManagedLedgerConfig, StoreConfig
from kledger.ledger.cursors.cursor import Cursor, CursorStats
from kledger.ledger.cursors.cursor_revision_state import CursorStateRevisionController
from kledger.ledger.cursors.cursor_state import CursorState, EntryPart
from kledger.ledger.engine.base import Buffer, Row, StorageEngine
from kledger.ledger.entry import Entry
from kledger.ledger.errors import (
    AlreadyClosed,
    AlreadyMarkDeleted,
    CompactedLedgerReplaced,
    CompactionRunning,
    ConcurrentFind,
    ConcurrentWait,
    Corrupt,
    CursorNotFound,
    Deleted,
    Fenced,
    InvalidArgument,
    InvalidPosition,
    LedgerError,
    NoMoreEntries,
    NonRecoverable,
    OffloadInProgress,
    ResetInProgress,
    StorageFailed,
    StoreInUse,
    StoreUnusable,
    Terminated,
    TierUnavailable,
    TooManyRequests,
    UnreadableRow,
)
from kledger.ledger.handle.compaction_writer import (
    COMPACTION_CURSOR,
    CompactionWriter,
    NewEntry,
)
from kledger.ledger.handle.handle_state import LedgerState
from kledger.ledger.handle.managed_ledger import ManagedLedger
from kledger.ledger.metadata.ledger_list_state import LedgerInfo
from kledger.ledger.metadata.records import CompactedLedger, OffloadContext
from kledger.ledger.offload.object_tiers import ObjectStoreTiers
from kledger.ledger.offload.offload_plan import (
    copyable_ledgers,
    first_not_offloaded,
    plan_copies,
    plan_primary_deletions,
)
from kledger.ledger.offload.offload_policies import OffloadPolicies, ReadPriority
from kledger.ledger.offload.offloader import (
    LedgerOffloader,
    OffloadSource,
    TieredLedger,
    UploadingOffloader,
)
from kledger.ledger.offload.tiers import OffloaderFactory
from kledger.ledger.position import EARLIEST, LATEST, Position
from kledger.ledger.storage_health import StorageFault, StorageFaultKind, StorageHealth
from kledger.ledger.store import LedgerStore
from kledger.ledger.table_store import RowChanged, TableStore
from kledger.runtime.clock import Clock, SystemClock

__all__ = [
    "COMPACTION_CURSOR",
    "EARLIEST",
    "LATEST",
    "AlreadyClosed",
    "AlreadyMarkDeleted",
    "AppendDone",
    "Buffer",
    "Clock",
    "CompactedEntry",
    "CompactedLedger",
    "CompactedLedgerReplaced",
    "CompactedReader",
    "CompactionRunning",
    "CompactionWriter",
    "ConcurrentFind",
    "ConcurrentWait",
    "Corrupt",
    "Cursor",
    "CursorNotFound",
    "CursorState",
    "CursorStateRevisionController",
    "CursorStats",
    "Deleted",
    "Entry",
    "EntryPart",
    "Fenced",
    "InvalidArgument",
    "InvalidPosition",
    "LedgerError",
    "LedgerInfo",
    "LedgerOffloader",
    "LedgerState",
    "LedgerStore",
    "ManagedLedger",
    "ManagedLedgerConfig",
    "NewEntry",
    "NoMoreEntries",
    "NonRecoverable",
    "ObjectStoreTiers",
    "OffloadContext",
    "OffloadInProgress",
    "OffloadPolicies",
    "OffloadSource",
    "OffloaderFactory",
    "Position",
    "ReadPriority",
    "ResetInProgress",
    "Row",
    "RowChanged",
    "RowsDone",
    "StorageEngine",
    "StorageFailed",
    "StorageFault",
    "StorageFaultKind",
    "StorageHealth",
    "StoreConfig",
    "StoreInUse",
    "StoreUnusable",
    "SystemClock",
    "TableStore",
    "Terminated",
    "TierUnavailable",
    "TieredLedger",
    "TooManyRequests",
    "UnreadableRow",
    "UploadingOffloader",
    "copyable_ledgers",
    "first_not_offloaded",
    "ignore_outcome",
    "plan_copies",
    "plan_primary_deletions",
]
