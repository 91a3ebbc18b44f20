"""Local rows: the rows of a store where its owner can read them at once.

Rule: it is a copy of what the database has, made when an engine opens and changed by every group;
nothing of it is needed afterwards. It is a RocksDB in a temporary folder: a million rows of 100
bytes in memory would take 300 MB as Python objects.
Must not know: the database, what rows mean.
"""

import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from kledger.ledger.engine.base import Row
from kledger.ledger.engine.index.rocksdb_table import RocksdbTable, new_batch

WRITE_BUFFER_BYTES = 32 * 1024 * 1024
"""Rows in memory; RocksDB flushes the others to the folder."""


class LocalRows:
    """Sorted rows in a folder that is deleted at the end; for any thread."""

    def __init__(self) -> None:
        """Make an empty one.

        Raises:
            StorageError: there is no temporary folder that can be used.
        """
        folder = tempfile.TemporaryDirectory(prefix="kledger-rows-")
        # Before the folder: what is never closed is released in this order, and RocksDB would wait
        # for ever for a flush into a folder that is gone.
        self._table = RocksdbTable(Path(folder.name), write_buffer_bytes=WRITE_BUFFER_BYTES)
        self._folder = folder

    def apply(self, rows: Iterable[Row]) -> None:
        """Change rows in order, all at once. Raises StorageError."""
        batch = new_batch()
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self._table.write(batch, wait=True)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row. Raises StorageError."""
        return self._table.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool, limit: int | None
    ) -> list[tuple[bytes, bytes]]:
        """Return rows with start <= key < end, in the order of keys or in `reverse`.

        Raises:
            StorageError: they cannot be read.
        """
        if start >= end:
            return []
        return [*islice(self._table.rows(start, end, reverse=reverse), limit)]

    def close(self) -> None:
        """Delete everything. May be repeated."""
        self._table.close()
        self._folder.cleanup()
