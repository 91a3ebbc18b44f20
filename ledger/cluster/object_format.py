"""Object format: the entries of a group as one object, in blocks, with a footer that lists them.

Rule: every byte is covered by a checksum that is verified before the byte is used, and an object
names the cluster, the epoch and the number that it was written for; so an object that is truncated,
damaged or foreign is ObjectDamaged, never wrong entries. A block has entries of one ledger with
consecutive ids; it is the unit of a checksum, of a read and of a move. The same bytes stand inline
in the database when a group is small.
Must not know: where objects are stored. Integers are big-endian, checksums CRC-32C.

| offset | size | header                  | offset | size | block                             |
|--------|------|-------------------------|--------|------|-----------------------------------|
| 0      | 4    | `KLWO`                  | 0      | 4    | checksum of the rest              |
| 4      | 2    | version, 1              | 4      | 8    | ledger id                         |
| 6      | 16   | incarnation of a cluster| 12     | 8    | id of the first entry             |
| 22     | 8    | epoch of the owner      | 20     | 4    | number of entries n, at least one |
| 30     | 8    | number                  | 24     | 4n   | sizes of the entries              |
| 38     | 4    | checksum of the header  | 24+4n  |      | the entries                       |

The blocks follow the header without gaps, and the footer follows the last block:

| size | footer                                                                                |
|------|---------------------------------------------------------------------------------------|
| 4    | `KLWF`                                                                                |
| 12   | number of blocks b, of dropped ledgers d, of sources s                                |
| 8b   | ledger ids of the blocks                                                              |
| 8b   | ids of their first entries                                                            |
| 4b   | numbers of their entries                                                              |
| 4b   | their sizes                                                                           |
| 8d   | ids of the dropped ledgers                                                            |
| 4s   | for each source: the block that its entries were copied into                          |
| 8s   | the file that the entries leave                                                       |
| 4s   | where the block that they leave begins there                                          |
| 4    | checksum of the header's first 38 bytes and the footer before                         |
"""

import re
import struct
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise, starmap
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from kledger.ledger.engine.base import Buffer

VERSION = 1
BLOCK_BYTES = 1 << 20
"""Usual size of a block at most: what a read of one entry has to fetch."""
OBJECT_BYTES_MAX = (1 << 32) - 1

_MAGIC = b"KLWO"
_FOOTER_MAGIC = b"KLWF"
_HEADER = struct.Struct(">4sH16sQQ")
_BLOCK = struct.Struct(">IQQI")
_FOOTER = struct.Struct(">4sIII")
_CHECKSUM = struct.Struct(">I")
_KEY = re.compile(r"wal/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(\d{10,})/(\d{12,})-\d+")
HEADER_SIZE = _HEADER.size + _CHECKSUM.size
FOOTER_SIZE_MIN = _FOOTER.size + _CHECKSUM.size
BLOCK_OVERHEAD = _BLOCK.size
"""Bytes of a block beside its entries and four for each of them."""


class ObjectDamaged(Exception):
    """The bytes of an object are not what was written; says which object, where and why."""

    def __init__(self, name: str, position: int, reason: str) -> None:
        super().__init__(f"{name}, position {position}: {reason}")
        self.name = name
        self.position = position
        self.reason = reason


class ObjectName(NamedTuple):
    """What an object is written for.

    Attributes:
        incarnation: of the cluster.
        epoch: of the owner that writes it.
        number: of the group among those of the epoch.
    """

    incarnation: UUID
    epoch: int
    number: int

    def key(self, attempt: int) -> str:
        """Return the name of the object in the store; another attempt has another one."""
        return f"{epoch_prefix(self.incarnation, self.epoch)}{self.number:012}-{attempt}"

    @classmethod
    def of_key(cls, key: str) -> "ObjectName":
        """Return the name that a key was made of. Raises ObjectDamaged: it is no key of ours."""
        if (match := _KEY.fullmatch(key)) is None:
            raise ObjectDamaged(key, 0, "expected wal/UUID/epoch/number-attempt")
        return cls(UUID(match[1]), int(match[2]), int(match[3]))

    @classmethod
    def of_header(cls, data: Buffer, key: str) -> "ObjectName":
        """Return the name in the header of an object.

        Args:
            data: begins with the header.
            key: of the object, for messages.

        Raises:
            ObjectDamaged: it is no header of this version.
        """
        view = memoryview(data)[:HEADER_SIZE]
        if (
            len(view) < HEADER_SIZE
            or crc32c(view[: _HEADER.size]) != _CHECKSUM.unpack(view[_HEADER.size :])[0]
        ):
            raise ObjectDamaged(key, 0, f"no header in the first {len(view)} bytes")
        magic, version, incarnation, epoch, number = _HEADER.unpack_from(view)
        if (magic, version) != (_MAGIC, VERSION):
            raise ObjectDamaged(key, 0, f"expected {_MAGIC!r} {VERSION}, got {magic!r} {version}")
        return cls(UUID(bytes=incarnation), epoch, number)


