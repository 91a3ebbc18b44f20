"""Compacted entry: an entry of a compacted ledger, which replaces the beginning of a log.

Rule: it carries the position of the entry that it was made from.
Must not know: what is kept, and why.

| offset | size | field                                           |
|--------|------|-------------------------------------------------|
| 0      | 8    | ledger id of the entry that it was made from    |
| 8      | 8    | its entry id                                    |
| 16     | 8    | a number of the ledger's user                   |
| 24     |      | data                                            |
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import Corrupt
from kledger.ledger.position import Position

_HEAD = struct.Struct(">qqq")


class CompactedEntry(NamedTuple):
    """An entry as it is read.

    Attributes:
        number: within its ledger, counted from 0.
        position: of the entry that it was made from.
        attribute: the number that the writer has given.
        data: without position and attribute.
    """

    number: int
    position: Position
    attribute: int
    data: memoryview


def encode_compacted(position: Position, attribute: int, parts: Sequence[Buffer]) -> bytes:
    """Return the stored form of an entry whose data is given in parts."""
    return b"".join((_HEAD.pack(*position, attribute), *parts))


def decode_compacted(number: int, stored: Buffer) -> CompactedEntry:
    """Return the entry in `stored`, without a copy. Raises Corrupt."""
    if len(stored) < _HEAD.size:
        raise Corrupt(
            f"entry {number} of a compacted ledger: expected {_HEAD.size} bytes or more, "
            f"got {len(stored)}"
        )
    ledger_id, entry_id, attribute = _HEAD.unpack_from(stored)
    data = memoryview(stored)[_HEAD.size :]
    return CompactedEntry(number, Position(ledger_id, entry_id), attribute, data)
