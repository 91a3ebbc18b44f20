"""Shared tables: rows that every broker of a cluster reads and changes.

Rule: a change is decided and written under one lock for all processes, and taking the lock applies
what other processes have changed; so no decision is made on an old row. Rows of others are applied
on the event loop in the order in which they were written, between a process's own in the same
order. A server that is alone has no shared tables: its tables are in its `LedgerStore`.
Must not know: what rows mean.

A datagram tells the other processes of a change; they also look at every interval.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from kledger.ledger.commits.committer import RowsDone, submitted
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import AlreadyClosed, LedgerError, StorageFailed
from kledger.ledger.shared_file import SharedFile
from kledger.ledger.table_store import RowChanged
from kledger.runtime.clock import Clock
from kledger.runtime.containment import Containment, NamedUnit
from kledger.runtime.socket_folder import open_socket_folder, socket_path
from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

LOOK_MS: Final = 250
"""How often a process looks for changes of which it got no datagram."""
_SOCKETS: Final = ".shared-tables-"
_FOLLOWER = NamedUnit("background work", "a change of shared tables")
T = TypeVar("T")


class SharedTables:
    """The tables, as one process has them open; `open` makes one."""

    def __init__(
        self,
        file: SharedFile,
        folder: Path,
        thread: ThreadPoolExecutor,
        containment: Containment,
    ) -> None:
        """Args: thread: one alone, that the file was opened in."""
        self.on_fatal: Callable[[BaseException], None] | None = None
        """Called when this process cannot follow the others any more."""
        self._file = file
        self.containment = containment
        self._loop = asyncio.get_running_loop()
        self._thread = thread
        self._change_lock = ChangeLock(self._begin_change, self._end_change)
        self._deciding = asyncio.Lock()
        self._taken: Future[None]
        self._refreshing: Future[None] | None = None
        self._is_decided = False
        self._followers: list[tuple[bytes, RowChanged]] = []
        self._is_closed = False
        self._is_looking = False
        self._wakes = _Wakes(folder, self._look)

    @classmethod
    async def open(
        cls, folder: Path, *, containment: Containment, clock: Clock, supervisor: Supervisor
    ) -> "SharedTables":
        """Open the tables in a folder, and create them if there are none.

        Args:
            folder: of the file.
            containment: for faults of followers.
            clock: for the interval at which the tables look for changes.
            supervisor: runs the task that does so.

        Raises:
            StoreUnusable: the file cannot be read, or is of another release.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="shared-tables")
        try:
            file = await asyncio.wrap_future(thread.submit(SharedFile, folder))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        tables = cls(file, folder, thread, containment)
        supervisor.spawn(tables._look_at_intervals(clock), "changes of shared tables")
        return tables

    # Reads, for the start: tables are loaded once, and then follow the changes.

    def get_row(self, key: bytes) -> bytes | None:
        """Return the newest value of a row; blocks. Raises StorageFailed."""
        return self._thread.submit(self._file.get, key).result()

    def scan_rows(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return the newest rows of a prefix, in the order of keys; blocks.

        Raises:
            StorageFailed: the file cannot be read.
        """
        return self._thread.submit(self._file.scan, prefix).result()

    def follow(self, prefix: bytes, changed: RowChanged) -> None:
        """Call `changed` for each row of that prefix which another process has changed."""
        self._followers.append((prefix, changed))

    # Changes

    def change_lock(self) -> "ChangeLock":
        """Return the one lock under which changes are decided and written."""
        return self._change_lock

    async def _begin_change(self) -> None:
        await self._deciding.acquire()
        if self._is_closed:
            self._deciding.release()
            self._check_open()
        self._taken = self._thread.submit(self._take_lock)
        try:
            await asyncio.wrap_future(self._taken)
        except BaseException:
            self._end_change()
            raise
        self._is_decided = True

    def _end_change(self) -> None:
        self._is_decided = False
        # Behind everything that was written, also if the caller was cancelled.
        self._thread.submit(self._release_lock, self._taken)
        self._deciding.release()

    def _take_lock(self) -> None:
        self._file.lock()
        try:
            self._hand_over_changes()
        except BaseException:
            self._file.unlock()
            raise

    def _release_lock(self, taken: "Future[None]") -> None:
        if not taken.cancelled() and taken.exception() is None:
            self._file.unlock()

    def append_rows_nowait(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Write rows in one transaction, all or none; never blocks.

        Args:
            rows: keys and values; None deletes the key.
            done: called on the event loop when the rows are durable, or with the error.

        Raises:
            AlreadyClosed: `done` is not called.
        """
        assert self._is_decided, "rows are written outside the lock under which they are decided"
        self._check_open()
        self._thread.submit(self._write, rows, done)

    append_rows_lazily = append_rows_nowait

    async def put_rows(self, rows: Sequence[Row]) -> None:
        """Write rows in one transaction, all or none.

        Raises:
            AlreadyClosed, StorageFailed: nothing was written.
        """
        await submitted(lambda done: self.append_rows_nowait(rows, done))

    def _write(self, rows: Sequence[Row], done: RowsDone) -> None:
        error: LedgerError | None = None
        try:
            self._file.write(rows)
        except LedgerError as failed:
            error = failed
        except Exception as fault:  # noqa: BLE001 - the caller would wait for ever
            error = StorageFailed(f"writing shared tables: {fault!r}")
        self._on_loop(done, error)
        if error is None:
            self._wakes.wake_others()

    # Changes of others

    async def refresh(self) -> None:
        """Apply what other processes changed before this call.

        Raises:
            AlreadyClosed, StorageFailed: it is not known what they changed.
        """
        await asyncio.shield(self.refreshed())

    def refreshed(self) -> "asyncio.Future[None]":
        """Return what ends as `refresh` does; it is not cancelled, as others may wait for it.

        Calls share a look at the file that has not begun yet, however many they are.

        Raises:
            AlreadyClosed: the tables are closed.
        """
        self._check_open()
        if self._refreshing is None or self._refreshing.running() or self._refreshing.done():
            self._refreshing = self._thread.submit(self._hand_over_changes)
        return asyncio.wrap_future(self._refreshing)

    def _hand_over_changes(self) -> None:
        """Let the event loop apply what others have written; in the thread, so that order holds."""
        if rows := self._file.changes():
            self._on_loop(self._apply, rows)

    def _apply(self, rows: Sequence[Row]) -> None:
        for key, value in rows:
            for prefix, changed in self._followers:
                if key.startswith(prefix):
                    with self.containment.guarding(_FOLLOWER):
                        changed(key, value)

    def _look(self) -> None:
        """Begin to apply what others have changed, unless that has begun."""
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            self._thread.submit(self._look_once)

    def _look_once(self) -> None:
        error: LedgerError | None = None
        try:
            self._hand_over_changes()
        except LedgerError as failed:
            error = failed
        self._on_loop(self._looked, error)

    def _looked(self, error: LedgerError | None) -> None:
        self._is_looking = False
        if error is not None and not self._is_closed:
            if self.on_fatal is None or isinstance(error, StorageFailed):
                logger.warning("%s; trying again", error)
            else:
                self.on_fatal(error)

    async def _look_at_intervals(self, clock: Clock) -> None:
        while not self._is_closed:
            await clock.sleep(LOOK_MS)
            self._look()

    def _on_loop(self, call: Callable[[T], None], argument: T) -> None:
        with suppress(RuntimeError):  # the loop was closed without us
            self._loop.call_soon_threadsafe(call, argument)

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed("the shared tables are closed")

    async def close(self) -> None:
        """Wait for what is being decided and written, and close the file. Idempotent."""
        if self._is_closed:
            return
        async with self._deciding:
            self._is_closed = True
        # Behind everything that was written.
        await asyncio.wrap_future(self._thread.submit(self._file.close))
        self._thread.shutdown(wait=False)
        self._wakes.close()


class ChangeLock:
    """The lock of shared tables; a task takes it with `async with`."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end

    async def __aenter__(self) -> None:
        await self._begin()

    async def __aexit__(self, *_error: object) -> None:
        self._end()


class _Wakes:
    """Datagrams between the processes that have a folder's tables open.

    A socket is a file in the folder.
    """

    def __init__(self, folder: Path, woken: Callable[[], None]) -> None:
        self._folder = open_socket_folder(folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._name = f"{_SOCKETS}{os.getpid()}-{self._socket.fileno()}"
        self._unlink(self._name)  # of an earlier process with this id
        self._socket.bind(socket_path(self._folder, self._name))
        self._woken = woken
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1)
        self._woken()

    def wake_others(self) -> None:
        """Send a datagram to every other process; called in a thread."""
        for name in self._others():
            try:
                self._socket.sendto(b"\0", socket_path(self._folder, name))
            except BlockingIOError:
                pass  # it has datagrams that it has not received
            except OSError:
                self._unlink(name)  # its process has ended

    def _others(self) -> Iterator[str]:
        for name in os.listdir(self._folder):
            if name.startswith(_SOCKETS) and name != self._name:
                yield name

    def _unlink(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._folder)

    def close(self) -> None:
        """Receive nothing more."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._unlink(self._name)
        os.close(self._folder)
