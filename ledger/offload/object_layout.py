"""Object layout: a ledger as two objects, one with its entries and one that is their index.

Rule: every byte is covered by a checksum that is verified before the byte is used, and each object
names its ledger and its attempt; so an object that is truncated, damaged, swapped with another or
foreign is Corrupt, never wrong entries. A block is the unit of a checksum and of a read; an entry
is in one block.
Must not know: where objects are stored. Source: the roles of the two objects are those of Pulsar's
block-based offloader, the layout is our own. Integers are big-endian, checksums CRC-32C.

The data object `<attempt>-ledger-<ledger id>` is a header and blocks without gaps:

| offset | size | header                        | offset | size | block                          |
|--------|------|-------------------------------|--------|------|--------------------------------|
| 0      | 4    | `KLTD`                        | 0      | 4    | checksum of the rest           |
| 4      | 2    | version, 1                    | 4      | 4    | number of entries, n >= 1      |
| 6      | 8    | ledger id                     | 8      | 8    | id of the first entry          |
| 14     | 16   | attempt                       | 16     | 4n   | sizes of the entries           |
| 30     | 4    | checksum of the fields before | 16+4n  |      | the entries                    |

The index object has the same name with `-index`; b is the number of blocks:

| offset | size | index                                                                            |
|--------|------|----------------------------------------------------------------------------------|
| 0      | 4    | `KLTI`                                                                           |
| 4      | 2    | version, 1                                                                       |
| 6      | 8    | ledger id                                                                        |
| 14     | 16   | attempt                                                                          |
| 30     | 8    | number of entries                                                                |
| 38     | 8    | bytes of all entries                                                             |
| 46     | 8    | size of the data object                                                          |
| 54     | 4    | b                                                                                |
| 58     | 4    | x, size of the extra section                                                     |
| 62     | 8b   | ids of the first entries of the blocks                                           |
| 62+8b  | 8b   | offsets of the blocks in the data object; a block ends where the next one begins |
| 62+16b | 4b   | checksums of the blocks                                                          |
| 62+20b | x    | extra section: what a later version derives from the entries; not interpreted    |
| 62+20b+x | 4  | checksum of everything before                                                    |
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, starmap
from operator import lt
from uuid import UUID

from crc32c import crc32c

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import Corrupt, InvalidArgument

VERSION = 1
BLOCK_BYTES = 1 << 20
"""Usual size of a block: what the first byte of a random read costs, and small enough that the
index of a ledger of 1 GiB has 20 KB."""
BLOCK_BYTES_MAX = 64 << 20
ENTRY_BYTES_MAX = (1 << 32) - 1

_DATA_MAGIC = b"KLTD"
_INDEX_MAGIC = b"KLTI"
_DATA_HEADER = struct.Struct(">4sHQ16s")
_INDEX_HEADER = struct.Struct(">4sHQ16sQQQII")
_BLOCK_HEADER = struct.Struct(">IQ")
_CHECKSUM = struct.Struct(">I")
DATA_HEADER_BYTES = _DATA_HEADER.size + _CHECKSUM.size
BLOCK_OVERHEAD = _CHECKSUM.size + _BLOCK_HEADER.size
"""Bytes of a block beside the sizes of its entries and the entries."""


def data_name(ledger_id: int, attempt: UUID) -> str:
    """Return the name of the data object."""
    return f"{attempt}-ledger-{ledger_id}"


def index_name(ledger_id: int, attempt: UUID) -> str:
    """Return the name of the index object."""
    return f"{data_name(ledger_id, attempt)}-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIndex:
    """The content of an index object.

    Attributes:
        ledger_id: of the ledger.
        attempt: the offload that made the objects.
        entries: number of entries, at least one.
        size: bytes of all entries.
        data_size: bytes of the data object.
        first_entries: the first entry of each block, ascending from 0.
        offsets: where each block begins in the data object.
        checksums: of each block.
        extra: bytes that this version does not interpret.
    """

    ledger_id: int
    attempt: UUID
    entries: int
    size: int
    data_size: int
    first_entries: Sequence[int]
    offsets: Sequence[int]
    checksums: Sequence[int]
    extra: bytes = b""

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.offsets)

    def block_of(self, entry_id: int) -> int:
        """Return the block that has an entry."""
        return bisect_right(self.first_entries, entry_id) - 1

    def end_offset(self, block: int) -> int:
        """Return where a block ends in the data object."""
        return self.offsets[block + 1] if block + 1 < self.blocks else self.data_size

    def end_entry(self, block: int) -> int:
        """Return the id after the last entry of a block."""
        return self.first_entries[block + 1] if block + 1 < self.blocks else self.entries

    def encode(self) -> bytes:
        """Return the bytes of the index object."""
        header = _INDEX_HEADER.pack(
            _INDEX_MAGIC,
            VERSION,
            self.ledger_id,
            self.attempt.bytes,
            self.entries,
            self.size,
            self.data_size,
            self.blocks,
            len(self.extra),
        )
        columns = [
            _column_bytes("Q", self.first_entries),
            _column_bytes("Q", self.offsets),
            _column_bytes("I", self.checksums),
        ]
        return _with_checksum(b"".join([header, *columns, self.extra]))

    def decode_block(self, block: int, data: Buffer) -> Sequence[Buffer]:
        """Return the entries of a block as views of its bytes.

        Args:
            block: its number.
            data: what the data object has between its offset and its end.

        Raises:
            Corrupt: these are not the bytes of that block.
        """
        view = memoryview(data)
        first, count = self.first_entries[block], self.end_entry(block) - self.first_entries[block]
        expected_size = self.end_offset(block) - self.offsets[block]
        if len(view) != expected_size:
            raise self._corrupt(block, f"expected {expected_size} bytes, got {len(view)}")
        (checksum,) = _CHECKSUM.unpack_from(view)
        actual = crc32c(view[_CHECKSUM.size :])
        if not checksum == actual == self.checksums[block]:
            raise self._corrupt(
                block,
                f"expected checksum {self.checksums[block]:#x}, got {checksum:#x}, "
                f"that of its bytes is {actual:#x}",
            )
        if _BLOCK_HEADER.unpack_from(view, _CHECKSUM.size) != (count, first):
            raise self._corrupt(block, f"does not have {count} entries from {first}")
        sizes = _column("I", view[BLOCK_OVERHEAD : BLOCK_OVERHEAD + 4 * count])
        ends = [*accumulate(sizes, initial=BLOCK_OVERHEAD + 4 * count)]
        if len(ends) != count + 1 or ends[-1] != len(view):
            raise self._corrupt(block, "the sizes of its entries are wrong")
        return [*map(view.__getitem__, starmap(slice, pairwise(ends)))]

    def _corrupt(self, block: int, reason: str) -> Corrupt:
        return Corrupt(
            f"{data_name(self.ledger_id, self.attempt)}: block {block} at "
            f"{self.offsets[block]}: {reason}"
        )


class LayoutWriter:
    """Makes the objects of one ledger from its entries, in order."""

    def __init__(self, ledger_id: int, attempt: UUID, *, block_bytes: int = BLOCK_BYTES) -> None:
        """Begin.

        Args:
            ledger_id: of the ledger.
            attempt: of the offload.
            block_bytes: size of a block at most; an entry that is larger has a block of its own.
        """
        if not BLOCK_OVERHEAD < block_bytes <= BLOCK_BYTES_MAX:
            raise InvalidArgument(
                f"block_bytes: expected {BLOCK_OVERHEAD + 1} to {BLOCK_BYTES_MAX}, "
                f"got {block_bytes}"
            )
        self._ledger_id = ledger_id
        self._attempt = attempt
        self._block_bytes = block_bytes
        self._entries = 0
        self._size = 0
        self._data_size = DATA_HEADER_BYTES
        self._first_entries = array("Q")
        self._offsets = array("Q")
        self._checksums = array("I")
        self._pending: list[Buffer] = []
        self._pending_bytes = BLOCK_OVERHEAD

    @property
    def entries(self) -> int:
        """How many entries were added."""
        return self._entries

    def header(self) -> bytes:
        """Return the beginning of the data object."""
        return data_header(self._ledger_id, self._attempt)

    def add(self, entries: Sequence[Buffer]) -> Sequence[Buffer]:
        """Add the next entries; return the blocks that are complete with them.

        Raises:
            InvalidArgument: an entry is larger than `ENTRY_BYTES_MAX`.
        """
        sizes = [*map(len, entries)]
        if max(sizes, default=0) > ENTRY_BYTES_MAX:
            raise InvalidArgument(
                f"ledger {self._ledger_id}: expected entries of at most {ENTRY_BYTES_MAX} bytes, "
                f"got {max(sizes)}"
            )
        # Bytes of all entries before each one, with their sizes.
        ends = [*accumulate((4 + size for size in sizes), initial=0)]
        written: list[Buffer] = []
        taken = 0
        while taken < len(entries):
            left = self._block_bytes - self._pending_bytes
            upto = max(taken, bisect_right(ends, ends[taken] + left) - 1)
            if upto == taken and not self._pending:
                upto += 1  # larger than a block
            self._pending += entries[taken:upto]
            self._pending_bytes += ends[upto] - ends[taken]
            self._entries += upto - taken
            taken = upto
            if taken < len(entries):
                written.append(self._block())
        return written

    def finish(self) -> Sequence[Buffer]:
        """Return the last block, if anything is left for one."""
        return [self._block()] if self._pending else ()

    def index(self, extra: bytes = b"") -> LedgerIndex:
        """Return the index, after `finish`."""
        assert not self._pending, "finish was not called"
        return LedgerIndex(
            ledger_id=self._ledger_id,
            attempt=self._attempt,
            entries=self._entries,
            size=self._size,
            data_size=self._data_size,
            first_entries=self._first_entries,
            offsets=self._offsets,
            checksums=self._checksums,
            extra=extra,
        )

    def _block(self) -> bytearray:
        entries = self._pending
        first = self._entries - len(entries)
        sizes = _column_bytes("I", [*map(len, entries)])
        head = bytes(_CHECKSUM.size), _BLOCK_HEADER.pack(len(entries), first), sizes
        block = bytearray().join((*head, *entries))
        checksum = crc32c(memoryview(block)[_CHECKSUM.size :])
        _CHECKSUM.pack_into(block, 0, checksum)
        self._first_entries.append(first)
        self._offsets.append(self._data_size)
        self._checksums.append(checksum)
        self._data_size += len(block)
        self._size += len(block) - sum(map(len, head))
        self._pending = []
        self._pending_bytes = BLOCK_OVERHEAD
        return block


def data_header(ledger_id: int, attempt: UUID) -> bytes:
    """Return the beginning of a data object."""
    return _with_checksum(_DATA_HEADER.pack(_DATA_MAGIC, VERSION, ledger_id, attempt.bytes))


def decode_index(data: Buffer, ledger_id: int, attempt: UUID) -> LedgerIndex:
    """Read an index object.

    Args:
        data: the whole object.
        ledger_id: the ledger that it must belong to.
        attempt: the attempt that it must belong to.

    Raises:
        Corrupt: it is not whole, has another version, or belongs to something else.
    """
    name = index_name(ledger_id, attempt)
    view = memoryview(data)
    if len(view) < _INDEX_HEADER.size + _CHECKSUM.size or view[:4] != _INDEX_MAGIC:
        raise Corrupt(f"{name}: not an index of a ledger ({len(view)} bytes)")
    _, version, own_id, own_attempt, entries, size, data_size, blocks, extra_size = (
        _INDEX_HEADER.unpack_from(view)
    )
    if version != VERSION:
        raise Corrupt(f"{name}: expected version {VERSION}, got {version}")
    expected_size = _INDEX_HEADER.size + 20 * blocks + extra_size + _CHECKSUM.size
    if len(view) != expected_size:
        raise Corrupt(f"{name}: expected {expected_size} bytes, got {len(view)}")
    if crc32c(view[: -_CHECKSUM.size]) != _CHECKSUM.unpack(view[-_CHECKSUM.size :])[0]:
        raise Corrupt(f"{name}: its checksum is wrong")
    if (own_id, own_attempt) != (ledger_id, attempt.bytes):
        raise Corrupt(f"{name}: belongs to {data_name(own_id, UUID(bytes=own_attempt))}")
    columns = view[_INDEX_HEADER.size :]
    index = LedgerIndex(
        ledger_id=ledger_id,
        attempt=attempt,
        entries=entries,
        size=size,
        data_size=data_size,
        first_entries=_column("Q", columns[: 8 * blocks]),
        offsets=_column("Q", columns[8 * blocks : 16 * blocks]),
        checksums=_column("I", columns[16 * blocks : 20 * blocks]),
        extra=bytes(columns[20 * blocks : 20 * blocks + extra_size]),
    )
    if not (
        blocks
        and index.first_entries[0] == 0
        and index.offsets[0] == DATA_HEADER_BYTES
        and _is_ascending([*index.first_entries, entries])
        and _is_ascending([*index.offsets, data_size])
    ):
        raise Corrupt(f"{name}: its blocks are not in order")
    return index


def _with_checksum(data: bytes) -> bytes:
    return data + _CHECKSUM.pack(crc32c(data))


def _is_ascending(numbers: Sequence[int]) -> bool:
    return all(map(lt, numbers, numbers[1:]))


def _column_bytes(code: str, numbers: Sequence[int]) -> bytes:
    column = array(code, numbers)
    if sys.byteorder == "little":
        column.byteswap()
    return column.tobytes()


def _column(code: str, data: Buffer) -> Sequence[int]:
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "little":
        column.byteswap()
    return column
