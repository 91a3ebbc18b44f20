"""Segment export: the batches of a partition as the folder that an Apache Kafka broker has of it.

Rule: batches are written as they are stored, in the order of their offsets; a segment ends before
the batch with which it would become too large. A folder that is not empty is never changed.
Must not know: how batches are read, which of them are damaged.

| name                           | what                                                       |
|--------------------------------|------------------------------------------------------------|
| OFFSET.log                     | batches in a row; OFFSET is that of the first record       |
| OFFSET.index, OFFSET.timeindex | `batches.segment_index`                                    |
| leader-epoch-checkpoint        | text: version, number of epochs, each and its first offset |

Left out: `partition.metadata`, since the cluster that imports the folder gives the topic its id;
snapshots of producers, which a broker rebuilds from the batches.
"""

from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kledger.batches.buffers import Buffer
from kledger.batches.header import BatchHeader
from kledger.batches.segment_index import SegmentIndex


class SegmentExport:
    """Writes one folder; a context manager that completes it."""

    def __init__(self, folder: Path, *, segment_bytes: int) -> None:
        """Make the folder.

        Raises:
            FileExistsError: the folder exists and is not empty.
            OSError: it cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty")
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._epochs: list[tuple[int, int]] = []
        """Each leader epoch and its first offset."""
        self._index: SegmentIndex | None = None
        self._log: IO[bytes] | None = None

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Write a batch whose offsets are higher than all written before.

        Raises:
            OSError: it cannot be written.
        """
        index = self._index
        if index is None or not index.has_room(header, self._segment_bytes):
            self._end_segment()
            index = self._begin_segment(header.base_offset)
        assert self._log is not None
        self._log.write(batch)
        index.add(header)
        if not self._epochs or header.leader_epoch > self._epochs[-1][0]:
            self._epochs.append((header.leader_epoch, header.base_offset))

    def close(self) -> None:
        """Complete the last segment and the folder. May be repeated."""
        self._end_segment()
        if self._epochs:
            lines = ["0", str(len(self._epochs)), *(f"{epoch} {at}" for epoch, at in self._epochs)]
            text = "".join(f"{line}\n" for line in lines)
            (self._folder / "leader-epoch-checkpoint").write_text(text)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the folder."""
        self.close()

    def _begin_segment(self, base_offset: int) -> SegmentIndex:
        self._index = SegmentIndex(base_offset)
        self._log = self._path("log").open("xb")
        return self._index

    def _end_segment(self) -> None:
        if self._index is None or self._log is None:
            return
        self._log.close()
        self._index.end()
        self._path("index").write_bytes(self._index.offsets)
        self._path("timeindex").write_bytes(self._index.times)
        self._index = self._log = None

    def _path(self, suffix: str) -> Path:
        assert self._index is not None
        return self._folder / f"{self._index.base_offset:020d}.{suffix}"
