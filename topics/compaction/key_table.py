"""Key table: finds each record that a later one of the same key supersedes.

Rule: it has the hashes of keys and the numbers of their records, in the order of the records. When
it is full, and at the end, it is sorted by hash: of equal hashes only the last stays. If that frees
too little, the rest goes to a temporary file, in the order of the hashes, and the table starts
empty; at the end parts of the file with the same range of hashes are read and sorted together. So
memory has a limit, whatever the number of keys, and every key is written and read once.
Must not know: records, batches; a record is a number.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from kledger.batches.pacing import Pause
from kledger.topics.compaction.key_hashes import KeyHashes
from kledger.topics.compaction.spill_file import SpillFile

_BYTES_PER_RECORD = 72
"""20 of the table itself, the others while it is sorted."""
_RECORDS_MIN = 16
"""That many are in the table whatever its limit is."""

_DIVISIONS_BITS = 10
_DIVISIONS = 1 << _DIVISIONS_BITS
"""Of the file, by the first bits of the hashes; one of them fits into memory, as there are at most
four records for each byte of it."""
_DIVISION_SHIFT = np.uint64(64 - _DIVISIONS_BITS)
_HASH_BYTES = 8
_NUMBER_BYTES = 4


class KeyTable:
    """The hashes of the keys of records, and the numbers of superseded records."""

    def __init__(self, superseded: BitMap, temporary_folder: str, memory_bytes_max: int) -> None:
        """Start empty.

        Args:
            superseded: gets the numbers of records that later ones supersede; complete after
                `finish`.
            temporary_folder: for the file, which is made when it is needed.
            memory_bytes_max: how much the table may take.
        """
        self.memory_bytes_max = memory_bytes_max
        """May be lowered."""
        self.spilled_count = 0
        """How many keys were written to the file, with repetitions."""
        self._superseded = superseded
        capacity = max(memory_bytes_max // _BYTES_PER_RECORD, _RECORDS_MIN)
        # The system gives memory when it is used.
        self._entries = _Entries(
            np.empty(capacity, np.uint64),
            np.empty(capacity, np.uint64),
            np.empty(capacity, np.uint32),
        )
        self._count = 0
        self._file = SpillFile(temporary_folder)
        self._spills: list[_Spill] = []

    def add(self, hashes: KeyHashes, numbers: NDArray[np.uint32]) -> None:
        """Take in the keys of some records.

        Args:
            hashes: of one key for each record.
            numbers: of the records, ascending, and above all before.

        Raises:
            OSError: the file cannot be written.
        """
        added, count = 0, len(numbers)
        while added < count:
            room = self._capacity - self._count
            if room <= 0:
                self._make_room()
                continue
            part = slice(added, added + min(room, count - added))
            some = _Entries(hashes.high[part], hashes.low[part], numbers[part])
            self._entries.write(self._count, some)
            self._count += len(some.numbers)
            added = part.stop

    def finish(self, pause: Pause) -> None:
        """Find what the file alone knows, and free everything.

        Raises:
            OSError: the file cannot be read or written.
        """
        self._keep_newest()
        if self._spills:
            self._spill()
            self._resolve(pause)
            self._file.close()
            self._spills = []
        self._count = 0
        self._entries = _NO_ENTRIES

    @property
    def _capacity(self) -> int:
        limit = max(self.memory_bytes_max // _BYTES_PER_RECORD, _RECORDS_MIN)
        return min(limit, len(self._entries.numbers))

    def _make_room(self) -> None:
        self._keep_newest()
        if 2 * self._count > self._capacity:
            self._spill()

    def _keep_newest(self) -> None:
        """Keep the newest record of each key, in the order of the hashes."""
        newest = self._newest(self._entries.first(self._count))
        self._count = len(newest.numbers)
        self._entries.write(0, newest)

    def _newest(self, entries: "_Entries") -> "_Entries":
        """Return the last entry of each hash, in the order of the hashes; note the others."""
        order = entries.high.argsort(kind="stable")
        found = entries.take(order)
        differs = found.high[1:] != found.high[:-1]
        is_last = np.append(differs | (found.low[1:] != found.low[:-1]), np.True_)
        if np.count_nonzero(is_last) != 1 + np.count_nonzero(differs):
            # Different hashes with the same first half, which hardly ever happens.
            found = entries.take(np.lexsort((entries.low, entries.high)))
            differs = (found.high[1:] != found.high[:-1]) | (found.low[1:] != found.low[:-1])
            is_last = np.append(differs, np.True_)
        if not len(entries.numbers) or is_last.all():
            return found
        self._superseded.update(BitMap(found.numbers[~is_last]))
        return found.take(is_last)

    def _spill(self) -> None:
        """Move the table, which is in the order of the hashes, to the file."""
        entries = self._entries.first(self._count)
        starts = [self._file.write_raw(each.data)[0] for each in entries]
        divisions = np.arange(_DIVISIONS, dtype=np.uint64) << _DIVISION_SHIFT
        bounds = np.append(np.searchsorted(entries.high, divisions), self._count)
        self._spills.append(_Spill(starts, bounds.astype(np.uint32)))
        self.spilled_count += self._count
        self._count = 0

    def _resolve(self, pause: Pause) -> None:
        """Find the superseded records of the file, in as many divisions at a time as fit."""
        self._entries = _NO_ENTRIES
        capacity = max(self.memory_bytes_max // _BYTES_PER_RECORD, _RECORDS_MIN)
        step = max(_DIVISIONS * capacity // (2 * max(self.spilled_count, 1)), 1)
        for division in range(0, _DIVISIONS, step):
            end = min(division + step, _DIVISIONS)
            found = [self._read(spill, division, end) for spill in self._spills]
            self._newest(_Entries(*map(np.concatenate, zip(*found, strict=True))))
            pause()

    def _read(self, spill: "_Spill", division: int, end: int) -> "_Entries":
        first, last = int(spill.bounds[division]), int(spill.bounds[end])
        count = last - first
        high, low, numbers = (
            self._file.read_raw((start + first * size, count * size))
            for start, size in zip(
                spill.starts, (_HASH_BYTES, _HASH_BYTES, _NUMBER_BYTES), strict=True
            )
        )
        return _Entries(
            np.frombuffer(high, np.uint64),
            np.frombuffer(low, np.uint64),
            np.frombuffer(numbers, np.uint32),
        )


class _Entries(NamedTuple):
    """Hashes of keys, and the numbers of the records; of equal hashes the last is the newest."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    numbers: NDArray[np.uint32]

    def first(self, count: int) -> "_Entries":
        """Return the first ones, without a copy."""
        return _Entries(self.high[:count], self.low[:count], self.numbers[:count])

    def write(self, start: int, entries: "_Entries") -> None:
        """Replace those from `start` on."""
        stop = start + len(entries.numbers)
        self.high[start:stop] = entries.high
        self.low[start:stop] = entries.low
        self.numbers[start:stop] = entries.numbers

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> "_Entries":
        """Return a copy of those at some indices, or of those for which it is true."""
        return _Entries(self.high[which], self.low[which], self.numbers[which])


class _Spill(NamedTuple):
    """A table in the file.

    Attributes:
        starts: of its three columns.
        bounds: the index of the first entry of each division, and the number of all entries.
    """

    starts: Sequence[int]
    bounds: NDArray[np.uint32]


_NO_ENTRIES = _Entries(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32))
