"""Shared file: rows in one SQLite file that several processes read and change, one at a time.

Rule: every written row has a number, one more than the last, and a process sees what others wrote
as the newest rows above the number that it has seen. Rows are written only by the process that
has the lock, and only when it has seen everything.
Must not know: event loops, what rows mean. For one thread; every call blocks.

    meta(format, number, forgotten)     one row; `forgotten`: deletions up to it are gone
    row(key, value, number)             value NULL: deleted
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kledger.ledger.engine.base import Row
from kledger.ledger.errors import StorageFailed, StoreUnusable

FILE_NAME: Final = "shared.sqlite"
LOCK_NAME: Final = "shared.lock"
FORMAT: Final = 1
DELETIONS_MAX: Final = 10_000
"""Rows of deletions that are kept for processes which have not seen them."""
_BUSY_S: Final = 60.0


class SharedFile:
    """The file, as one process has it open."""

    def __init__(self, folder: Path) -> None:
        """Open the file in a folder, and create it if there is none.

        Raises:
            StoreUnusable: it cannot be read, or is of another release.
        """
        self._path = folder / FILE_NAME
        self._lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._database = sqlite3.connect(
                self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            with self.locked():
                self._seen = self._prepare()
        except (OSError, sqlite3.Error) as error:
            os.close(self._lock)
            raise StoreUnusable(f"{self._path}: {error}") from error
        self._data_version = -1

    def _prepare(self) -> int:
        """Create the tables of a new file; return the number of its newest row."""
        execute = self._database.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("BEGIN IMMEDIATE")
        execute("CREATE TABLE IF NOT EXISTS meta (format INT, number INT, forgotten INT)")
        execute(
            "CREATE TABLE IF NOT EXISTS row (key BLOB PRIMARY KEY, value BLOB, number INT)"
            " WITHOUT ROWID"
        )
        execute("CREATE INDEX IF NOT EXISTS row_number ON row (number)")
        if execute("SELECT count(*) FROM meta").fetchone()[0] == 0:
            execute("INSERT INTO meta VALUES (?, 0, 0)", (FORMAT,))
        execute("COMMIT")
        form, number = execute("SELECT format, number FROM meta").fetchone()
        if form != FORMAT:
            raise StoreUnusable(f"{self._path}: expected format {FORMAT}, got {form}")
        return int(number)

    def lock(self) -> None:
        """Take the lock of the file; waits until no other process has it."""
        with self._failing("locking"):
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Let other processes take the lock."""
        with self._failing("unlocking"):
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the lock of the file meanwhile."""
        self.lock()
        try:
            yield
        finally:
            self.unlock()

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the rows whose key begins with `prefix`, in the order of keys."""
        rows = []
        with self._failing("reading"):
            for key, value in self._database.execute(
                "SELECT key, value FROM row WHERE key >= ? AND value IS NOT NULL ORDER BY key",
                (prefix,),
            ):
                if not key.startswith(prefix):
                    break
                rows.append((key, value))
        return rows

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows in one transaction, synced; None deletes a key.

        Raises:
            StorageFailed: nothing was written; also if this process has not seen everything.
        """
        execute = self._database.execute
        with self._failing("writing"):
            execute("BEGIN IMMEDIATE")
            try:
                self._check_seen()
                numbered = [(*row, number) for number, row in enumerate(rows, self._seen + 1)]
                self._database.executemany("INSERT OR REPLACE INTO row VALUES (?, ?, ?)", numbered)
                newest = self._seen + len(rows)
                execute("UPDATE meta SET number = ?", (newest,))
                if (end := newest - DELETIONS_MAX) > 0:
                    execute("DELETE FROM row WHERE value IS NULL AND number <= ?", (end,))
                    execute("UPDATE meta SET forgotten = ?", (end,))
                execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    execute("ROLLBACK")
                raise
        self._seen = newest

    def _check_seen(self) -> None:
        (newest,) = self._database.execute("SELECT number FROM meta").fetchone()
        if newest != self._seen:
            raise StorageFailed(
                f"{self._path}: expected that row {self._seen} is the newest, got {newest}"
            )

    def changes(self) -> list[Row]:
        """Return the rows that other processes have written since the last call, in their order.

        A row that was written more than once comes once, as it is now.

        Raises:
            StoreUnusable: deletions among them are forgotten: the tables must be loaded again.
        """
        execute = self._database.execute
        with self._failing("reading"):
            (data_version,) = execute("PRAGMA data_version").fetchone()
            if data_version == self._data_version:
                return []
            execute("BEGIN")
            try:
                number, forgotten = execute("SELECT number, forgotten FROM meta").fetchone()
                if self._seen < forgotten:
                    raise StoreUnusable(
                        f"{self._path}: row {self._seen} was seen last, expected one above "
                        f"{forgotten}, below which deletions are forgotten; restart the server"
                    )
                rows = execute(
                    "SELECT key, value FROM row WHERE number > ? ORDER BY number", (self._seen,)
                ).fetchall()
            finally:
                execute("COMMIT")
        self._data_version, self._seen = data_version, number
        return rows

    def close(self) -> None:
        """Close the file; the lock is released."""
        self._database.close()
        os.close(self._lock)

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise StorageFailed(f"{doing} {self._path}: {error}") from error
