"""Key table: finds each record that a later one of the same key supersedes.

Rule: every record counts as superseded until the table that had it as the newest of its key is
full, or complete: so a record costs one change of a dict, and nothing is looked up. Memory has a
limit, whatever the number of keys. A full table goes to a temporary file, divided by the hash of
its keys, and starts empty; at the end each division is resolved alone. So every key is read,
written and read again once, and all comparisons are of whole keys.
Must not know: records, batches; a record is a number.

A division of the file is a list of fragments, older ones first, of keys that are distinct within
one. A division that does not fit into memory is divided again, by the next bits of the hash. Python
hashes bytes with a secret of the process, so keys that all fall into one division cannot be chosen
by a client.
"""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from sys import getsizeof

from pyroaring import BitMap

from kledger.batches.pacing import Pause
from kledger.topics.compaction.spill_file import Fragment, SpillFile

KEY_SIZE_MAX = 64
"""A key of so many bytes is represented by a digest of 64, which no shorter key can be equal to."""

_BYTES_OVERHEAD = 33
_NUMBER_SIZE = 32
_ALIGNMENT = 16
_GROWTH = 3
"""A dict that grows has its old table and one of twice the size."""

_DIVISIONS_BITS = 8
_DIVISIONS = 1 << _DIVISIONS_BITS
_FIRST_SHIFT = 48


class KeyTable:
    """The newest record of each key, and the numbers of all others."""

    def __init__(self, superseded: BitMap, temporary_folder: str, memory_bytes_max: int) -> None:
        """Start empty.

        Args:
            superseded: gets the numbers of records that later ones supersede; complete after
                `finish`, and before it some more.
            temporary_folder: for the file, which is made when it is needed.
            memory_bytes_max: how much the keys may take.
        """
        self.memory_bytes_max = memory_bytes_max
        """May be lowered."""
        self.spilled_count = 0
        """How many keys were written to the file, with repetitions."""
        self._superseded = superseded
        self._newest = _NewestNumbers()
        self._file = SpillFile(temporary_folder)
        self._divisions: list[list[Fragment]] = []
        """Empty until something was spilled."""

    def add(self, keys: Sequence[bytes], numbers: Sequence[int]) -> None:
        """Take in the keys of some records.

        Args:
            keys: one for each record; not too many, because they are in memory already.
            numbers: of the records, below 2^32 and above all before.

        Raises:
            OSError: the file cannot be written.
        """
        if keys and max(map(len, keys)) >= KEY_SIZE_MAX:
            keys = [key if len(key) < KEY_SIZE_MAX else blake2b(key).digest() for key in keys]
        if isinstance(numbers, range):
            self._superseded.add_range(numbers.start, numbers.stop)
        else:
            self._superseded.update(numbers)
        self._newest.add(keys, numbers)
        if self._newest.memory_bytes > self.memory_bytes_max:
            self._spill()

    def finish(self, pause: Pause) -> None:
        """Find what the file alone knows, and free everything.

        Raises:
            OSError: the file cannot be read or written.
        """
        if self._divisions:
            self._spill()
            for division in self._divisions:
                self._resolve(division, _FIRST_SHIFT, pause)
            self._file.close()
        else:
            self._keep_newest()
        self._newest = _NewestNumbers()
        self._divisions = []

    def _keep_newest(self) -> None:
        """Let the newest records in the table count as not superseded."""
        self._superseded.difference_update(BitMap(array("I", self._newest.numbers.values())))

    def _spill(self) -> None:
        self._keep_newest()
        if not self._divisions:
            self._divisions = [[] for _ in range(_DIVISIONS)]
        self.spilled_count += len(self._newest.numbers)
        items = self._newest.numbers.items()
        _write_divided(self._file, items, self._divisions, _FIRST_SHIFT)
        self._newest = _NewestNumbers()

    def _resolve(self, division: Sequence[Fragment], shift: int, pause: Pause) -> None:
        """Find superseded records of one division; dividing it again finds some of them twice."""
        if len(division) < 2:
            return
        newest = _NewestNumbers()
        for fragment in division:
            keys, numbers = _read(self._file, fragment)
            self._superseded.update(newest.replace(keys, numbers))
            pause()
            if newest.memory_bytes > self.memory_bytes_max and shift > 0:
                break
        else:
            return
        del newest
        divisions: list[list[Fragment]] = [[] for _ in range(_DIVISIONS)]
        for fragment in division:
            items = zip(*_read(self._file, fragment), strict=True)
            _write_divided(self._file, items, divisions, shift - _DIVISIONS_BITS)
            pause()
        for each in divisions:
            self._resolve(each, shift - _DIVISIONS_BITS, pause)


class _NewestNumbers:
    """The newest number of each key, in memory."""

    __slots__ = ("_keys_bytes", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self._keys_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """How much the next addition may take at most, while the dict grows."""
        return self._keys_bytes + _GROWTH * getsizeof(self.numbers)

    def add(self, keys: Sequence[bytes], numbers: Sequence[int]) -> None:
        """Add keys, whose numbers are above all before."""
        count_before = len(self.numbers)
        self.numbers.update(zip(keys, numbers, strict=True))
        if count_new := len(self.numbers) - count_before:
            self._count(count_new, keys)

    def replace(self, keys: Sequence[bytes], numbers: Sequence[int]) -> list[int]:
        """Add distinct keys; return the numbers that are no longer the newest of their keys."""
        before = [number for number in map(self.numbers.get, keys) if number is not None]
        self._count(len(keys) - len(before), keys)
        self.numbers.update(zip(keys, numbers, strict=True))
        return before

    def _count(self, count_new: int, keys: Sequence[bytes]) -> None:
        """Note the memory of new keys, as if all were as long as the longest of `keys`."""
        if count_new:
            size = _BYTES_OVERHEAD + max(map(len, keys))
            self._keys_bytes += count_new * (-(-size // _ALIGNMENT) * _ALIGNMENT + _NUMBER_SIZE)


def _write_divided(
    file: SpillFile,
    items: Iterable[tuple[bytes, int]],
    divisions: Sequence[list[Fragment]],
    shift: int,
) -> None:
    """Append keys and numbers to the file, one fragment for each division that has some."""
    divided = [(list[bytes](), array("I")) for _ in range(_DIVISIONS)]
    for key, number in items:
        keys, numbers = divided[hash(key) >> shift & (_DIVISIONS - 1)]
        keys.append(key)
        numbers.append(number)
    for division, (keys, numbers) in zip(divisions, divided, strict=True):
        if keys:
            division.append(file.write((keys, numbers.tobytes())))


def _read(file: SpillFile, fragment: Fragment) -> tuple[list[bytes], "array[int]"]:
    keys, packed = file.read(fragment)
    numbers = array("I")
    numbers.frombytes(packed)
    return keys, numbers
