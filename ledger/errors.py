"""Errors of the ledger face, one class per thing that a caller can do about it.

Rule: whatever leaves this room is a LedgerError. What an engine raises is translated here, by one
table, once. A peer of the caller never sees these: the façades map them to codes of their own.
Must not know: protocols.

| what the caller does       | errors                                                              |
|----------------------------|---------------------------------------------------------------------|
| correct the call           | InvalidArgument, InvalidPosition, AlreadyMarkDeleted,               |
|                            | CursorNotFound                                                      |
| open a new handle, or stop | Fenced, AlreadyClosed, Deleted                                      |
| stop writing               | Terminated                                                          |
| try again later            | StorageFailed, TooManyRequests, ResetInProgress                     |
| let the other call end     | ConcurrentWait, ConcurrentFind                                      |
| look at the disk           | NonRecoverable, Corrupt, StoreInUse, StoreUnusable                  |
"""

from collections.abc import Callable

from kledger.ledger.engine import errors as engine_errors


class LedgerError(Exception):
    """Base of every error of this room."""


class InvalidArgument(LedgerError, ValueError):
    """The arguments make no sense, whatever the state."""


class InvalidPosition(LedgerError):
    """There is nothing at that position, or it may not be used for this."""


class Fenced(LedgerError):
    """Another handle owns the managed ledger now, or a failed sync stopped the whole store."""


class AlreadyClosed(LedgerError):
    """The handle or the store was closed."""


class Deleted(Fenced, AlreadyClosed):
    """The managed ledger was deleted: for writers it is closed, for cursorless reads fenced."""


class Terminated(LedgerError):
    """The managed ledger was ended for good; it can be read, but not be appended to."""


class StorageFailed(LedgerError):
    """Nothing of a change was stored, or nothing could be read; later it may succeed.

    `full` tells a storage without space, which will not get better by itself.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class NoMoreEntries(LedgerError):
    """There is no entry at or behind that position."""


class NonRecoverable(LedgerError):
    """An entry that must exist is not in the storage."""


class Corrupt(LedgerError):
    """The storage holds something that was not written so."""


class AlreadyMarkDeleted(LedgerError):
    """The mark-delete position is behind that position already; callers may call it a success."""


class CursorNotFound(LedgerError):
    """There is no durable cursor of that name."""


class ResetInProgress(LedgerError):
    """A revision of the cursor's positions runs: nothing is read or acknowledged meanwhile."""


class ConcurrentWait(LedgerError):
    """Somebody waits on this cursor already."""


class ConcurrentFind(LedgerError):
    """A search by time runs for this cursor already."""


class TooManyRequests(LedgerError):
    """A limit of work in flight was reached."""


class StoreInUse(LedgerError):
    """The folder is open already, in this process or in another one."""


class StoreUnusable(LedgerError):
    """The folder cannot be created, read or written, or holds something that is not ours."""


def from_engine(error: BaseException) -> LedgerError:
    """Translate what an engine raised; what the table does not know means an unknown state."""
    if isinstance(error, LedgerError):
        return error
    for kind, translate in _TRANSLATIONS:
        if isinstance(error, kind):
            return translate(error)
    return Fenced(f"storage is in an unknown state: {error!r}")


def _storage_failed(error: BaseException) -> LedgerError:
    return StorageFailed(str(error) or "the storage failed", full=_is_full(error))


def _is_full(error: BaseException) -> bool:
    return bool(getattr(error, "full", False))


_TRANSLATIONS: tuple[tuple[type[BaseException], Callable[[BaseException], LedgerError]], ...] = (
    (engine_errors.StorageWriteFailed, _storage_failed),
    (engine_errors.SyncFailed, lambda error: Fenced(f"a sync failed: {error}")),
    (engine_errors.EntryMissing, lambda error: NonRecoverable(str(error))),
    (engine_errors.EntryCorrupt, lambda error: Corrupt(str(error))),
    (engine_errors.LogCorrupt, lambda error: Corrupt(str(error))),
    (engine_errors.IndexCorrupt, lambda error: Corrupt(str(error))),
    (engine_errors.FolderInUse, lambda error: StoreInUse(str(error))),
    (engine_errors.FolderUnusable, lambda error: StoreUnusable(str(error))),
    (engine_errors.StorageError, _storage_failed),
)
