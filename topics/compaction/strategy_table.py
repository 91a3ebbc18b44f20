"""Strategy table: finds each record that a strategy does not keep.

Rule: of each key the records are shown to the strategy in their order, the one that is kept so far
against the next; there is no other order, since a strategy need not be associative. Memory has a
limit, whatever the number of keys and the size of values: keys are divided by their hash, and the
largest division goes to a temporary file, with all records that follow for its keys. At the end
each such division is folded alone, divided again by the next bits of the hash if it does not fit.
Must not know: batches before and after, other records than those with a key.

In memory and in the file a record is one packed value, so what it takes is known exactly. A record
is written and read again once, or twice if its division does not fit either. Python hashes bytes
with a secret of the process, so keys that all fall into one division cannot be chosen by a client.
"""

import marshal
from collections.abc import Iterable, Iterator, Sequence
from sys import getsizeof

from pyroaring import BitMap

from kledger.batches.header import BatchHeader
from kledger.batches.pacing import Pause
from kledger.batches.reader import iterate_fields, record_timestamp
from kledger.batches.record import read_rest
from kledger.topics.compaction.compaction_rules import BatchOrigin
from kledger.topics.compaction.spill_file import Fragment, SpillFile
from kledger.topics.compaction.strategy_rule import StrategyRecord, StrategyRule

ENTRY_BYTES = 200
"""What a key takes in a dict, at most, beside the sizes of key and value."""
WAITING_BYTES = 16
"""What a value takes in a list, at most, beside its size."""
PIECE_BYTES = 1 << 20
"""Of a division, what is written and read at once."""
RECORDS_PER_PAUSE = 32
"""Records that are shown to a strategy between two pauses: a tenth of a millisecond, if it is
fast."""

_DIVISIONS_BITS = 8
_DIVISIONS = 1 << _DIVISIONS_BITS
_FIRST_SHIFT = 48
_MARSHAL_VERSION = 2


class StrategyTable:
    """The record of each key that is kept so far, and the numbers of all others."""

    def __init__(
        self, rule: StrategyRule, dropped: BitMap, temporary_folder: str, memory_bytes_max: int
    ) -> None:
        """Start empty.

        Args:
            rule: the strategy.
            dropped: gets the numbers of records that do not stay, at last at `finish`.
            temporary_folder: for the file, which is made when it is needed.
            memory_bytes_max: how much the kept records may take.

        Raises:
            StrategyFailed: it cannot be imported.
        """
        self.memory_bytes_max = memory_bytes_max
        """May be lowered."""
        self.spilled_count = 0
        """How many records were written to the file, with repetitions."""
        self.skipped_count = 0
        """How many records went because the strategy has kept an earlier one."""
        self.file = SpillFile(temporary_folder)
        self._dropped = dropped
        self._keeps_left = rule.opened()
        self._fold = _Fold(self, _FIRST_SHIFT)

    def add_batch(
        self, header: BatchHeader, body: bytes, origin: BatchOrigin, first: int, pause: Pause
    ) -> None:
        """Take in the records of a batch that have a key.

        Args:
            header: of the batch.
            body: its uncompressed records.
            origin: where it is from.
            first: the number of its first record; all are above those before.
            pause: see `batches.pacing`.

        Raises:
            CorruptBatch: the records cannot be read.
            StrategyFailed: the strategy has raised an error.
            OSError: the file cannot be written.
        """
        records = _strategy_records(header, body, origin, first, pause)
        for index, (number, record) in enumerate(records):
            if record.offset < origin.first_offset:
                self._dropped.add(number)
            else:
                self._fold.add(number, record)
            if not index % RECORDS_PER_PAUSE:
                pause()

    def finish(self, pause: Pause) -> None:
        """Ask about what is in the file, and free everything.

        Raises:
            StrategyFailed: the strategy has raised an error.
            OSError: the file cannot be read or written.
        """
        self._fold.finish(pause)
        self._fold = _Fold(self, _FIRST_SHIFT)
        self.file.close()

    def drop_one(self, kept: bytes, number: int, record: StrategyRecord) -> bool:
        """Ask about two records of a key, and drop one; return whether it is the later one."""
        kept_number, kept_record = _unpack(kept)
        is_skipped = self._keeps_left(kept_record if kept_record.value else None, record)
        self._dropped.add(number if is_skipped else kept_number)
        self.skipped_count += is_skipped
        return is_skipped


