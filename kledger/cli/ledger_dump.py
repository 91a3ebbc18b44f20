"""Export of a managed ledger: what is readable, as text, as bytes, or as Kafka's segments.

Rule: one entry is in memory at a time. Unreadable entries are left out and reported; no existing
file is overwritten.
Must not know: the command line.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self, TypeAlias

from kledger.batches.errors import BatchError
from kledger.batches.header import BatchHeader
from kledger.batches.reader import iterate_records
from kledger.cli.doctor import described
from kledger.cli.ledger_text import entry_line, record_line
from kledger.ledger import EARLIEST, Entry, Position
from kledger.ledger.inspection import Problem, StoppedStore, StoredManagedLedger
from kledger.topics.inspection import StoredTopics, check_batch
from kledger.topics.partition_name import PartitionName
from kledger.topics.segment_export import SegmentExport

FORMATS = ("text", "raw", "kafka")

Found: TypeAlias = tuple[Entry, BatchHeader | None]
"""An entry, and the header of its batch if it belongs to a partition."""
Report: TypeAlias = Callable[[str], None]


class CannotDump(Exception):
    """The request does not fit this managed ledger, or the output exists."""


@dataclass(frozen=True, slots=True)
class PositionOrOffset:
    """A position in a managed ledger, or an offset in its partition; the other one is None."""

    position: Position | None
    offset: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read LEDGER:ENTRY or a whole number; raises ValueError."""
        if ":" in text:
            return cls(Position.parse(text), None)
        return cls(None, int(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, and how.

    Attributes:
        partition: the partition that the entries are batches of, None for other ledgers.
        start, end: the first and the last one wanted.
        limit: the most lines of text, or entries.
        output: None is standard output.
    """

    stored: StoredManagedLedger
    partition: PartitionName | None
    start: PositionOrOffset | None = None
    end: PositionOrOffset | None = None
    limit: int | None = None
    output: Path | None = None
    format: str = "text"

    @property
    def file_name(self) -> str:
        """The name of this export in the output folder."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", str(self.partition or self.stored.name))
        return f"_{name}" if name.startswith(".") else name


def dump(store: StoppedStore, topics: StoredTopics, request: ExportRequest, report: Report) -> int:
    """Export; return how much was left out.

    Args:
        store: the store.
        topics: its topics.
        request: what to export.
        report: gets a line for everything that is left out.

    Raises:
        CannotDump: nothing was written.
        OSError: the export cannot be written.
    """
    _check(request)
    reading = _ExportReader(store, topics, request, report)
    if request.format == "text":
        _write_text(request, islice(reading.lines(), request.limit))
    else:
        write = _write_raw if request.format == "raw" else _write_segments
        count = write(request, islice(reading.found(), request.limit), topics)
        print(f"{count} entries of {request.stored.name} written to {request.output}")
    return reading.left_out


def _check(request: ExportRequest) -> None:
    name = request.stored.name
    if request.partition is None:
        if request.format == "kafka":
            raise CannotDump(f"{name} is no partition; export it as text or raw")
        for bound in (request.start, request.end):
            if bound is not None and bound.offset is not None:
                raise CannotDump(
                    f"{name} is no partition: expected LEDGER:ENTRY, not {bound.offset}"
                )
    if request.output is None and request.format != "text":
        raise CannotDump(f"--format {request.format} needs --output DIR")


class _ExportReader:
    """One pass over the entries that are wanted.

    Attributes:
        left_out: how many lines went to `report`.
    """

    def __init__(
        self, store: StoppedStore, topics: StoredTopics, request: ExportRequest, report: Report
    ) -> None:
        self.left_out = 0
        self._store = store
        self._stored = request.stored
        self._is_partition = request.partition is not None
        self._report = report
        start, end = request.start, request.end
        self._end = end.position if end is not None else None
        self._end_offset = end.offset if end is not None else None
        self._start = start.position if start is not None else None
        self._start_offset = start.offset if start is not None else None
        if request.partition is not None and self._start is None:
            if self._start_offset is None:
                self._start_offset = topics.log_start(request.partition)
            ids = [each.ledger_id for each in request.stored.ledgers]
            if ids and request.stored.compacted is None:
                self._start = topics.position_before(request.partition, self._start_offset, ids)
        self._next_offset: int | None = None

    def found(self) -> Iterator[Found]:
        """Yield what is readable and wanted."""
        for each in self._store.entries(self._stored, self._start or EARLIEST):
            if isinstance(each, Problem):
                if self._end is not None and Position(each.ledger_id, each.entry_id) > self._end:
                    return
                self._leave_out(described(each))
                self._next_offset = None
                continue
            if self._end is not None and each.position > self._end:
                return
            if not self._is_partition:
                yield each, None
                continue
            header = self._header(each)
            if header is None:
                continue
            if self._end_offset is not None and header.base_offset > self._end_offset:
                return
            if self._start_offset is None or header.last_offset >= self._start_offset:
                yield each, header

    def lines(self) -> Iterator[str]:
        """Yield a line for each record of a partition, or for each entry of another ledger."""
        for entry, header in self.found():
            if header is None:
                yield entry_line(entry)
                continue
            try:
                for record in iterate_records(entry.buffer):
                    if self._is_wanted(record.offset):
                        yield record_line(entry.position, header, record)
            except BatchError as error:
                self._leave_out(f"entry {entry.position}: the records cannot be read: {error}")

    def _may_skip(self, entry: Entry) -> bool:
        """Return whether a compaction may have removed the offsets before an entry."""
        compacted = self._stored.compacted
        return compacted is not None and entry.position <= compacted.horizon

    def _is_wanted(self, offset: int) -> bool:
        start, end = self._start_offset, self._end_offset
        return (start is None or offset >= start) and (end is None or offset <= end)

    def _header(self, entry: Entry) -> BatchHeader | None:
        """Check a batch, and that its offsets follow the batch before; None if it is unusable."""
        try:
            header = check_batch(entry.data)
        except BatchError as error:
            self._leave_out(f"entry {entry.position}: the record batch is damaged: {error}")
            self._next_offset = None
            return None
        expected = self._next_offset
        if expected is not None and header.base_offset < expected:
            self._leave_out(
                f"entry {entry.position}: begins at offset {header.base_offset}, "
                f"expected {expected}"
            )
            return None
        if expected is not None and header.base_offset > expected and not self._may_skip(entry):
            last = header.base_offset - 1
            self._leave_out(f"offsets {expected} to {last} are missing before {entry.position}")
        self._next_offset = header.last_offset + 1
        return header

    def _leave_out(self, what: str) -> None:
        self.left_out += 1
        self._report(f"left out: {what}")


def _write_text(request: ExportRequest, lines: Iterable[str]) -> None:
    if request.output is None:
        for line in lines:
            sys.stdout.write(line + "\n")
        return
    request.output.mkdir(parents=True, exist_ok=True)
    path = request.output / f"{request.file_name}.txt"
    if path.exists():
        raise CannotDump(f"{path} exists already")
    with path.open("x") as file:
        file.writelines(line + "\n" for line in lines)


def _write_raw(request: ExportRequest, found: Iterable[Found], topics: StoredTopics) -> int:
    """Write a file for each entry: LEDGER-ENTRY.bin."""
    folder = _new_folder(request)
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for entry, _ in found:
        ledger_id, entry_id = entry.position
        (folder / f"{ledger_id}-{entry_id}.bin").write_bytes(entry.buffer)
        count += 1
    return count


def _write_segments(request: ExportRequest, found: Iterable[Found], topics: StoredTopics) -> int:
    assert request.partition is not None
    segment_bytes = topics.segment_bytes(request.partition)
    count = 0
    with SegmentExport(_new_folder(request), segment_bytes=segment_bytes) as export:
        for entry, header in found:
            assert header is not None
            export.append(entry.buffer, header)
            count += 1
    return count


def _new_folder(request: ExportRequest) -> Path:
    """Return the folder of this managed ledger, which is empty or does not exist.

    Raises:
        CannotDump: it is neither.
    """
    assert request.output is not None
    folder = request.output / request.file_name
    if folder.is_dir() and any(folder.iterdir()):
        raise CannotDump(f"{folder} is not empty")
    return folder
