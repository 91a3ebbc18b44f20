"""Engine on disk: an entry log, and RocksDB as its index.

Rule: the log is the truth; the index is derived from it, and a checkpoint makes the index durable.
Opening replays the groups that the durable index lacks, through the same method as live groups.
Must not know: threads, beyond what `StorageEngine` says.

The folder holds `lock`, `log/NNNNNNNN.log` and `index/`.
"""

import logging
import os
from collections import deque
from pathlib import Path
from threading import Lock
from typing import Literal, TypeAlias

from kledger.ledger.engine import crash_image, data_folder
from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.ledger.engine.errors import (
    EntryCorrupt,
    EntryMissing,
    LogCorrupt,
    StorageError,
    StorageWriteFailed,
    SyncFailed,
)
from kledger.ledger.engine.folder_lock import FolderLock
from kledger.ledger.engine.index.index_keys import EntryLocation
from kledger.ledger.engine.index.log_index import LogIndex
from kledger.ledger.engine.index.read_plan import ReadRange, plan_reads
from kledger.ledger.engine.index.rocksdb_table import RocksdbTable
from kledger.ledger.engine.log.entry_log import FILE_BYTES_MAX, EntryLog, LogEnd, PlacedGroup
from kledger.ledger.engine.log.frames import HEADER_SIZE, FrameDamaged, check_entry, data_of_entry
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.log_scan import LogScan
from kledger.ledger.engine.log.recovery_plan import Refuse, TruncateTail, plan_recovery
from kledger.ledger.engine.log_rewrite import LogRewrite

logger = logging.getLogger(__name__)

Durability: TypeAlias = Literal["fsync", "os"]

CHECKPOINT_FRAMES = 100_000
"""A checkpoint is due after so many frames, or one log file; this bounds the time of recovery."""
CHECKPOINT_RETRY_FRAMES = 10_000
FREE_BYTES_MIN = 4 * 1024 * 1024
"""Bytes that must stay free on the disk besides a checkpoint's own table file."""

_NO_WAIT: int = getattr(os, "RWF_NOWAIT", -1)


