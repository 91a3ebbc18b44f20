"""Folder inspection: finds all damage in a data folder, without changing anything.

Rule: the folder is locked and only read. It checks what the next start would serve: the index with
the groups that a start would replay, and the log up to where a start would cut it.
Must not know: what entries and rows mean.

An inspection for reading offers more than a start would serve: groups after damage, and without an
index everything in the log.

| checked                       | against                                          |
|-------------------------------|--------------------------------------------------|
| every frame of every log file | its checksums, and the commit frame of its group |
| the end of the log            | what a start decides about it                    |
| every row of the index        | the checksums of its tables                      |
| every entry in the index      | the frame that it points to                      |
| space rows of the index       | its entries, and the frames in each file         |
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kledger.ledger.engine import data_folder
from kledger.ledger.engine.errors import FolderUnusable, StorageError
from kledger.ledger.engine.folder_lock import FolderLock
from kledger.ledger.engine.index.index_keys import EntryLocation
from kledger.ledger.engine.index.read_plan import ReadRange, plan_reads
from kledger.ledger.engine.log.frames import HEADER_SIZE, FrameDamaged, check_entry
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.log_scan import LogScan
from kledger.ledger.engine.log.recovery_plan import Refuse, TruncateTail, Watermark, plan_recovery
from kledger.ledger.inspection.index_image import IndexImage
from kledger.ledger.inspection.log_walk import FrameFault, WalkedFile, walk_file
from kledger.ledger.inspection.salvage import Salvage

LOCATIONS_PER_READ = 1000
NOTHING = Watermark(1, 0, 0)
_KeepFault: TypeAlias = Callable[[int, FrameFault], bool]


class FolderDamage(NamedTuple):
    """One damage; unknown numbers are -1."""

    file: str
    position: int
    reason: str
    ledger_id: int = -1
    entry_id: int = -1


class FolderInspection:
    """Reads the log when it is made; then offers what a start would serve.

    Attributes:
        damages: the damage found so far.
        torn_tail: the end of the log that the next start will cut off, None if nothing; not a
            damage.
        file_count, group_count, entry_count: whole ones in the log.
        has_index: False if the index cannot be opened; then rows and entries cannot be read, except
            in an inspection for reading, which takes them from the log alone.
    """

    def __init__(self, folder: Path, *, is_for_reading: bool = False) -> None:
        """Lock the folder and read its log.

        Args:
            folder: the data folder.
            is_for_reading: read only the part of the log that the index does not cover, and salvage
                the groups that a start would refuse.

        Raises:
            FolderUnusable: the folder has no store, or cannot be read.
            FolderInUse: the store is not stopped.
        """
        self.damages: list[FolderDamage] = []
        self.torn_tail: str | None = None
        self.has_index = False
        self._is_for_reading = is_for_reading
        self._walked: dict[int, WalkedFile] = {}
        self._image: IndexImage
        self._open = ExitStack()
        try:
            _check_is_store(folder)
            self._open.callback(FolderLock(folder, is_read_only=True).release)
            self._scan_folder(folder)
        except OSError as error:
            self.close()
            raise data_folder.as_storage_error(folder, error) from error
        except BaseException:
            self.close()
            raise
        self.file_count = len(self._walked)
        self.group_count = sum(walked.group_count for walked in self._walked.values())
        self.entry_count = sum(walked.entry_count for walked in self._walked.values())

    def close(self) -> None:
        """Release the folder. May be repeated."""
        self._open.close()

    # What a start would serve, as in StorageEngine

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row."""
        return self._image.index.get(key)

    def scan(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """Return rows."""
        return self._image.index.scan(start, end, reverse=False, limit=None)

    def ledger_ids(self) -> list[int]:
        """Return the ids of all ledgers that have entries."""
        return self._image.ledger_ids()

    def locations(self, ledger_id: int, first_entry: int = 0) -> Iterator[list[EntryLocation]]:
        """Yield the locations of a ledger's entries, many at a time."""
        while locations := self._image.locations(ledger_id, first_entry, LOCATIONS_PER_READ):
            yield locations
            first_entry = locations[-1].entry_id + 1

    def entries(
        self, ledger_id: int, first_entry: int = 0
    ) -> Iterator[tuple[EntryLocation, str, bytes | FolderDamage]]:
        """Yield the entries of a ledger: location, path of the file, and the data or the damage."""
        for locations in self.locations(ledger_id, first_entry):
            for read_range in plan_reads(locations):
                yield from self._check_range(ledger_id, read_range)

    def path(self, file: int) -> str:
        """Return the path of a log file."""
        return str(self._files.path(file))

    # Inside

    def _scan_folder(self, folder: Path) -> None:
        log = folder / data_folder.LOG
        self._files = LogFiles(log, is_read_only=True)
        self._open.callback(self._files.close)
        if not log.is_dir():
            self.damages.append(FolderDamage(str(log), -1, "the folder is missing"))
            if self._is_for_reading:
                self._open_image(folder / data_folder.INDEX)
            return
        if not self._is_for_reading:
            self._walk()
        self._open_index(folder / data_folder.INDEX)

    def _walk(self) -> None:
        before: int | None = None
        for number in self._files.numbers():
            if number - 1 not in self._walked:
                before = None  # the groups of a removed file are not known
            with self._files.use(number) as descriptor:
                self._walked[number] = walked = walk_file(descriptor, number, before)
            before = walked.last_group if walked.last_group is not None else before

    def _open_index(self, folder: Path) -> None:
        """Open the image and compare; without an index every fault of the log counts as damage."""
        if (error := self._open_image(folder)) is None:
            self.has_index = True
            self._check_end()
            if not self._is_for_reading:
                self._check_space()
            return
        end = (1 << 32, 0)
        if self._is_for_reading:
            torn_at = self._salvage(NOTHING)
            if torn_at is not None:
                end = torn_at
                self._is_torn(*torn_at, "no commit frame stands behind it")
        hint = "; a start without this folder makes it anew" if self._is_log_whole() else ""
        self.damages.append(FolderDamage(str(folder), -1, f"{error}{hint}"))
        self._add_faults(lambda file, fault: (file, fault.position) < end)

    def _open_image(self, folder: Path) -> StorageError | None:
        """Open an image of the index; return the error if there is none.

        An inspection for reading then has an empty image.
        """
        failure = None
        try:
            self._image = IndexImage(folder)
        except StorageError as error:
            if not self._is_for_reading:
                return error
            failure = error
            self._image = IndexImage(None)
        self._open.callback(self._image.close)
        return failure

    def _salvage(self, start: Watermark) -> tuple[int, int] | None:
        """Salvage everything after a position; return file and position of a torn end."""
        salvage = Salvage(self._image, self._files, start)
        self._walked |= salvage.walked
        return salvage.torn_at

    def _is_log_whole(self) -> bool:
        is_from_the_first = [*self._walked] == [*range(1, len(self._walked) + 1)]
        return is_from_the_first and not any(each.faults for each in self._walked.values())

    def _check_end(self) -> None:
        """Replay what a start would replay, and judge the end of the log as a start does."""
        watermark = self._image.index.watermark
        if watermark.group == 0 and not self._files.numbers():
            return  # killed before anything was written
        scan = LogScan(self._files, watermark)
        self._image.replay(scan)
        plan = plan_recovery(
            watermark=watermark,
            end=scan.end,
            damage=scan.damage,
            later_commits=scan.later_commits,
            files=scan.files,
        )
        end = (1 << 32, 0)
        if isinstance(plan, TruncateTail):
            end = (plan.file, plan.position)
            self._is_torn(*end, plan.reason)
        elif isinstance(plan, Refuse):
            if self._is_for_reading:
                self._salvage(scan.end)
            self._refused(plan)
        self._add_faults(lambda file, fault: (file, fault.position) < end)

    def _is_torn(self, file: int, position: int, reason: str) -> None:
        self.torn_tail = f"{self._files.path(file)} from position {position} on: {reason}"

    def _refused(self, plan: Refuse) -> None:
        """Note why a start would refuse, unless the walk has found the damaged frame itself."""
        walked = self._walked.get(plan.file)
        if walked is None or all(fault.position < plan.position for fault in walked.faults):
            path = str(self._files.path(plan.file))
            self.damages.append(FolderDamage(path, plan.position, plan.reason))

    def _add_faults(self, keep: _KeepFault) -> None:
        for number, walked in self._walked.items():
            path = str(self._files.path(number))
            self.damages += [
                FolderDamage(path, *fault) for fault in walked.faults if keep(number, fault)
            ]

    def _check_space(self) -> None:
        """Compare the space rows of each file with the index's entries and with the file.

        A file may have more entries than that: moved ones, and those of dropped ledgers.
        """
        space, counted = self._image.index.space, self._image.count_space()
        for file in sorted({*space.live_files(), *counted.live_files()}):
            path, walked = str(self._files.path(file)), self._walked.get(file)
            if walked is None:
                self.damages.append(FolderDamage(path, 0, "the file is missing"))
            said, listed = space.ledgers_in(file), counted.ledgers_in(file)
            for ledger_id in sorted(said.keys() | listed.keys()):
                size, rows_size = said.get(ledger_id, 0), listed.get(ledger_id, 0)
                if size != rows_size:
                    reason = f"{rows_size} bytes of entries are listed, {size} are counted"
                    self.damages.append(FolderDamage(path, -1, reason, ledger_id))
                if walked is None or walked.faults:
                    continue
                if size > (found := walked.entry_bytes.get(ledger_id, 0)):
                    reason = f"{found} bytes of entries, the index has {size}"
                    self.damages.append(FolderDamage(path, -1, reason, ledger_id))

    def _check_range(
        self, ledger_id: int, read_range: ReadRange
    ) -> Iterator[tuple[EntryLocation, str, bytes | FolderDamage]]:
        file, path = read_range.file, str(self._files.path(read_range.file))
        try:
            with self._files.use(file) as descriptor:
                content = os.pread(descriptor, read_range.end - read_range.start, read_range.start)
        except OSError as error:
            reason = f"the file cannot be read: {error.strerror or error}"
            for location in read_range.locations:
                yield (
                    location,
                    path,
                    FolderDamage(path, location.position, reason, ledger_id, location.entry_id),
                )
            return
        for location in read_range.locations:
            entry_id, _, position, length = location
            start = position - read_range.start
            frame = memoryview(content)[start : start + HEADER_SIZE + length]
            try:
                data = check_entry(frame, file, (position, length), (ledger_id, entry_id))
            except FrameDamaged as error:
                yield location, path, FolderDamage(path, position, str(error), ledger_id, entry_id)
            else:
                yield location, path, bytes(data)


def _check_is_store(folder: Path) -> None:
    data_folder.check_not_foreign(folder)
    if not any((folder / part).is_dir() for part in (data_folder.LOG, data_folder.INDEX)):
        raise FolderUnusable(f"data folder {folder} holds no store")
