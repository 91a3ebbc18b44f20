"""Errors of the engines, told apart by what the caller must do.

| error              | state                               | the caller                         |
|--------------------|-------------------------------------|------------------------------------|
| StorageWriteFailed | nothing of the group was stored     | fails the group, may send it again |
| SyncFailed         | unknown                             | fences, never tries again          |
| EntryMissing       | intact                              | has asked for what is not there    |
| EntryCorrupt       | an entry is damaged, others are not | reports it, never delivers it      |
| LogCorrupt         | synced data is damaged              | refuses to start                   |
| FolderInUse        | another engine has the folder open  | refuses to start                   |
| FolderUnusable     | the folder cannot be opened at all  | refuses to start                   |
| IndexCorrupt       | the index is damaged                | refuses to start                   |
"""

import errno

FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says when there is no space left, for this process or for everyone."""


class StorageError(Exception):
    """Base of all errors that an engine raises."""


class StorageWriteFailed(StorageError):
    """Nothing of the group remains in the log; `full` tells a storage without space."""

    def __init__(self, message: str = "the write failed", *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class SyncFailed(StorageError):
    """What was written may or may not be durable; nobody can find out without a restart."""


class EntryMissing(StorageError):
    """There is no such entry."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        super().__init__(f"no entry {ledger_id}:{entry_id}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class EntryCorrupt(StorageError):
    """The bytes stored for an entry are not the bytes that were written."""

    def __init__(self, ledger_id: int, entry_id: int, reason: str) -> None:
        super().__init__(f"entry {ledger_id}:{entry_id}: {reason}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.reason = reason


class LogCorrupt(StorageError):
    """A part of the log that had been synced is damaged."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file} is damaged at position {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class FolderInUse(StorageError):
    """The data folder is open already, in this process or in another one."""


class FolderUnusable(StorageError):
    """The data folder cannot be created, read or written, or belongs to something else."""


class IndexCorrupt(StorageError):
    """The index is damaged; what is in no log file any more is in the index alone."""
