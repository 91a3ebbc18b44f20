"""Storage health: the current storage errors of a store, for operators.

Rule: clients get an error for each failure; the operator gets one log line a minute for each kind,
with a count, and finds the kind here while it lasts. Damage lasts until the store is opened again,
write errors until a write succeeds, read errors until none occurred for a while.
Must not know: clients, how errors are shown.

| kind          | what it is                                        | ends when                    |
|---------------|---------------------------------------------------|------------------------------|
| corrupt_entry | a stored entry is damaged, or missing             | the store is opened again    |
| corrupt_index | rows of the index, or of metadata, are damaged    | the store is opened again    |
| disk_full     | there is no space left for a write                | a write succeeds             |
| write_failed  | a write failed for another reason                 | a write succeeds             |
| open_files    | the process, or the system, has too many files    | none for RECENT_MS           |
| read_failed   | the storage could not be read for another reason  | none for RECENT_MS           |
"""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from kledger.ledger.engine.errors import (
    EntryCorrupt,
    EntryMissing,
    IndexCorrupt,
    LogCorrupt,
    StorageError,
    StorageWriteFailed,
)
from kledger.ledger.errors import Corrupt, NonRecoverable, StorageFailed, from_engine
from kledger.runtime.clock import Clock
from kledger.runtime.metrics import Metrics

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS = 60_000
"""Each kind is logged at most once in this time."""
RECENT_MS = 60_000
"""A transient failure ends when it has not occurred for so long."""
_NO_FILE_LEFT = {errno.EMFILE, errno.ENFILE}
_NO_FILE_LEFT_TEXT = "Too many open files"
"""The message of RocksDB for the same, as it has one type for all errors."""


class StorageFaultKind(StrEnum):
    """The label in metrics; see the table above."""

    CORRUPT_ENTRY = "corrupt_entry"
    CORRUPT_INDEX = "corrupt_index"
    DISK_FULL = "disk_full"
    WRITE_FAILED = "write_failed"
    OPEN_FILES = "open_files"
    READ_FAILED = "read_failed"


READING_ROWS = "reading rows of the index"
CLEARED_BY_WRITE = (StorageFaultKind.DISK_FULL, StorageFaultKind.WRITE_FAILED)
CLEARED_BY_TIME = (StorageFaultKind.OPEN_FILES, StorageFaultKind.READ_FAILED)


@dataclass(slots=True)
class StorageFault:
    """A present kind of failure.

    Attributes:
        what: the latest failure: partition, position and error.
        first_ms: wall time of the first failure.
        last_ms: wall time of the latest failure.
        count: number of failures since the first.
        seen_ms: monotonic time of the latest failure.
    """

    kind: StorageFaultKind
    what: str
    first_ms: int
    last_ms: int
    count: int = 0
    seen_ms: int = 0


class StorageHealth:
    """The storage errors of one store."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._faults: dict[StorageFaultKind, StorageFault] = {}
        self._logged_ms: dict[StorageFaultKind, int] = {}
        self._unlogged: dict[StorageFaultKind, int] = {}
        self._is_write_failing = False
        about = "failures of the storage"
        self._errors = {
            kind: metrics.counter("storage_errors", about, {"kind": kind.value})
            for kind in StorageFaultKind
        }
        metrics.gauge(
            "storage_faults",
            lambda: len(self.faults()),
            "kinds of storage failures that are going on",
        )

    def failed(self, error: Exception, what: str) -> None:
        """Note a failure; errors that are not of the storage are ignored.

        Args:
            error: as the engine raised it, or translated.
            what: the operation and its object.
        """
        kind = kind_of(error)
        if kind is None:
            return
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        self._errors[kind].value += 1
        self._drop_cleared()
        fault = self._faults.get(kind)
        if fault is None:
            fault = self._faults[kind] = StorageFault(kind, "", wall_ms, wall_ms)
        fault.what = f"{what}: {error}"
        fault.last_ms, fault.seen_ms = wall_ms, now_ms
        fault.count += 1
        self._is_write_failing = self._is_write_failing or kind in CLEARED_BY_WRITE
        self._log(fault, now_ms)

    @contextmanager
    def translating(self, what: str) -> Iterator[None]:
        """Note an error of the block, and raise it as a LedgerError."""
        try:
            yield
        except Exception as error:
            self.failed(error, what)
            raise from_engine(error) from error

    def write_succeeded(self) -> None:
        """Note that a write has succeeded; called for every group."""
        if self._is_write_failing:
            self._is_write_failing = False
            for kind in CLEARED_BY_WRITE:
                self._end(kind)

    def faults(self) -> list[StorageFault]:
        """Return the current storage errors."""
        self._drop_cleared()
        return list(self._faults.values())

    def _drop_cleared(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for kind in CLEARED_BY_TIME:
            fault = self._faults.get(kind)
            if fault is not None and now_ms - fault.seen_ms >= RECENT_MS:
                self._end(kind)

    def _end(self, kind: StorageFaultKind) -> None:
        fault = self._faults.pop(kind, None)
        if fault is not None:
            logger.warning("storage fault %s has ended, seen %d times", kind, fault.count)

    def _log(self, fault: StorageFault, now_ms: int) -> None:
        kind = fault.kind
        logged_ms = self._logged_ms.get(kind)
        if logged_ms is not None and now_ms - logged_ms < LOG_INTERVAL_MS:
            self._unlogged[kind] = self._unlogged.get(kind, 0) + 1
            return
        self._logged_ms[kind] = now_ms
        more = self._unlogged.pop(kind, 0)
        logger.error("storage fault %s (%d more before): %s", kind, more, fault.what)


def kind_of(error: Exception) -> StorageFaultKind | None:
    """Return the kind of an error by its causes, None if it is not of the storage."""
    causes = list(_causes(error))
    if any(_is_out_of_files(each) for each in causes):
        return StorageFaultKind.OPEN_FILES
    if any(isinstance(each, EntryCorrupt | EntryMissing | NonRecoverable) for each in causes):
        return StorageFaultKind.CORRUPT_ENTRY
    if any(isinstance(each, Corrupt | IndexCorrupt | LogCorrupt) for each in causes):
        return StorageFaultKind.CORRUPT_INDEX
    if any(getattr(each, "full", False) for each in causes):
        return StorageFaultKind.DISK_FULL
    if any(isinstance(each, StorageWriteFailed) for each in causes):
        return StorageFaultKind.WRITE_FAILED
    if any(isinstance(each, StorageFailed | StorageError | OSError) for each in causes):
        return StorageFaultKind.READ_FAILED
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_out_of_files(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NO_FILE_LEFT
    return _NO_FILE_LEFT_TEXT in str(error)
