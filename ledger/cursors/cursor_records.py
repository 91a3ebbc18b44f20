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

from collections.abc import Mapping
from dataclasses import dataclass, field

from kledger.ledger.metadata.records import POSITION
from kledger.ledger.position import Position
from kledger.ledger.row_format import (
    BYTES32,
    I64,
    TEXT32,
    U64,
    RowFormat,
    RowLayout,
    array,
    mapping,
)

_VERSION = 2


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


_CURSORS = RowFormat[CursorRecord](
    "cursor",
    {
        _VERSION: RowLayout(
            CursorRecord,
            generation=U64,
            mark_delete_position=POSITION,
            properties=mapping(TEXT32, I64),
            deleted=array(RowLayout(None, ledger_id=U64, bitmap=BYTES32)),
            batches=array(RowLayout(None, position=POSITION, bitmap=BYTES32)),
        ).with_counts_first()
    },
    has_checksum=True,
)


def encode_cursor(record: CursorRecord) -> bytes:
    """Return the row of a cursor."""
    return _CURSORS.encode(record)


def decode_cursor(row: bytes) -> CursorRecord:
    """Return the record in a row of `encode_cursor`.

    Raises:
        UnreadableRow: the row is not one of these, or not whole.
    """
    return _CURSORS.decode(row)
