"""WAL index: where the blocks of every ledger are, and what of every group is still used.

Rule: it changes only by `add`, with the footers of groups in their order; adding a group again, or
older groups to an index that was stored later, changes nothing. So what is stored is a shortcut of
the groups up to some id, and a takeover adds the groups after it.
Must not know: objects, the database, rows of the store, threads: the engine has a lock.

A block takes four numbers of 64 bits in one array for each ledger: its first entry, the number of
entries and the size, the file, the position. A *file* is a group id as one number.

Stored, an array is cut into rows of `ROW_BLOCKS` blocks, with the version in the first byte:

| key                                     | value                                           |
|-----------------------------------------|-------------------------------------------------|
| `b`, ledger id, number of the row       | blocks, four big-endian numbers each            |
| `f`                                     | the epoch and seq up to which groups are in rows|
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kledger.ledger.cluster.database import BEFORE_ALL, GroupId, WalGroup
from kledger.ledger.cluster.object_format import (
    BLOCK_OVERHEAD,
    HEADER_SIZE,
    CopiedBlock,
    ObjectFooter,
    WalBlock,
)
from kledger.ledger.engine.base import Buffer, Row

ROW_BLOCKS = 256
"""Blocks in one row: a ledger that grows writes its last row again, 8 KB at most."""
BLOCK_WORDS = 4
ROWS_BYTES_MAX = 1 << 20
"""Rows that one commit stores, but for one ledger at least."""

_VERSION = b"\x01"
_BLOCKS = b"b"
_FLOOR_KEY = b"f"
_ROW_KEY = struct.Struct(">cQI")
_FLOOR = struct.Struct(">cQQ")
_SEQ_BITS = 40
_SIZE_BITS = 32
_SIZE_MASK = (1 << _SIZE_BITS) - 1


class IndexRowDamaged(Exception):
    """A row of the index cannot be read, or names a group that is not there."""


def file_of(group_id: GroupId) -> int:
    """Return a group id as one number, in the same order."""
    assert group_id.seq < 1 << _SEQ_BITS, f"{group_id}: no such number of a commit"
    return group_id.epoch << _SEQ_BITS | group_id.seq


def group_of(file: int) -> GroupId:
    """Return the group id of a file."""
    return GroupId(file >> _SEQ_BITS, file & (1 << _SEQ_BITS) - 1)


class BlockLocation(NamedTuple):
    """A block, and the file that has it."""

    file: int
    block: WalBlock


@dataclass(slots=True)
class FileUse:
    """What is used of a group.

    Attributes:
        group: where it is.
        added_ms: when it was added, of a monotonic clock.
        live_blocks: how many of its blocks are read from here.
        live_bytes: their size.
    """

    group: WalGroup
    added_ms: int
    live_blocks: int = 0
    live_bytes: int = 0

    @property
    def dead_bytes(self) -> int:
        """Size of the blocks that nothing is read from; header and footer are no blocks."""
        return self.group.footer_at - HEADER_SIZE - self.live_bytes


class _LedgerBlocks:
    """The blocks of one ledger, ascending by entries."""

    __slots__ = ("dirty_from", "stored_rows", "words")

    def __init__(self) -> None:
        self.words: array[int] = array("Q")
        self.dirty_from: int | None = None  # the first block whose row is out of date
        self.stored_rows = 0

    def __len__(self) -> int:
        return len(self.words) // BLOCK_WORDS

    def at(self, number: int, ledger_id: int) -> BlockLocation:
        first, shape, file, position = self.words[BLOCK_WORDS * number :][:BLOCK_WORDS]
        count, size = shape >> _SIZE_BITS, shape & _SIZE_MASK
        return BlockLocation(file, WalBlock(ledger_id, first, count, position, size))

    def end(self, number: int) -> int:
        """Return the id after the last entry of a block."""
        words = self.words
        return words[BLOCK_WORDS * number] + (words[BLOCK_WORDS * number + 1] >> _SIZE_BITS)

    def find(self, entry_id: int) -> int:
        """Return the number of the block that has an entry, or -1."""
        words = self.words
        after = bisect_right(range(len(self)), entry_id, key=lambda n: words[BLOCK_WORDS * n])
        return after - 1 if after and entry_id < self.end(after - 1) else -1

    def replace(self, begin: int, end: int, file: int, block: WalBlock) -> None:
        """Put a block where the blocks from `begin` to before `end` are."""
        shape = block.entry_count << _SIZE_BITS | block.size
        new = array("Q", (block.first, shape, file, block.position))
        self.words[BLOCK_WORDS * begin : BLOCK_WORDS * end] = new
        self.changed(begin)

    def changed(self, number: int) -> None:
        if self.dirty_from is None or number < self.dirty_from:
            self.dirty_from = number


class WalIndex:
    """The index of one engine.

    Attributes:
        files: groups that are not forgotten, by file.
        newest: the last group that was added.
        stored_upto: up to this group, everything is in stored rows.
        block_count: blocks of all ledgers.
        inline_bytes: size of the groups that are inline.
    """

    def __init__(self) -> None:
        self.files: dict[int, FileUse] = {}
        self.newest = BEFORE_ALL
        self.stored_upto = BEFORE_ALL
        self.block_count = 0
        self.inline_bytes = 0
        self._ledgers: dict[int, _LedgerBlocks] = {}
        self._dirty: dict[int, None] = {}  # ledgers, in the order in which they became dirty
        self._dropped_rows: dict[int, int] = {}

    @property
    def object_bytes(self) -> int:
        """Size of the groups that are objects."""
        return self._sum(lambda use: use.group.size)

    @property
    def dead_bytes(self) -> int:
        """How much of that nothing is read from."""
        return self._sum(lambda use: use.dead_bytes)

    def _sum(self, size: Callable[["FileUse"], int]) -> int:
        objects = (use for use in self.files.values() if use.group.object_key is not None)
        return sum(map(size, objects))

    # Changes

    def add_file(self, group_id: GroupId, group: WalGroup, now_ms: int) -> int:
        """Add a group without its blocks; return its file."""
        file = file_of(group_id)
        self.files[file] = FileUse(group, now_ms)
        if group.object_key is None:
            self.inline_bytes += group.size
        return file

    def add(self, group_id: GroupId, footer: ObjectFooter) -> None:
        """Add what a group changes; its file must be there if it has blocks."""
        file = file_of(group_id)
        for number, block in enumerate(footer.blocks):
            sources = footer.sources.get(number)
            if sources:
                self._move(file, block, sources)
            else:
                self._append(file, block)
        for ledger_id in footer.drops:
            self._drop(ledger_id)
        self.newest = max(self.newest, group_id)

    def forget(self, files: Sequence[int]) -> None:
        """Remove groups that nothing is read from."""
        for file in files:
            use = self.files.pop(file)
            assert not use.live_blocks, f"{group_of(file)} has {use.live_blocks} live blocks"
            if use.group.object_key is None:
                self.inline_bytes -= use.group.size

    def _append(self, file: int, block: WalBlock) -> None:
        blocks = self._ledgers.get(block.ledger_id)
        if blocks is None:
            blocks = self._ledgers[block.ledger_id] = _LedgerBlocks()
        count = len(blocks)
        if count and block.first < blocks.end(count - 1):
            return  # the index was stored after this group
        blocks.replace(count, count, file, block)
        self.block_count += 1
        self._use(file, block.size)
        self._dirty[block.ledger_id] = None

    def _move(self, file: int, block: WalBlock, sources: Sequence[CopiedBlock]) -> None:
        """Let entries be read from a copy, if all of them are still where they were copied from."""
        blocks = self._ledgers.get(block.ledger_id)
        if blocks is None:
            return
        begin = blocks.find(block.first)
        end = begin + len(sources)
        if begin < 0 or end > len(blocks):
            return
        left = [blocks.at(number, block.ledger_id) for number in range(begin, end)]
        if [*sources] != [CopiedBlock(each.file, each.block.position) for each in left]:
            return
        blocks.replace(begin, end, file, block)
        self.block_count -= len(sources) - 1
        self._use(file, block.size)
        for each in left:
            self._unuse(each.file, each.block.size)
        self._dirty[block.ledger_id] = None

    def _drop(self, ledger_id: int) -> None:
        blocks = self._ledgers.pop(ledger_id, None)
        self._dirty.pop(ledger_id, None)
        if blocks is None:
            return
        for number in range(len(blocks)):
            file, block = blocks.at(number, ledger_id)
            self._unuse(file, block.size)
        self.block_count -= len(blocks)
        if blocks.stored_rows:
            self._dropped_rows[ledger_id] = blocks.stored_rows

    def _use(self, file: int, size: int) -> None:
        use = self.files[file]
        use.live_blocks += 1
        use.live_bytes += size

    def _unuse(self, file: int, size: int) -> None:
        use = self.files[file]
        use.live_blocks -= 1
        use.live_bytes -= size

    # Questions

    def last_entry(self, ledger_id: int) -> int:
        """Return the newest entry of a ledger, -1 if there is none."""
        blocks = self._ledgers.get(ledger_id)
        return -1 if blocks is None else blocks.end(len(blocks) - 1) - 1

    def locations(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[BlockLocation]:
        """Return the blocks that have the entries from `first_entry` on, without a gap.

        They have at least `bytes_max` bytes from that entry on, if there are so many before the
        entry after `last_entry`; empty if the entry is missing.
        """
        blocks = self._ledgers.get(ledger_id)
        number = -1 if blocks is None else blocks.find(first_entry)
        found: list[BlockLocation] = []
        if blocks is None or number < 0:
            return found
        left, next_entry = bytes_max, first_entry
        while number < len(blocks):
            location = blocks.at(number, ledger_id)
            block = location.block
            if found and (block.first != next_entry or next_entry > last_entry or left <= 0):
                break
            found.append(location)
            # Of a block that is read from the middle, the wanted part has an unknown size.
            if block.first >= first_entry:
                left -= block.size - BLOCK_OVERHEAD - 4 * block.entry_count
            next_entry = block.first + block.entry_count
            number += 1
        return found

    def live_of(self, file: int, footer: ObjectFooter) -> list[WalBlock]:
        """Return the blocks of a footer that are read from this file."""
        live = []
        for block in footer.blocks:
            blocks = self._ledgers.get(block.ledger_id)
            number = -1 if blocks is None else blocks.find(block.first)
            if blocks is not None and number >= 0:
                location = blocks.at(number, block.ledger_id)
                if location == (file, block):
                    live.append(block)
        return live

    def ledger_ids(self) -> list[int]:
        """Return the ids of all ledgers with entries."""
        return [*self._ledgers]

    # Stored rows

    @property
    def is_dirty(self) -> bool:
        """Whether rows must be written before groups after `stored_upto` need not be read again."""
        return bool(self._dirty or self._dropped_rows) or self.stored_upto != self.newest

    def take_rows(self, *, bytes_max: int = ROWS_BYTES_MAX) -> list[Row]:
        """Return the next rows that are out of date, those of a ledger together; empty: no more.

        The caller commits them. When there are no more, `floor_row` of the group that was newest
        before the first call makes them count.
        """
        rows: list[Row] = []
        size = 0
        while self._dropped_rows and len(rows) * 64 < bytes_max:
            ledger_id, count = self._dropped_rows.popitem()
            rows += [(_row_key(ledger_id, number), None) for number in range(count)]
        while self._dirty and size < bytes_max:
            ledger_id = next(iter(self._dirty))
            del self._dirty[ledger_id]
            of_ledger = self._rows_of(ledger_id, self._ledgers[ledger_id])
            rows += of_ledger
            size += sum(len(value or b"") for _, value in of_ledger)
        return rows

    def _rows_of(self, ledger_id: int, blocks: _LedgerBlocks) -> list[Row]:
        if blocks.dirty_from is None:
            return []
        row_words = ROW_BLOCKS * BLOCK_WORDS
        count = -(-len(blocks) // ROW_BLOCKS)
        rows: list[Row] = []
        for number in range(blocks.dirty_from // ROW_BLOCKS, count):
            words = blocks.words[number * row_words : (number + 1) * row_words]
            rows.append((_row_key(ledger_id, number), _VERSION + _to_bytes(words)))
        rows += [(_row_key(ledger_id, gone), None) for gone in range(count, blocks.stored_rows)]
        blocks.stored_rows, blocks.dirty_from = count, None
        return rows

    def load_row(self, key: bytes, value: Buffer) -> None:
        """Add a stored row; rows come in the order of keys, after all files.

        Raises:
            IndexRowDamaged: it cannot be read.
        """
        if key == _FLOOR_KEY:
            self.stored_upto = self.newest = _decode_floor(value)
            return
        is_row = len(key) == _ROW_KEY.size and key[:1] == _BLOCKS and value[:1] == _VERSION
        if not is_row or len(value) % (8 * BLOCK_WORDS) != 1:
            raise IndexRowDamaged(
                f"row {key.hex()} of {len(value)} bytes is no row of version 1 of the index"
            )
        ledger_id: int = _ROW_KEY.unpack(key)[1]
        words: array[int] = array("Q")
        words.frombytes(memoryview(value)[1:])
        if sys.byteorder == "little":
            words.byteswap()
        blocks = self._ledgers.setdefault(ledger_id, _LedgerBlocks())
        before = len(blocks)
        blocks.words += words
        blocks.stored_rows += 1
        self.block_count += len(blocks) - before
        for number in range(before, len(blocks)):
            file, block = blocks.at(number, ledger_id)
            if file not in self.files:
                raise IndexRowDamaged(f"ledger {ledger_id} has entries in {group_of(file)}, "
                                      "which is not there")  # fmt: skip
            self._use(file, block.size)


def floor_row(group_id: GroupId) -> Row:
    """Return the row that says up to which group all changes are in rows."""
    return _FLOOR_KEY, _FLOOR.pack(_VERSION, *group_id)


def _decode_floor(value: Buffer) -> GroupId:
    try:
        version, epoch, seq = _FLOOR.unpack(value)
    except struct.error:
        version, epoch, seq = b"", 0, 0
    if version != _VERSION:
        raise IndexRowDamaged(f"the last row of the index has {len(value)} bytes, not version 1")
    return GroupId(epoch, seq)


def _row_key(ledger_id: int, number: int) -> bytes:
    return _ROW_KEY.pack(_BLOCKS, ledger_id, number)


def _to_bytes(words: "array[int]") -> bytes:
    if sys.byteorder == "little":
        words.byteswap()  # of a slice, which is a copy
    return words.tobytes()