def epoch_prefix(incarnation: UUID, epoch: int) -> str:
    """Return what the keys of an epoch begin with; prefixes ascend with epochs."""
    return f"{incarnation_prefix(incarnation)}{epoch:010}/"


def incarnation_prefix(incarnation: UUID) -> str:
    """Return what all keys of a cluster begin with."""
    return f"wal/{incarnation}/"


class WalBlock(NamedTuple):
    """Where a block is in its object; position and size in bytes."""

    ledger_id: int
    first: int
    entry_count: int
    position: int
    size: int


class CopiedBlock(NamedTuple):
    """A block that was copied: the file that had it, and where it began there."""

    file: int
    position: int


class NewBlock(NamedTuple):
    """Entries that are to be one block.

    Attributes:
        ledger_id: of the entries.
        first: id of the first entry; the others follow without gaps.
        entries: at least one.
        sources: the blocks whose entries these are; empty: the entries are new.
    """

    ledger_id: int
    first: int
    entries: Sequence[Buffer]
    sources: Sequence[CopiedBlock] = ()


class ObjectFooter(NamedTuple):
    """What a group changes in an index, beside rows.

    Attributes:
        blocks: in the order of positions.
        drops: ids of ledgers whose entries are all deleted, after the blocks were added.
        sources: of each block that has some, by its number in `blocks`.
    """

    blocks: Sequence[WalBlock]
    drops: Sequence[int] = ()
    sources: dict[int, list[CopiedBlock]] = {}  # noqa: RUF012 - never changed


class EncodedObject(NamedTuple):
    """An object as bytes; the footer begins at `footer_at`."""

    data: bytearray
    footer_at: int
    footer: ObjectFooter


def blocks_of(
    entries: Iterable[tuple[int, int, Buffer]], *, bytes_max: int = BLOCK_BYTES
) -> list[NewBlock]:
    """Return the entries of a group as blocks, ordered by ledger.

    Args:
        entries: ledger id, entry id and data; the ids of each ledger ascend.
        bytes_max: of the entries of one block; one that is larger has a block of its own.
    """
    by_ledger: defaultdict[int, list[tuple[int, Buffer]]] = defaultdict(list)
    for ledger_id, entry_id, data in entries:
        by_ledger[ledger_id].append((entry_id, data))
    return [
        block
        for ledger_id in sorted(by_ledger)
        for block in _split(ledger_id, by_ledger[ledger_id], bytes_max)
    ]


def _split(ledger_id: int, entries: list[tuple[int, Buffer]], bytes_max: int) -> Iterator[NewBlock]:
    block: list[Buffer] = []
    first = size = 0
    for entry_id, data in entries:
        if block and (entry_id != first + len(block) or size + len(data) > bytes_max):
            yield NewBlock(ledger_id, first, block)
            block, size = [], 0
        if not block:
            first = entry_id
        block.append(data)
        size += len(data)
    yield NewBlock(ledger_id, first, block)


def encode_object(
    name: ObjectName, blocks: Sequence[NewBlock], drops: Sequence[int] = ()
) -> EncodedObject:
    """Return the object of a group.

    Args:
        name: what it is written for.
        blocks: its entries; may be empty.
        drops: ids of dropped ledgers.
    """
    header = _with_checksum(_HEADER.pack(_MAGIC, VERSION, name.incarnation.bytes, *name[1:]))
    parts: list[Buffer] = [header]
    placed: list[WalBlock] = []
    position = HEADER_SIZE
    for ledger_id, first, entries, _ in blocks:
        sizes = [*map(len, entries)]
        size = BLOCK_OVERHEAD + 4 * len(sizes) + sum(sizes)
        parts += (_BLOCK.pack(0, ledger_id, first, len(sizes)), _column_bytes("I", sizes))
        parts += entries
        placed.append(WalBlock(ledger_id, first, len(sizes), position, size))
        position += size
    assert position <= OBJECT_BYTES_MAX, f"a group of {position} bytes"
    sources = {number: [*each.sources] for number, each in enumerate(blocks) if each.sources}
    footer = ObjectFooter(placed, drops, sources)
    parts.append(_encode_footer(header, footer))
    data = bytearray().join(parts)
    view = memoryview(data)
    for block in placed:
        begin = block.position + _CHECKSUM.size
        checksum = crc32c(view[begin : block.position + block.size])
        _CHECKSUM.pack_into(data, block.position, checksum)
    return EncodedObject(data, position, footer)


