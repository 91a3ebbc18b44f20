"""WAL cache: bytes of groups in memory, so that they need not be read from the object store.

Rule: it has whole groups that this process has written, and single blocks that were read, each kind
with its own limit and LRU order, so that a reader of old data does not displace the newest. Readers
verify the checksums each time.
Must not know: objects, ledgers.
"""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

from kledger.ledger.cluster.wal_index import BlockLocation
from kledger.ledger.engine.base import Buffer

OWN_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES_MAX = 64 * 1024 * 1024

Key = TypeVar("Key")


class WalCache:
    """For any thread."""

    def __init__(
        self, *, own_bytes_max: int = OWN_BYTES_MAX, read_bytes_max: int = READ_BYTES_MAX
    ) -> None:
        """Args: own_bytes_max: of groups; read_bytes_max: of blocks."""
        self._groups: _LeastRecentlyUsed[int] = _LeastRecentlyUsed(own_bytes_max)
        self._blocks: _LeastRecentlyUsed[tuple[int, int]] = _LeastRecentlyUsed(read_bytes_max)
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Bytes in memory."""
        with self._lock:
            return self._groups.size + self._blocks.size

    def put_group(self, file: int, data: Buffer) -> None:
        """Keep a group that was written."""
        with self._lock:
            self._groups.put(file, data)

    def put_block(self, location: BlockLocation, data: Buffer) -> None:
        """Keep a block that was read."""
        with self._lock:
            self._blocks.put((location.file, location.block.position), data)

    def group(self, file: int) -> Buffer | None:
        """Return a whole group."""
        with self._lock:
            return self._groups.get(file)

    def block(self, location: BlockLocation) -> Buffer | None:
        """Return the bytes of a block."""
        file, block = location
        with self._lock:
            data = self._groups.get(file)
            if data is not None:
                return memoryview(data)[block.position : block.position + block.size]
            return self._blocks.get((file, block.position))

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._groups.clear()
            self._blocks.clear()

    def forget(self, file: int) -> None:
        """Drop a group; blocks that were read of it leave by their age."""
        with self._lock:
            self._groups.drop(file)


class _LeastRecentlyUsed(Generic[Key]):
    """Buffers by key, up to a limit of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.size = 0
        self._buffers: OrderedDict[Key, Buffer] = OrderedDict()

    def put(self, key: Key, data: Buffer) -> None:
        self.drop(key)
        self._buffers[key] = data
        self.size += len(data)
        while self.size > self._bytes_max:
            self.size -= len(self._buffers.popitem(last=False)[1])

    def get(self, key: Key) -> Buffer | None:
        if key not in self._buffers:
            return None
        self._buffers.move_to_end(key)
        return self._buffers[key]

    def clear(self) -> None:
        self._buffers.clear()
        self.size = 0

    def drop(self, key: Key) -> None:
        data = self._buffers.pop(key, None)
        self.size -= 0 if data is None else len(data)
