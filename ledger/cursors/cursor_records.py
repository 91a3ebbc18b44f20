"""Cursor records: the durable state of a cursor, as bytes.

Rule: a record begins with its format's version and its checksum; one that does not match is
Corrupt. Integers are big-endian; bitmaps are in Roaring's portable format. A change row has the
same layout and holds only the changes: see `cursor_rows_state`.
Must not know: keys, engines, when records are written.

Cursor, version 2
| offset | size | field                                                               |
|--------|------|---------------------------------------------------------------------|
| 0      | 1    | version                                                             |
| 1      | 4    | CRC-32C of all that follows                                         |
| 5      | 8    | generation                                                          |
| 13     | 16   | mark-delete position: ledger, entry (signed)                        |
| 29     | 12   | three counts: properties, ledgers, batches                          |
| 41     | ...  | per property: 4 length, key, 8 value (signed)                       |
|        | ...  | per ledger: 8 id, 4 length, bitmap of acknowledged entries          |
|        | ...  | per batch: 16 position, 4 length, bitmap of unacknowledged indexes  |
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from crc32c import crc32c

from kledger.ledger.errors import Corrupt
from kledger.ledger.position import Position

_VERSION = 2
_GUARD = struct.Struct(">BI")
_HEAD = struct.Struct(">QqqIII")
_LENGTH = struct.Struct(">I")
_VALUE = struct.Struct(">q")
_LEDGER = struct.Struct(">QI")
_BATCH = struct.Struct(">qqI")


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorRecord:
    """A cursor's durable state.

    Attributes:
        generation: of the whole row, which its change rows repeat.
        mark_delete_position: everything up to it is acknowledged.
        properties: whole numbers that were given with the mark-delete position.
        deleted: per ledger the bitmap of entries acknowledged one by one, ascending.
        batches: per entry the bitmap of unacknowledged indexes, ascending.
    """

    mark_delete_position: Position
    properties: Mapping[str, int] = field(default_factory=dict)
    deleted: tuple[tuple[int, bytes], ...] = ()
    batches: tuple[tuple[Position, bytes], ...] = ()
    generation: int = 0


def encode_cursor(record: CursorRecord) -> bytes:
    """Return the row of a cursor."""
    parts = [
        _HEAD.pack(
            record.generation,
            *record.mark_delete_position,
            len(record.properties),
            len(record.deleted),
            len(record.batches),
        )
    ]
    for key, value in record.properties.items():
        data = key.encode()
        parts += (_LENGTH.pack(len(data)), data, _VALUE.pack(value))
    for ledger_id, bitmap in record.deleted:
        parts += (_LEDGER.pack(ledger_id, len(bitmap)), bitmap)
    for position, bitmap in record.batches:
        parts += (_BATCH.pack(*position, len(bitmap)), bitmap)
    body = b"".join(parts)
    return _GUARD.pack(_VERSION, crc32c(body)) + body


def decode_cursor(row: bytes) -> CursorRecord:
    """Return what `encode_cursor` wrote.

    Raises:
        Corrupt: the row is not one of these, or not whole.
    """
    if len(row) < _GUARD.size:
        raise Corrupt(f"cursor record: expected at least {_GUARD.size} bytes, got {len(row)}")
    version, checksum = _GUARD.unpack_from(row)
    if version != _VERSION:
        raise Corrupt(f"cursor record: expected version {_VERSION}, got {version}")
    if crc32c(row[_GUARD.size :]) != checksum:
        raise Corrupt("cursor record: its checksum does not agree")
    # What agrees with its checksum was written by us, so everything below is whole.
    generation, *mark_delete, property_count, ledger_count, batch_count = _HEAD.unpack_from(
        row, _GUARD.size
    )
    at = _GUARD.size + _HEAD.size
    properties: dict[str, int] = {}
    for _ in range(property_count):
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(row, at)[0]
        properties[row[start:end].decode()] = _VALUE.unpack_from(row, end)[0]
        at = end + _VALUE.size
    deleted = []
    for _ in range(ledger_count):
        ledger_id, length = _LEDGER.unpack_from(row, at)
        at += _LEDGER.size + length
        deleted.append((ledger_id, row[at - length : at]))
    batches = []
    for _ in range(batch_count):
        *position, length = _BATCH.unpack_from(row, at)
        at += _BATCH.size + length
        batches.append((Position(*position), row[at - length : at]))
    return CursorRecord(
        mark_delete_position=Position(*mark_delete),
        properties=properties,
        deleted=tuple(deleted),
        batches=tuple(batches),
        generation=generation,
    )
