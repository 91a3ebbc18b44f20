"""WorkersFolder: the folder that workers share, which one parent has at a time.

Rule: nothing is written into a folder that workers may not use; its record is durable before the
first worker starts. The lock has the name and the kind of a data folder's, so that a server without
workers and a parent that start at the same time in an empty folder exclude each other. A parent
waits for the workers of one that has died.
Must not know: what workers store.
"""

import fcntl
import logging
import os
from pathlib import Path
from typing import Final

from kledger.runtime.clock import Clock
from kledger.workers.folder_plan import LOCK, RECORD, FolderRecord, plan_folder
from kledger.workers.worker_plan import WorkersMistake

logger = logging.getLogger(__name__)

ORPHANS_MAX_MS: Final = 30_000
"""How long workers without a parent may take to stop; then the error is that of their folder."""
_POLL_MS: Final = 20
_NEW_RECORD: Final = f".{RECORD}.new"


async def wait_for_orphans(path: str, clock: Clock) -> None:
    """Wait until the workers of a parent that has died have stopped and closed their ports.

    Args:
        path: the folder, which need not exist.
        clock: for the waiting.
    """
    deadline_ms = clock.monotonic_ms() + ORPHANS_MAX_MS
    if _has_orphans(Path(path)):
        logger.info("waiting for workers in %s, whose parent has ended", path)
    while _has_orphans(Path(path)) and clock.monotonic_ms() < deadline_ms:
        await clock.sleep(_POLL_MS)


def _has_orphans(folder: Path) -> bool:
    return not _is_locked(folder / LOCK) and any(map(_is_locked, folder.glob(f"worker-*/{LOCK}")))


def _is_locked(file: Path) -> bool:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # there is none, or opening it fails with the reason
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def has_workers(path: str) -> bool:
    """Return whether a data folder is that of a server with workers."""
    return (Path(path) / RECORD).exists()


class WorkersLock:
    """Holds a folder of workers from construction to `close`."""

    def __init__(self, folder: Path) -> None:
        """Lock a folder that exists.

        Raises:
            WorkersMistake: another process has it.
            OSError: it cannot be locked.
        """
        self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise WorkersMistake(f"data folder {folder} is in use") from None

    def close(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)


class WorkersFolder:
    """A folder that is locked from construction to `close`.

    Attributes:
        record: of its workers.
    """

    def __init__(self, path: str, *, count: int, node_id: int) -> None:
        """Lock the folder, and make it if there is none.

        Args:
            path: the folder.
            count: workers that are to run.
            node_id: of the settings.

        Raises:
            WorkersMistake: they may not use it, or another process does.
            OSError: it cannot be read or written.
        """
        self._path = Path(path)
        self._count, self._node_id = count, node_id
        self._planned()
        self._path.mkdir(parents=True, exist_ok=True)
        self._lock = WorkersLock(self._path)
        try:
            # Again: until the lock was ours, another process could have made something of it.
            self.record = self._planned()
            if self.record != self._stored():
                self._store(self.record)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _planned(self) -> FolderRecord:
        return plan_folder(
            str(self._path),
            os.listdir(self._path) if self._path.exists() else [],
            self._stored(),
            count=self._count,
            node_id=self._node_id,
        )

    def _stored(self) -> FolderRecord | None:
        file = self._path / RECORD
        try:
            return FolderRecord.decode(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise WorkersMistake(f"{file} cannot be read: {error}") from None

    def _store(self, record: FolderRecord) -> None:
        new = self._path / _NEW_RECORD
        with new.open("wb") as file:
            file.write(record.encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path / RECORD)
        for folder in (self._path, self._path.parent):
            _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
