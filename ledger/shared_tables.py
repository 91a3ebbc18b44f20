"""Shared tables: rows that every broker of a cluster reads and changes.

Rule: a change is decided and written under one lock for all brokers, and taking the lock applies
what other brokers have changed; so no decision is made on an old row. Every broker applies all
rows, its own and those of others, on its event loop in the order in which they were written. A
single server has no shared tables: its tables are in its `LedgerStore`.
Must not know: what rows mean, where they are kept: see `SharedRows`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from kledger.ledger.commits.committer import RowsDone, submitted
from kledger.ledger.engine.base import Row
from kledger.ledger.shared_folder import SharedFolder
from kledger.ledger.table_store import RowChanged
from kledger.runtime.clock import Clock
from kledger.runtime.containment import Containment, NamedUnit
from kledger.runtime.tasks import Supervisor

_FOLLOWER = NamedUnit("background work", "a change of shared tables")


class SharedRows(Protocol):
    """Rows that several brokers change, as one of them has them open; for its event loop.

    `SharedFolder` keeps them in a folder, for processes of one machine; `DatabaseRows` in the
    database of a cluster.
    """

    def follow(
        self, changed: Callable[[Sequence[Row]], None], lost: Callable[[BaseException], None]
    ) -> None:
        """Call back from now on; called once, before anything else.

        Args:
            changed: with the newest rows that other brokers have written, in their order.
            lost: if the changes of others cannot be known any more.
        """
        ...

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the rows whose key begins with `prefix`, in the order of keys."""
        ...

    async def lock(self) -> None:
        """Take the lock; `changed` is called with what others have written before.

        Raises:
            AlreadyClosed, StorageFailed: the caller does not have it.
        """
        ...

    def unlock(self) -> None:
        """Let others take the lock, behind everything that was written; never blocks."""
        ...

    def write(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Write rows in one transaction; never blocks. Only under the lock.

        Args:
            rows: keys and values; None deletes the key.
            done: called when they are durable, or with the error; then nothing was written.
        """
        ...

    def poll(self) -> "asyncio.Future[None]":
        """Return a future; done when `changed` was called with what others wrote before this call.

        Raises:
            AlreadyClosed: the rows are closed.
        """
        ...

    async def close(self) -> None:
        """Wait for what is being decided and written; nothing is called back any more."""
        ...


class SharedTables:
    """The tables, as one broker has them open; `open` makes those of a folder."""

    def __init__(self, rows: SharedRows, containment: Containment) -> None:
        """Follow the rows.

        Args:
            rows: of the tables; they are closed with them.
            containment: for faults of followers.
        """
        self.on_fatal: Callable[[BaseException], None] | None = None
        """Called when this broker cannot follow the others any more."""
        self.containment = containment
        self._rows = rows
        self._change_lock = ChangeLock(self._begin_change, self._end_change)
        self._is_decided = False
        self._followers: list[tuple[bytes, RowChanged]] = []
        rows.follow(self._apply, self._lost)

    @classmethod
    async def open(
        cls, folder: Path, *, containment: Containment, clock: Clock, supervisor: Supervisor
    ) -> "SharedTables":
        """Open the tables in a folder, and create them if there are none.

        Args:
            folder: of the file.
            containment: for faults of followers.
            clock: for the interval at which the tables poll for changes.
            supervisor: runs the task that polls.

        Raises:
            StoreUnusable: the file cannot be read, or is of another release.
        """
        return cls(await SharedFolder.open(folder, clock, supervisor), containment)

    # Reads, for the start: tables are loaded once, and then follow the changes.

    def get_row(self, key: bytes) -> bytes | None:
        """Return the newest value of a row; may block. Raises StorageFailed."""
        return next((value for found, value in self._rows.scan(key) if found == key), None)

    def scan_rows(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return the newest rows of a prefix, in the order of keys; may block.

        Raises:
            StorageFailed: they cannot be read.
        """
        return self._rows.scan(prefix)

    def follow(self, prefix: bytes, changed: RowChanged) -> None:
        """Call `changed` for each row of that prefix which another broker has changed."""
        self._followers.append((prefix, changed))

    # Changes

    def change_lock(self) -> "ChangeLock":
        """Return the one lock under which changes are decided and written."""
        return self._change_lock

    async def _begin_change(self) -> None:
        await self._rows.lock()
        self._is_decided = True

    def _end_change(self) -> None:
        self._is_decided = False
        self._rows.unlock()

    def append_rows_nowait(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Write rows in one transaction, all or none; never blocks.

        Args:
            rows: keys and values; None deletes the key.
            done: called on the event loop when the rows are durable, or with the error.
        """
        assert self._is_decided, "rows are written outside the lock under which they are decided"
        self._rows.write(rows, done)

    append_rows_lazily = append_rows_nowait

    async def put_rows(self, rows: Sequence[Row]) -> None:
        """Write rows in one transaction, all or none.

        Raises:
            StorageFailed: nothing was written.
        """
        await submitted(lambda done: self.append_rows_nowait(rows, done))

    # Changes of others

    async def refresh(self) -> None:
        """Apply what other brokers changed before this call.

        Raises:
            AlreadyClosed, StorageFailed: it is not known what they changed.
        """
        await asyncio.shield(self.refreshed())

    def refreshed(self) -> "asyncio.Future[None]":
        """Return a future that ends as `refresh` does; callers share it and must not cancel it.

        All calls before a poll begins share that poll.

        Raises:
            AlreadyClosed: the tables are closed.
        """
        return self._rows.poll()

    def _apply(self, rows: Sequence[Row]) -> None:
        for key, value in rows:
            for prefix, changed in self._followers:
                if key.startswith(prefix):
                    with self.containment.guarding(_FOLLOWER):
                        changed(key, value)

    def _lost(self, error: BaseException) -> None:
        if self.on_fatal is not None:
            self.on_fatal(error)

    async def close(self) -> None:
        """Wait for what is being decided and written, and close the rows. Idempotent."""
        await self._rows.close()


class ChangeLock:
    """The lock of shared tables; a task takes it with `async with`."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end

    async def __aenter__(self) -> None:
        await self._begin()

    async def __aexit__(self, *_error: object) -> None:
        self._end()
