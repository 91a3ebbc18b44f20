"""Errors of the engines, one class for each reaction of the caller.

| error              | state                               | the caller                         |
|--------------------|-------------------------------------|------------------------------------|
| StorageWriteFailed | nothing of the group was stored     | fails the group, may retry it      |
| SyncFailed         | unknown                             | fences, never retries              |
| EntryMissing       | intact                              | has asked for an unknown entry     |
| EntryCorrupt       | an entry is damaged, others are not | reports it, never delivers it      |
| LogCorrupt         | synced data is damaged              | refuses to start                   |
| FolderInUse        | another engine has the folder open  | refuses to start                   |
| FolderUnusable     | the folder cannot be opened at all  | refuses to start                   |
| IndexCorrupt       | the index is damaged                | refuses to start                   |
"""

import errno

FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Error numbers for a lack of space: of the disk, of a quota, of the size of a file."""


class StorageError(Exception):
    """Base of all errors that an engine raises."""


class StorageWriteFailed(StorageError):
    """Nothing of the group remains in the log; `full` means that there was no space."""

    def __init__(self, message: str = "the write failed", *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class SyncFailed(StorageError):
    """Written data may or may not be durable; only a restart can find out."""


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
    """A synced part of the log is damaged."""

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
    """The index is damaged; the log alone cannot replace it, as old log files are removed."""