def _encode_footer(header: bytes, footer: ObjectFooter) -> bytes:
    numbers = [number for number, sources in footer.sources.items() for _ in sources]
    sources = [*chain.from_iterable(footer.sources.values())]
    blocks = footer.blocks
    columns = (
        _FOOTER.pack(_FOOTER_MAGIC, len(blocks), len(footer.drops), len(sources)),
        _column_bytes("Q", [each.ledger_id for each in blocks]),
        _column_bytes("Q", [each.first for each in blocks]),
        _column_bytes("I", [each.entry_count for each in blocks]),
        _column_bytes("I", [each.size for each in blocks]),
        _column_bytes("Q", footer.drops),
        _column_bytes("I", numbers),
        _column_bytes("Q", [each.file for each in sources]),
        _column_bytes("I", [each.position for each in sources]),
    )
    body = b"".join(columns)
    return body + _CHECKSUM.pack(crc32c(body, crc32c(header[: _HEADER.size])))


def decode_footer(data: Buffer, key: str, name: ObjectName, footer_at: int) -> ObjectFooter:
    """Read the footer of an object.

    Args:
        data: the bytes of the object from `footer_at` to its end.
        key: of the object, for messages.
        name: what it must have been written for.
        footer_at: where the footer must begin.

    Raises:
        ObjectDamaged: these bytes are not that footer.
    """
    view = memoryview(data)
    if len(view) < FOOTER_SIZE_MIN or view[:4] != _FOOTER_MAGIC:
        raise ObjectDamaged(key, footer_at, f"expected a footer, got {len(view)} other bytes")
    header = _HEADER.pack(_MAGIC, VERSION, name.incarnation.bytes, *name[1:])
    expected = crc32c(view[: -_CHECKSUM.size], crc32c(header))
    (checksum,) = _CHECKSUM.unpack(view[-_CHECKSUM.size :])
    if checksum != expected:
        raise ObjectDamaged(
            key, footer_at, f"the footer has checksum {checksum:#x}, expected {expected:#x}"
        )
    _, blocks, drops, sources = _FOOTER.unpack_from(view)
    if len(view) != FOOTER_SIZE_MIN + 24 * blocks + 8 * drops + 16 * sources:
        raise ObjectDamaged(key, footer_at, f"a footer of {blocks} blocks has {len(view)} bytes")
    columns = _columns(view[_FOOTER.size :], ("QQII", blocks), ("Q", drops), ("IQI", sources))
    ledgers, firsts, counts, sizes, dropped, numbers, files, left = columns
    positions = [*accumulate(sizes, initial=HEADER_SIZE)]
    if positions.pop() != footer_at:
        raise ObjectDamaged(key, footer_at, "the footer does not begin where its blocks end")
    by_block: dict[int, list[CopiedBlock]] = {}
    for number, file, position in zip(numbers, files, left, strict=True):
        by_block.setdefault(number, []).append(CopiedBlock(file, position))
    placed = [*map(WalBlock, ledgers, firsts, counts, positions, sizes)]
    return ObjectFooter(placed, dropped, by_block)


def decode_block(data: Buffer, key: str, block: WalBlock) -> list[Buffer]:
    """Return the entries of a block as views of its bytes.

    Args:
        data: the bytes of the object at the block's position, as many as its size.
        key: of the object, for messages.
        block: what must be there.

    Raises:
        ObjectDamaged: these are not the bytes of that block.
    """
    view = memoryview(data)
    if len(view) != block.size:
        reason = f"expected a block of {block.size} bytes, got {len(view)}"
        raise ObjectDamaged(key, block.position, reason)
    checksum, ledger_id, first, count = _BLOCK.unpack_from(view)
    actual = crc32c(view[_CHECKSUM.size :])
    if checksum != actual:
        reason = f"the block has checksum {checksum:#x}, its bytes have {actual:#x}"
        raise ObjectDamaged(key, block.position, reason)
    if (ledger_id, first, count) != block[:3]:
        reason = (
            f"expected {block.entry_count} entries from {block.ledger_id}:{block.first}, "
            f"got {count} from {ledger_id}:{first}"
        )
        raise ObjectDamaged(key, block.position, reason)
    begin = BLOCK_OVERHEAD + 4 * count
    ends = [*accumulate(_column("I", view[BLOCK_OVERHEAD:begin]), initial=begin)]
    if len(ends) != count + 1 or ends[-1] != len(view):
        raise ObjectDamaged(key, block.position, "the sizes of the entries do not fit the block")
    return [*map(view.__getitem__, starmap(slice, pairwise(ends)))]


def _columns(view: memoryview, *tables: tuple[str, int]) -> "Iterator[array[int]]":
    """Read columns that stand one after the other, several of one length each time."""
    for codes, count in tables:
        for code in codes:
            size = count * (8 if code == "Q" else 4)
            yield _column(code, view[:size])
            view = view[size:]


def _with_checksum(data: bytes) -> bytes:
    return data + _CHECKSUM.pack(crc32c(data))


def _column_bytes(code: str, numbers: Sequence[int]) -> bytes:
    column = array(code, numbers)
    if sys.byteorder == "little":
        column.byteswap()
    return column.tobytes()


def _column(code: str, data: Buffer) -> "array[int]":
    column: array[int] = array(code)
    column.frombytes(data)
    if sys.byteorder == "little":
        column.byteswap()
    return column
