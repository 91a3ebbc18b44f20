"""Index keys: the layout of all keys and values in the index of the engine.

Rule: the first byte of a key is its kind; numbers in keys are big-endian, so that keys sort as the
numbers do; numbers in values are little-endian, as in the log.
Must not know: the database.

| kind      | key                              | value                                        |
|-----------|----------------------------------|----------------------------------------------|
| entry     | "e", ledger id (8), entry id (8) | file (4), frame position (4), data length (4) |
| row       | "r", the caller's key            | the caller's value                           |
| space     | "s", file (4), ledger id (8)     | bytes of the ledger's frames in the file (8) |
| watermark | "w"                              | file (4), position (4), group (8)            |
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from kledger.ledger.engine.log.recovery_plan import Watermark

WATERMARK_KEY = b"w"
ROW_PREFIX = b"r"
SPACE_PREFIX = b"s"
SPACE_END = b"t"

_ENTRY_KEY = Struct(">cQQ")
_LEDGER_KEY = Struct(">cQ")
_SPACE_KEY = Struct(">cIQ")
_LOCATION = Struct("<III")
_SPACE = Struct("<Q")
_WATERMARK = Struct("<IIQ")

_new_tuple = tuple.__new__

entry_key = _ENTRY_KEY.pack
"""entry_key(b"e", ledger_id, entry_id); called for every entry, hence not wrapped."""
location_value = _LOCATION.pack
"""location_value(file, position, data_length)."""
ENTRY_PREFIX = b"e"
ENTRY_END = b"f"


class EntryLocation(NamedTuple):
    """File and position of an entry's frame, and the length of its data."""

    entry_id: int
    file: int
    position: int
    data_length: int


def ledger_range(ledger_id: int) -> tuple[bytes, bytes]:
    """Return the first key of a ledger's entries, and the first one after them."""
    start = _LEDGER_KEY.pack(ENTRY_PREFIX, ledger_id)
    return start, start + b"\xff" * 9


def ledger_id_in(key: bytes) -> int:
    """Return the ledger of an entry's row."""
    ledger_id: int = _LEDGER_KEY.unpack_from(key)[1]
    return ledger_id


def decode_entry(key: bytes, value: bytes) -> EntryLocation:
    """Return the location of an entry from its row."""
    return EntryLocation(_ENTRY_KEY.unpack(key)[2], *_LOCATION.unpack(value))


def decode_run(
    ledger_id: int, first_entry: int, rows: Sequence[tuple[bytes, bytes]]
) -> list[EntryLocation]:
    """Return the locations of consecutive entries from their rows, up to the first gap.

    Keys ascend, so the last one alone says whether there is a gap: a reader in order decodes whole
    runs, which costs a third of what single rows do.

    Args:
        ledger_id: of all entries.
        first_entry: the entry that the first row should have.
        rows: of entries of the ledger, the first one `first_entry` or a later one.
    """
    if not rows:
        return []
    end_entry = first_entry + len(rows)
    if rows[-1][0] == entry_key(ENTRY_PREFIX, ledger_id, end_entry - 1):
        locations = _LOCATION.iter_unpack(b"".join([value for _, value in rows]))
        return [
            _new_tuple(EntryLocation, (entry_id, *location))
            for entry_id, location in zip(range(first_entry, end_entry), locations, strict=True)
        ]
    found: list[EntryLocation] = []
    for entry_id, (key, value) in enumerate(rows, first_entry):
        location = decode_entry(key, value)
        if location.entry_id != entry_id:
            break
        found.append(location)
    return found


def space_key(file: int, ledger_id: int) -> bytes:
    """Return the key of the space that a ledger takes in a file."""
    return _SPACE_KEY.pack(SPACE_PREFIX, file, ledger_id)


def encode_space(size: int) -> bytes:
    """Return the value of a space row."""
    return _SPACE.pack(size)


def decode_space(key: bytes, value: bytes) -> tuple[int, int, int]:
    """Return file, ledger id and bytes from a space row."""
    _, file, ledger_id = _SPACE_KEY.unpack(key)
    return file, ledger_id, _SPACE.unpack(value)[0]


def encode_watermark(watermark: Watermark) -> bytes:
    """Return the value of the watermark's row."""
    return _WATERMARK.pack(*watermark)


def decode_watermark(value: bytes) -> Watermark:
    """Return the watermark from its row."""
    return Watermark(*_WATERMARK.unpack(value))
