"""Errors of the ledger, grouped by what a caller can do about them.

Rule: every error that leaves this package is a LedgerError. Errors of an engine are translated
here, by one table, once. Clients never see these: the façades map them to codes of their protocols.
Must not know: protocols.

| what the caller does       | errors                                                              |
|----------------------------|---------------------------------------------------------------------|
| correct the call           | InvalidArgument, InvalidPosition, AlreadyMarkDeleted,               |
|                            | CursorNotFound                                                      |
| open a new handle, or stop | Fenced, AlreadyClosed, Deleted                                      |
| stop writing               | Terminated                                                          |
| try again later            | StorageFailed, TierUnavailable, TooManyRequests, ResetInProgress,   |
|                            | CompactedLedgerReplaced                                             |
| wait for the other call    | ConcurrentWait, ConcurrentFind, CompactionRunning,                  |
|                            | OffloadInProgress                                                   |
| look at the disk           | NonRecoverable, Corrupt, UnreadableRow, StoreInUse, StoreUnusable   |
"""

from collections.abc import Callable

from kledger.ledger.engine import errors as engine_errors
from kledger.runtime.error_table import ErrorTable


class LedgerError(Exception):
    """Base of every error of this package."""


class InvalidArgument(LedgerError, ValueError):
    """The arguments are invalid in every state."""


class InvalidPosition(LedgerError):
    """There is no entry at that position, or it must not be used for this call."""


class Fenced(LedgerError):
    """Another handle owns the managed ledger now, or a failed sync stopped the whole store."""


class AlreadyClosed(LedgerError):
    """The handle or the store was closed."""


class Deleted(Fenced, AlreadyClosed):
    """The managed ledger was deleted: for writers it is closed, for cursorless reads fenced."""


class Terminated(LedgerError):
    """The managed ledger was terminated: it can be read, but not be appended to."""


class StorageFailed(LedgerError):
    """Nothing of a change was stored, or nothing could be read; a retry may succeed.

    `full` means that the storage has no space, so retries fail until there is some.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class TierUnavailable(LedgerError):
    """The second storage did not answer as it should; a retry may succeed.

    `timed_out` means that it did not answer in time, so a retry may take as long.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class NoMoreEntries(LedgerError):
    """There is no entry at or after that position."""


class NonRecoverable(LedgerError):
    """An entry that must exist is not in the storage."""


class Corrupt(LedgerError):
    """Stored bytes differ from what was written."""


class UnreadableRow(Corrupt):
    """A row has a version that this program does not know, or is not whole."""


class AlreadyMarkDeleted(LedgerError):
    """The mark-delete position is already past that position; callers may ignore this."""


class CursorNotFound(LedgerError):
    """There is no durable cursor of that name."""


class ResetInProgress(LedgerError):
    """The cursor's position is being reset: nothing is read or acknowledged meanwhile."""


class ConcurrentWait(LedgerError):
    """Another call already waits on this cursor."""


class ConcurrentFind(LedgerError):
    """Another search by time already runs for this cursor."""


class CompactionRunning(LedgerError):
    """A compaction of the managed ledger already runs."""


class OffloadInProgress(LedgerError):
    """An offload of the managed ledger already runs."""


class CompactedLedgerReplaced(LedgerError):
    """Another compaction has completed: begin again with the present compacted ledger."""


class TooManyRequests(LedgerError):
    """A limit of work in flight was reached."""


class StoreInUse(LedgerError):
    """The folder is open already, in this process or in another one."""


class StoreUnusable(LedgerError):
    """The folder or object store cannot be created, read or written, or has foreign files."""


def from_engine(error: BaseException) -> LedgerError:
    """Translate an error of an engine; an unknown error means an unknown state, so Fenced."""
    if isinstance(error, LedgerError):
        return error
    return _TRANSLATIONS.get(error, _unknown_state)(error)


def _unknown_state(error: BaseException) -> LedgerError:
    return Fenced(f"storage is in an unknown state: {error!r}")


def _storage_failed(error: BaseException) -> LedgerError:
    return StorageFailed(str(error) or "the storage failed", full=_is_full(error))


def _is_full(error: BaseException) -> bool:
    return bool(getattr(error, "full", False))


_TRANSLATIONS: ErrorTable[Callable[[BaseException], LedgerError]] = ErrorTable(
    {
        engine_errors.StorageWriteFailed: _storage_failed,
        engine_errors.SyncFailed: lambda error: Fenced(f"a sync failed: {error}"),
        engine_errors.EntryMissing: lambda error: NonRecoverable(str(error)),
        engine_errors.EntryCorrupt: lambda error: Corrupt(str(error)),
        engine_errors.LogCorrupt: lambda error: Corrupt(str(error)),
        engine_errors.IndexCorrupt: lambda error: Corrupt(str(error)),
        engine_errors.FolderInUse: lambda error: StoreInUse(str(error)),
        engine_errors.FolderUnusable: lambda error: StoreUnusable(str(error)),
        engine_errors.StorageError: _storage_failed,
    }
)