class _Division:
    """The keys with some bits of their hashes.

    Attributes:
        kept: the packed record of each key; None: the division is in the file.
        waiting: packed records that are to be written to the file.
        size: of what is in memory, in bytes.
        fragments: what is in the file, in the order of the records of each key.
    """

    __slots__ = ("fragments", "kept", "size", "waiting")

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] | None = {}
        self.waiting: list[bytes] = []
        self.size = 0
        self.fragments: list[Fragment] = []


class _Fold:
    """Some keys, divided by eight bits of their hashes."""

    def __init__(self, table: StrategyTable, shift: int) -> None:
        """Args: shift: of these bits; below 0 there are none, and memory has no limit."""
        self._table = table
        self._shift = shift
        self._divisions = [_Division() for _ in range(_DIVISIONS)]
        self._size = 0

    def add(self, number: int, record: StrategyRecord) -> None:
        """Take in the next record."""
        key = record.key
        division = self._divisions[hash(key) >> max(self._shift, 0) & (_DIVISIONS - 1)]
        if division.kept is None:
            packed = _pack(number, record)
            division.waiting.append(packed)
            grown = getsizeof(packed) + WAITING_BYTES
        else:
            before = division.kept.get(key)
            if before is not None and self._table.drop_one(before, number, record):
                return
            packed = division.kept[key] = _pack(number, record)
            grown = getsizeof(packed) + getsizeof(key) + ENTRY_BYTES
            if before is not None:
                grown = getsizeof(packed) - getsizeof(before)
        division.size += grown
        self._size += grown
        if self._size > self._table.memory_bytes_max and self._shift >= 0:
            self._spill()

    def finish(self, pause: Pause) -> None:
        """Fold what is in the file."""
        spilled = [each for each in self._divisions if each.kept is None]
        self._divisions = []
        for division in spilled:
            self._write(division)
        for division in spilled:
            inner = _Fold(self._table, self._shift - _DIVISIONS_BITS)
            for fragment in division.fragments:
                for index, packed in enumerate(self._table.file.read(fragment)):
                    inner.add(*_unpack(packed))
                    if not index % RECORDS_PER_PAUSE:
                        pause()
            inner.finish(pause)

    def _spill(self) -> None:
        """Write what waits, and the largest divisions, until a quarter of the memory is free."""
        for division in self._divisions:
            if division.waiting:
                self._write(division)
        in_memory = sorted(
            (each for each in self._divisions if each.kept), key=lambda each: each.size
        )
        while in_memory and self._size > self._table.memory_bytes_max * 3 // 4:
            division = in_memory.pop()
            assert division.kept is not None, "it is in memory"
            division.waiting, division.kept = list(division.kept.values()), None
            self._write(division)

    def _write(self, division: _Division) -> None:
        self._table.spilled_count += len(division.waiting)
        for piece in _pieces(division.waiting):
            division.fragments.append(self._table.file.write(piece))
        self._size -= division.size
        division.waiting, division.size = [], 0


def _strategy_records(
    header: BatchHeader, body: bytes, origin: BatchOrigin, first: int, pause: Pause
) -> Iterator[tuple[int, StrategyRecord]]:
    """Yield number and contents of the records that have a key."""
    batch_size = header.last_offset_delta + 1
    for number, fields in enumerate(iterate_fields(body, header.record_count, pause), first):
        key, value, headers = read_rest(body, fields, pause)
        if key is not None:
            yield (
                number,
                StrategyRecord(
                    header.base_offset + fields.offset_delta,
                    record_timestamp(header, fields),
                    header.base_timestamp + fields.timestamp_delta,
                    key,
                    value,
                    headers,
                    fields.attributes,
                    origin.ledger_id,
                    origin.entry_id,
                    fields.offset_delta,
                    batch_size,
                ),
            )


def _pack(number: int, record: StrategyRecord) -> bytes:
    return marshal.dumps((number, *record), _MARSHAL_VERSION)


def _unpack(packed: bytes) -> tuple[int, StrategyRecord]:
    number, *fields = marshal.loads(packed)  # noqa: S302 - packed by this process
    return number, StrategyRecord._make(fields)


def _pieces(records: Sequence[bytes]) -> Iterable[list[bytes]]:
    """Divide packed records into lists that are not too large."""
    piece: list[bytes] = []
    size = 0
    for each in records:
        piece.append(each)
        size += len(each)
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