class LogRocksdbEngine:
    """A `TwoStepEngine` in one folder.

    Attributes:
        durability: the promise of the owner to its callers; each commit says whether to sync.
    """

    needs_thread = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        file_bytes_max: int = FILE_BYTES_MAX,
        checkpoint_frames: int = CHECKPOINT_FRAMES,
    ) -> None:
        """Open a folder, or create it.

        Raises:
            FolderInUse: another engine has it open.
            FolderUnusable: it cannot be used.
            LogCorrupt, IndexCorrupt: synced data is damaged; nothing was changed.
            StorageWriteFailed: there is no space left.
        """
        assert durability in {"fsync", "os"}, durability
        self.path = Path(path)
        self.durability = durability
        self._file_bytes_max = file_bytes_max
        self._checkpoint_frames = checkpoint_frames
        self._folder_lock = FolderLock(self.path)
        self._checkpoint_lock = Lock()
        self._is_closed = True
        self._committed: deque[PlacedGroup] = deque()
        self._frames = self._retry_at_frames = self._checkpoint_file = 0
        self._files: LogFiles
        self._index: LogIndex
        self._log: EntryLog
        self._rewrite: LogRewrite
        try:
            self._open()
        except BaseException:
            self._folder_lock.release()
            raise

    # StorageEngine

    @property
    def is_behind(self) -> bool:
        """Whether the next commit waits for the index; see `StorageEngine`."""
        return self._index.is_behind

    def commit_delay_ms(self, size: int) -> int:
        """Return 0: nothing limits how often groups are written."""
        return 0

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        """Write and sync a group; see `StorageEngine`."""
        self.write(group, sync_follows=sync)
        if sync:
            try:
                self._log.sync_current()
            except SyncFailed:
                self._committed.pop()
                raise

    def write(self, group: CommitGroup, *, sync_follows: bool) -> None:
        """Do the first half of commit."""
        if self._index.is_behind:
            self._index.catch_up()
        if group.moves:
            self._index.load_locations_of(group.moves)
        self._committed.append(self._log.append(group, sync_follows=sync_follows))

    def sync(self) -> None:
        """Do the second half of commit."""
        self._log.sync_current()

    def index(self, group: CommitGroup) -> None:
        """Make the oldest committed group visible."""
        placed = self._committed.popleft()
        assert placed.group is group, "groups are indexed in the order in which they were committed"
        self._take(placed)

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Return entries; see `StorageEngine`.

        Entries may be moved during the read, and their old file removed: if they are not found,
        their locations are looked up again.
        """
        locations = self._index.locations(ledger_id, first_entry, last_entry, bytes_max)
        while locations:
            try:
                return self._read_locations(ledger_id, locations)
            except EntryCorrupt:
                before = locations
                locations = self._index.locations(ledger_id, first_entry, last_entry, bytes_max)
                if locations == before:
                    raise
        raise EntryMissing(ledger_id, first_entry)

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Return entries from the page cache; see `StorageEngine`."""
        locations = self._index.locations_nowait(ledger_id, first_entry, last_entry, bytes_max)
        if not locations:
            return None
        entries: list[Buffer] = []
        for read_range in plan_reads(locations):
            content = self._resident(read_range)
            if content is None:
                return None
            entries += _entries_in(content, ledger_id, read_range)
        return entries

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry id of a ledger."""
        return self._index.last_entry(ledger_id)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._index.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return rows; see `StorageEngine`."""
        return self._index.scan(start, end, reverse=reverse, limit=limit)

    def checkpoint_due(self) -> bool:
        """Return whether a file was rotated or is dead, or the index has much to make durable."""
        return self._frames >= self._retry_at_frames and (
            self._frames >= self._checkpoint_frames
            or self._log.end.file != self._checkpoint_file
            or self._index.has_dead_file
            or self._index.is_large
        )

    def checkpoint(self) -> None:
        """Make log and index durable, then remove dead log files.

        The log is synced twice: first without keeping groups from the index, however long that
        takes, then what was written meanwhile, which is little.
        """
        with self._checkpoint_lock:
            self._check_free_space()
            self._log.sync()
            file, frames = self._log.end.file, self._frames
            self._index.has_dead_file = False
            self._index.begin_flush()
            try:
                removable = self._index.removable_files(self._files.numbers())
                self._log.sync()
                self._flush_index()
            finally:
                self._index.end_flush()
            self._checkpoint_file = file
            self._frames -= frames
            self._retry_at_frames = 0
            for number in removable:
                self._files.remove(number)
                self._index.forget_file(number)

    def next_moves(self, *, dead_share_max: float, bytes_max: int) -> CommitGroup | None:
        """Search for entries whose move would free space; see `StorageEngine`."""
        return self._rewrite.next_moves(
            end=self._log.end, dead_share_max=dead_share_max, bytes_max=bytes_max
        )

    def release_waiting(self) -> None:
        """Do nothing: no operation waits artificially."""

    def close(self) -> None:
        """Checkpoint and release the folder. May be repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.checkpoint()
        except StorageError as error:
            logger.warning("closing without a checkpoint, the next start replays: %s", error)
        finally:
            try:
                self._release_folder(sync=True)
            finally:
                self._folder_lock.release()

    # For tests of crashes

    @property
    def synced_end(self) -> LogEnd:
        """How far the log is durable."""
        return self._log.synced_end

    def drop_unsynced(self) -> None:
        """Do what a power cut and a restart would do: lose everything that no sync covered."""
        image = self.path / data_folder.CRASH_IMAGE
        crash_image.copy_after_power_cut(self, image)
        self._is_closed = True
        self._release_folder(sync=False)
        crash_image.replace_files(image, self.path)
        self._open()

    # Opening and closing

    def _open(self) -> None:
        log_folder = self.path / data_folder.LOG
        try:
            log_folder.mkdir(exist_ok=True)
            self._files = LogFiles(log_folder)
            self._index = LogIndex(RocksdbTable(self.path / data_folder.INDEX))
            try:
                self._recover()
            except BaseException:
                self._index.close()
                raise
        except OSError as error:
            raise data_folder.as_storage_error(self.path, error) from error
        self._is_closed = False

    def _recover(self) -> None:
        self._committed.clear()
        self._frames = self._retry_at_frames = 0
        watermark = self._index.watermark
        if watermark.group == 0 and not self._files.numbers():
            self._files.create(watermark.file)
            self._files.sync_folder()
        self._checkpoint_file = watermark.file
        self._sync_files(from_file=watermark.file)
        scan = LogScan(self._files, watermark)
        for placed in scan.groups():
            self._take(placed)
        plan = plan_recovery(
            watermark=watermark,
            end=scan.end,
            damage=scan.damage,
            later_commits=scan.later_commits,
            files=scan.files,
        )
        if isinstance(plan, Refuse):
            raise LogCorrupt(str(self._files.path(plan.file)), plan.position, plan.reason)
        if isinstance(plan, TruncateTail):
            self._cut_off(plan)
        self._check_live_files()
        self._trim_file(scan.end.file, scan.end.position)
        end = LogEnd(*scan.end)
        self._log = EntryLog(self._files, end, file_bytes_max=self._file_bytes_max)
        self._index.log = self._log
        self._index.has_dead_file = bool(self._index.removable_files(self._files.numbers()))
        self._rewrite = LogRewrite(
            self._files, self._index, self._read_entries, file_bytes_max=self._file_bytes_max
        )

    def _sync_files(self, *, from_file: int) -> None:
        """Make the groups durable that are replayed next: the index must not be ahead of them."""
        for number in self._files.numbers():
            if number >= from_file:
                with self._files.use(number) as descriptor:
                    os.fdatasync(descriptor)

    def _cut_off(self, plan: TruncateTail) -> None:
        logger.warning(
            "the log ends with a torn tail, cut at position %d of %s (%s); %d later files removed",
            plan.position, self._files.path(plan.file), plan.reason, len(plan.files_removed),
        )  # fmt: skip
        for number in plan.files_removed:
            self._files.remove(number)
        self._files.sync_folder()

    def _trim_file(self, number: int, position: int) -> None:
        """Truncate a file to the end of its last whole group."""
        if self._files.size(number) != position:
            with self._files.use(number) as descriptor:
                os.ftruncate(descriptor, position)
                os.fsync(descriptor)

    def _check_live_files(self) -> None:
        existing = set(self._files.numbers())
        for number in self._index.space.live_files():
            if number not in existing:
                raise LogCorrupt(str(self._files.path(number)), 0, "the file is missing")

    def _release_folder(self, *, sync: bool) -> None:
        """Close everything; the log is synced first, as closing the index flushes it."""
        try:
            if sync:
                self._log.sync()
        except SyncFailed as error:
            logger.warning("closing a log that cannot be synced: %s", error)
        finally:
            self._log.refuse("the engine is closed")
            self._log.close()
            self._files.close()
            try:
                self._index.close()
            except StorageWriteFailed as error:
                # The log has everything that the durable index lacks.
                logger.warning("closing an index that cannot be flushed: %s", error)

    # Inside

    def _take(self, placed: PlacedGroup) -> None:
        """Index a group, live or replayed."""
        self._index.add(placed)
        self._frames += placed.frame_count

    def _read_locations(self, ledger_id: int, locations: list[EntryLocation]) -> list[Buffer]:
        entries: list[Buffer] = []
        for read_range in plan_reads(locations):
            entries += self._read_entries(ledger_id, read_range)
        return entries

    def _read_entries(self, ledger_id: int, read_range: ReadRange) -> list[Buffer]:
        """Read the entries of one range, and check them."""
        location = read_range.locations[0]
        try:
            with self._files.use(read_range.file) as descriptor:
                content = os.pread(descriptor, read_range.end - read_range.start, read_range.start)
        except FileNotFoundError as error:
            reason = f"log file {read_range.file} is missing"
            raise EntryCorrupt(ledger_id, location.entry_id, reason) from error
        except OSError as error:
            raise StorageError(f"log file {read_range.file} cannot be read: {error}") from error
        return _entries_in(content, ledger_id, read_range)

    def _resident(self, read_range: ReadRange) -> bytearray | None:
        """Return the bytes of a range if the page cache has all of them."""
        content = bytearray(read_range.end - read_range.start)
        try:
            with self._files.use(read_range.file) as descriptor:
                size = os.preadv(descriptor, [content], read_range.start, _NO_WAIT)
        except OSError:  # missing, not supported, or damaged: a read in a thread says which
            return None
        except NotImplementedError:  # portable builds of Python lack the flag
            return None
        return content if size == len(content) else None

    def _check_free_space(self) -> None:
        """Refuse a checkpoint on a full disk: RocksDB would stop for good."""
        state = os.statvfs(self.path)
        free = state.f_bavail * state.f_frsize
        needed = self._index.unflushed_bytes() + FREE_BYTES_MIN
        if free < needed:
            self._retry_at_frames = self._frames + CHECKPOINT_RETRY_FRAMES
            raise StorageWriteFailed(
                f"no checkpoint: {free} bytes are free, {needed} are needed", full=True
            )

    def _flush_index(self) -> None:
        try:
            self._index.flush()
        except StorageError as error:
            self._log.refuse(f"the index could not be flushed: {error}")
            raise SyncFailed(f"the index could not be flushed: {error}") from error


def _entries_in(content: Buffer, ledger_id: int, read_range: ReadRange) -> list[Buffer]:
    """Split the bytes of a range into its entries, and check them."""
    view, file = memoryview(content), read_range.file
    entries: list[Buffer] = []
    try:
        for location in read_range.locations:
            entry_id, _, position, length = location
            ids, extent, at = (ledger_id, entry_id), (position, length), position - read_range.start
            data = data_of_entry(view, at, file, extent, ids)
            if data is None:
                data = check_entry(view[at : at + HEADER_SIZE + length], file, extent, ids)
            entries.append(data)
    except FrameDamaged as error:
        where = f"{error} (log file {file}, position {location.position})"
        raise EntryCorrupt(ledger_id, location.entry_id, where) from error
    return entries
