"""Tier cache: blocks of objects in files of a folder, so that a second reader needs no request.

Rule: the folder is disposable. What it has is verified by the caller with the checksums of the
object, so files survive a restart, and a damaged one is a miss. A disk that is full, slow or broken
never fails a read. The least recently used files are deleted first.
Must not know: what the files contain.

| limit                 | when it is reached                            |
|-----------------------|-----------------------------------------------|
| `cache_bytes`         | files are deleted, least recently used first  |
| `WRITING_BYTES_MAX`   | further blocks are not cached                 |
"""

import asyncio
import logging
import os
from collections import OrderedDict
from pathlib import Path

from kledger.ledger.engine.base import Buffer
from kledger.runtime.blocking import BlockingRunner, PoolClosed

logger = logging.getLogger(__name__)

WRITING_BYTES_MAX = 16 << 20
"""Bytes that wait for being written."""
UNFINISHED = ".unfinished"


class TierCache:
    """The files of one folder, which belongs to one process.

    Attributes:
        size: bytes of all files.
    """

    def __init__(self, folder: Path, cache_bytes: int, *, pool: BlockingRunner) -> None:
        """Make one; the folder is made and read by the first call.

        Args:
            folder: made if it does not exist; nothing else may be in it.
            cache_bytes: limit of the files' bytes; 0 caches nothing.
            pool: for reading and writing.
        """
        self.size = 0
        self._folder = folder
        self._cache_bytes = cache_bytes
        self._pool = pool
        self._files: OrderedDict[str, int] = OrderedDict()  # their sizes, oldest first
        self._writing_bytes = 0
        self._has_failed = False
        self._is_loaded = False
        self._loading = asyncio.Lock()

    async def get(self, name: str) -> Buffer | None:
        """Return what was put under a name; None if it is not there any more."""
        await self._load()
        if name not in self._files:
            return None
        self._files.move_to_end(name)
        try:
            return await self._pool.run(_read, self._folder / name)
        except (OSError, PoolClosed):
            self._forget(name)
            return None

    async def put(self, name: str, data: Buffer) -> None:
        """Keep bytes under a name, if the folder takes them."""
        await self._load()
        size = len(data)
        if (
            name in self._files
            or size > self._cache_bytes
            or self._writing_bytes + size > WRITING_BYTES_MAX
        ):
            return
        self._writing_bytes += size
        try:
            await self._pool.run(_write, self._folder, name, data)
        except OSError as error:
            self._failed(error)
            return
        except PoolClosed:
            return
        finally:
            self._writing_bytes -= size
        if name not in self._files:
            self._files[name] = size
            self.size += size
        await self._delete_excess()

    async def drop(self, prefix: str) -> None:
        """Delete what was put under names with a prefix."""
        await self._load()
        names = [name for name in self._files if name.startswith(prefix)]
        for name in names:
            self._forget(name)
        await self._delete(names)

    async def _load(self) -> None:
        """Find the files of an earlier run, once."""
        if self._is_loaded:
            return
        async with self._loading:
            if self._is_loaded:
                return
            try:
                found = await self._pool.run(_prepare, self._folder)
            except OSError as error:
                self._failed(error)
                found = []
            except PoolClosed:
                return
            self._files.update(found)
            self.size = sum(self._files.values())
            self._is_loaded = True
            await self._delete_excess()

    async def _delete_excess(self) -> None:
        names = []
        while self.size > self._cache_bytes:
            name = next(iter(self._files))
            self._forget(name)
            names.append(name)
        await self._delete(names)

    def _forget(self, name: str) -> None:
        self.size -= self._files.pop(name, 0)

    async def _delete(self, names: list[str]) -> None:
        if names:
            try:
                await self._pool.run(_delete, self._folder, names)
            except OSError as error:
                self._failed(error)
            except PoolClosed:
                return

    def _failed(self, error: OSError) -> None:
        """Log the first of many errors."""
        if not self._has_failed:
            self._has_failed = True
            logger.warning("the cache of the tier cannot be used: %s", error.strerror)


def _prepare(folder: Path) -> list[tuple[str, int]]:
    """Return names and sizes of the files, oldest first; delete unfinished ones."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for file in folder.iterdir():
        if file.name.endswith(UNFINISHED):
            file.unlink(missing_ok=True)
        elif file.is_file():
            status = file.stat()
            found.append((status.st_mtime_ns, file.name, status.st_size))
    return [(name, size) for _, name, size in sorted(found)]


def _read(path: Path) -> Buffer:
    data = path.read_bytes()
    os.utime(path)
    return data


def _write(folder: Path, name: str, data: Buffer) -> None:
    unfinished = folder / f"{name}{UNFINISHED}"
    try:
        unfinished.write_bytes(data)
        unfinished.rename(folder / name)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _delete(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
