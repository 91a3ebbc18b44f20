"""Shared folder: the rows that processes of one machine share, in one file of a folder.

Rule: a thread makes all calls of the file in their order, and hands the rows of others over to the
event loop between the outcomes of the process's own writes.
Must not know: what rows mean.

A process sends the others a datagram after a change; they also poll at intervals.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from kledger.ledger.commits.committer import RowsDone
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import AlreadyClosed, LedgerError, StorageFailed
from kledger.ledger.shared_file import SharedFile
from kledger.runtime.clock import Clock
from kledger.runtime.socket_folder import open_socket_folder, socket_path
from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

POLL_MS: Final = 250
"""How often a process polls for changes, in case a datagram was lost."""
_SOCKETS: Final = ".shared-tables-"
T = TypeVar("T")


class SharedFolder:
    """The `SharedRows` of a folder, as one process has it open; `open` makes one."""

    def __init__(self, file: SharedFile, folder: Path, thread: ThreadPoolExecutor) -> None:
        """Args: thread: one alone, that the file was opened in."""
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._thread = thread
        self._changed: Callable[[Sequence[Row]], None]
        self._lost: Callable[[BaseException], None]
        self._deciding = asyncio.Lock()
        self._taken: Future[None]
        self._refreshing: Future[None] | None = None
        self._is_closed = False
        self._is_polling = False
        self._wakes = _Wakes(folder, self._poll)

    @classmethod
    async def open(cls, folder: Path, clock: Clock, supervisor: Supervisor) -> "SharedFolder":
        """Open the file in a folder, and create it if there is none.

        Args:
            folder: of the file.
            clock: for the interval of polls.
            supervisor: runs the task that polls.

        Raises:
            StoreUnusable: the file cannot be read, or is of another release.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="shared-tables")
        try:
            file = await asyncio.wrap_future(thread.submit(SharedFile, folder))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        rows = cls(file, folder, thread)
        supervisor.spawn(rows._poll_at_intervals(clock), "changes of shared tables")
        return rows

    # Methods of SharedRows

    def follow(
        self, changed: Callable[[Sequence[Row]], None], lost: Callable[[BaseException], None]
    ) -> None:
        """Call back from now on."""
        self._changed, self._lost = changed, lost

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the newest rows of a prefix; blocks. Raises StorageFailed."""
        return self._thread.submit(self._file.scan, prefix).result()

    async def lock(self) -> None:
        """Take the lock of the file, and apply what others have written."""
        await self._deciding.acquire()
        if self._is_closed:
            self._deciding.release()
            self._check_open()
        self._taken = self._thread.submit(self._take_lock)
        try:
            await asyncio.wrap_future(self._taken)
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Let others take the lock, behind everything that was written."""
        # Also if the caller was cancelled.
        self._thread.submit(self._release_lock, self._taken)
        self._deciding.release()

    def write(self, rows: Sequence[Row], done: RowsDone) -> None:
        """Write rows in one transaction."""
        self._thread.submit(self._write, rows, done)

    def poll(self) -> "asyncio.Future[None]":
        """Apply what others wrote before; calls share a poll that has not begun yet."""
        self._check_open()
        if self._refreshing is None or self._refreshing.running() or self._refreshing.done():
            self._refreshing = self._thread.submit(self._hand_over_changes)
        return asyncio.wrap_future(self._refreshing)

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

    # In the thread

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

    def _hand_over_changes(self) -> None:
        """Let the event loop apply what others have written; in the thread, so that order holds."""
        if rows := self._file.changes():
            self._on_loop(self._changed, rows)

    def _poll_once(self) -> None:
        error: LedgerError | None = None
        try:
            self._hand_over_changes()
        except LedgerError as failed:
            error = failed
        self._on_loop(self._polled, error)

    def _on_loop(self, call: Callable[[T], None], argument: T) -> None:
        with suppress(RuntimeError):  # the loop was closed without us
            self._loop.call_soon_threadsafe(call, argument)

    # Polls in the background

    def _poll(self) -> None:
        """Begin to apply what others have changed, unless that has begun."""
        if not self._is_polling and not self._is_closed:
            self._is_polling = True
            self._thread.submit(self._poll_once)

    def _polled(self, error: LedgerError | None) -> None:
        self._is_polling = False
        if error is not None and not self._is_closed:
            if isinstance(error, StorageFailed):
                logger.warning("%s; trying again", error)
            else:
                self._lost(error)

    async def _poll_at_intervals(self, clock: Clock) -> None:
        while not self._is_closed:
            await clock.sleep(POLL_MS)
            self._poll()

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed("the shared tables are closed")


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
