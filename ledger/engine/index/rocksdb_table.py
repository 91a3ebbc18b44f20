"""RocksDB table: the only module that uses rocksdict, and works around its pitfalls.

Rule: keys and values are bytes; nothing is written to RocksDB's own log; every scan ends with a
check of the iterator's status. Facts relied on: docs/decisions/0003-rocksdict.md.
Must not know: what the rows mean.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from kledger.ledger.engine.errors import (
    FolderUnusable,
    IndexCorrupt,
    StorageError,
    StorageWriteFailed,
)

if TYPE_CHECKING:
    from rocksdict import RdictIter

WRITE_BUFFER_BYTES = 128 * 1024 * 1024
"""So large that RocksDB never writes a table file of its own accord between two checkpoints."""
BLOCK_CACHE_BYTES = 8 * 1024 * 1024
OPEN_TABLE_FILES_MAX = 256

_NO_SPACE = "No space"
_MEMTABLE_SIZE = "rocksdb.cur-size-active-mem-table"


class TableFailed(StorageError):
    """An operation of RocksDB failed."""


class RocksdbTable:
    """Sorted rows. Every method may be called in any thread."""

    def __init__(self, folder: Path, *, write_buffer_bytes: int = WRITE_BUFFER_BYTES) -> None:
        """Open or create.

        Raises:
            FolderUnusable, IndexCorrupt, StorageWriteFailed: it cannot be opened.
        """
        _check_whole(folder)
        try:
            self._db = Rdict(str(folder), options=_options(write_buffer_bytes))
        except Exception as error:
            raise _cannot_open(folder, str(error)) from error
        self._write_or_wait = write_options(no_slowdown=False)
        self._write_or_refuse = write_options(no_slowdown=True)
        self._is_closed = False

    def write(self, batch: WriteBatch, *, wait: bool) -> bool:
        """Write a batch as a whole, or not at all: False if RocksDB has no room now.

        The batch is consumed either way. With `wait` the call blocks until there is room, with the
        lock of the interpreter held.
        """
        try:
            self._db.write(batch, self._write_or_wait if wait else self._write_or_refuse)
        except Exception as error:
            if not wait and _is_transient(error):
                return False
            raise TableFailed(f"the index could not be written: {error}") from error
        return True

    def get(self, key: bytes) -> bytes | None:
        """Return a value.

        Raises:
            TableFailed, IndexCorrupt: it could not be read.
        """
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise _unreadable("read", error) from error
        return value

    def is_resident(self, key: bytes) -> bool:
        """Return whether a lookup of a key needs no disk read: its value or absence is in memory.

        Raises:
            TableFailed, IndexCorrupt: the lookup failed.
        """
        try:
            found: object = self._db.key_may_exist(key, fetch=True)
        except Exception as error:
            raise _unreadable("read", error) from error
        assert isinstance(found, tuple), "a pair with `fetch`, which the stubs do not say"
        may_exist, value = found
        return value is not None or not may_exist

    def load(self, key: bytes) -> None:
        """Load the block that would have a key into memory; other threads run meanwhile.

        Raises:
            TableFailed, IndexCorrupt: the block could not be read.
        """
        try:
            self._db.get([key])  # for a list rocksdict releases the lock of the interpreter
        except Exception as error:
            raise _unreadable("read", error) from error

    def rows(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows with start <= key < end, as of this call.

        An iterator pins the database, so exhaust this generator or drop it, do not keep it.

        Raises:
            TableFailed, IndexCorrupt: a part could not be read; rows yielded before are right.
        """
        options = ReadOptions()
        options.set_iterate_upper_bound(end)  # the lower bound of rocksdict is not reliable
        try:
            iterator: RdictIter = self._db.iter(options)
        except Exception as error:
            raise _unreadable("read", error) from error
        return _rows_of(iterator, options, start, reverse=reverse)

    def unflushed_bytes(self) -> int:
        """Return the size of what the next flush writes."""
        size: int | None = self._db.property_int_value(_MEMTABLE_SIZE)
        return size or 0

    def flush(self) -> None:
        """Make everything written so far durable, as one consistent state."""
        try:
            self._db.flush()
        except Exception as error:
            raise TableFailed(f"the index could not be flushed: {error}") from error

    def close(self) -> None:
        """Flush and release the folder. May be repeated.

        Raises:
            TableFailed, StorageWriteFailed: the flush failed; the folder is released.
        """
        if not self._is_closed:
            self._is_closed = True
            try:
                self._db.close()
            except Exception as error:
                text = f"the index could not be flushed: {error}"
                if _NO_SPACE in str(error):
                    raise StorageWriteFailed(text, full=True) from error
                raise TableFailed(text) from error
            finally:
                del self._db  # after a failed flush only this closes the database


def new_batch() -> WriteBatch:
    """Return an empty batch."""
    return WriteBatch(raw_mode=True)


def _check_whole(folder: Path) -> None:
    """Refuse table files without the file that names them: RocksDB would begin an empty index."""
    if any(folder.glob("*.sst")) and not (folder / "CURRENT").exists():
        raise IndexCorrupt(f"index {folder} cannot be opened: CURRENT is missing")


def _rows_of(
    iterator: "RdictIter", _options: ReadOptions, start: bytes, *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Step through an iterator; the options must live as long, because they have its bound."""
    if reverse:
        iterator.seek_to_last()
        step = iterator.prev
    else:
        iterator.seek(start)
        step = iterator.next
    while iterator.valid() and (key := iterator.key()) >= start:
        yield key, iterator.value()
        step()
    try:
        iterator.status()
    except Exception as error:
        raise _unreadable("scanned", error) from error


def _unreadable(what: str, error: Exception) -> StorageError:
    """Return the error of a failed read: IndexCorrupt for damage, else TableFailed.

    The latter is for a system that cannot read now, such as one without free descriptors.
    """
    kind = IndexCorrupt if _is_damage(str(error)) else TableFailed
    return kind(f"the index could not be {what}: {error}")


def _is_damage(reason: str) -> bool:
    """Return whether a file of the index is damaged or missing; rocksdict has one type of error."""
    return reason.startswith("Corruption") or (
        reason.startswith("IO error") and "No such file" in reason
    )


def _cannot_open(folder: Path, reason: str) -> StorageError:
    """Return the error by its text, as rocksdict has one type: damaged, full or other."""
    text = f"index {folder} cannot be opened: {' '.join(reason.split())}"
    if _is_damage(reason):
        return IndexCorrupt(text)
    if _NO_SPACE in reason:
        return StorageWriteFailed(text, full=True)
    return FolderUnusable(text)


def _is_transient(error: Exception) -> bool:
    """Return whether a retry may succeed, after some time or with more space."""
    text = str(error)
    return "ncomplete" in text or _NO_SPACE in text


def write_options(*, no_slowdown: bool) -> WriteOptions:
    """Return write options without RocksDB's own log."""
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment]  # the stubs say method
    options.no_slowdown = no_slowdown
    return options


def _options(write_buffer_bytes: int) -> Options:
    """Return settings for a small, quiet index: little memory, no statistics, no write stalls."""
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(4)
    options.set_max_background_jobs(2)
    options.set_max_open_files(OPEN_TABLE_FILES_MAX)
    options.set_level_zero_slowdown_writes_trigger(200)
    options.set_level_zero_stop_writes_trigger(400)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1024 * 1024)
    return options
