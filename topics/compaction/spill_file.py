"""Spill file: what does not fit into the memory of a compaction, in a file without a name.

Rule: nothing is left of it whenever the process ends. A fragment is a value that was appended at
once, and is read at once; of raw data any part can be read.
Must not know: what the values are.
"""

import errno
import marshal
import os
from typing import Any, BinaryIO, TypeAlias

from kledger.batches.buffers import Buffer

Fragment: TypeAlias = tuple[int, int]
"""Start and size in the file, in bytes."""

_MARSHAL_VERSION = 2  # later ones look for repeated objects


class SpillFile:
    """The file of one table; it is made when the first fragment is written."""

    def __init__(self, folder: str) -> None:
        """Args: folder: where the file is made."""
        self._folder = folder
        self._file: BinaryIO | None = None
        self._size = 0
        self._is_at_end = True

    def write(self, value: Any) -> Fragment:
        """Append a value, as `marshal` takes it. Raises OSError."""
        return self.write_raw(marshal.dumps(value, _MARSHAL_VERSION))

    def write_raw(self, data: Buffer) -> Fragment:
        """Append bytes. Raises OSError."""
        if self._file is None:
            self._file = _nameless_file(self._folder)
        if not self._is_at_end:
            self._file.seek(self._size)
            self._is_at_end = True
        start, size = self._size, self._file.write(data)
        self._size += size
        return start, size

    def read(self, fragment: Fragment) -> Any:
        """Return the value of a fragment. Raises OSError."""
        return marshal.loads(self.read_raw(fragment))  # noqa: S302 - written by this process

    def read_raw(self, fragment: Fragment) -> bytes:
        """Return bytes that lie anywhere in what was written. Raises OSError."""
        assert self._file is not None, "nothing was written"
        start, size = fragment
        self._file.seek(start)
        self._is_at_end = False
        return self._file.read(size)

    def close(self) -> None:
        """Free the space. May be repeated."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _nameless_file(folder: str) -> BinaryIO:
    """Open a file that has no name, so that nothing is left of it whenever the process ends."""
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR}:
            raise
        # A file system without such files: it has a name for an instant.
        path = os.path.join(folder, f"compaction-keys-{os.getpid()}")
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.unlink(path)
    return os.fdopen(file, "w+b")
