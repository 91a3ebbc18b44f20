"""Keys: the layout of every key that a ledger store writes.

Rule: the first byte is the namespace, the second the version of its layout; ids are unsigned 64-bit
big-endian numbers, so that the order of keys is the order of ids. Negative ids are not allowed.
Must not know: what the rows contain.

| namespace | rest of the key                      | row                     |
|-----------|--------------------------------------|-------------------------|
| `c` 1     |                                      | the id counter          |
| `m` 1     | name in UTF-8                        | managed ledger record   |
| `l` 1     | managed ledger id, ledger id         | ledger record           |
| `k` 1     | managed ledger id, name in UTF-8     | cursor record: snapshot |
| `p` 1     | managed ledger id, name in UTF-8     | cursor record: progress |
| `d` 1     | managed ledger id, name, number      | cursor record: change   |
| `o` 1     | attempt                              | deletion of a copy      |
| `u` 1     | the user's key                       | the user's bytes        |
"""

import struct
from uuid import UUID

_IDS = struct.Struct(">QQ")
_ID = struct.Struct(">Q")
_NUMBER = struct.Struct(">H")
_MANAGED_LEDGER = b"m\x01"
_LEDGER = b"l\x01"
_CURSOR = b"k\x01"
_CURSOR_PROGRESS = b"p\x01"
_CURSOR_CHANGE = b"d\x01"
_COPY_DELETION = b"o\x01"
_USER = b"u\x01"

ID_COUNTER = b"c\x01"
"""The key of the next ledger or managed ledger id."""


def managed_ledger_key(name: str) -> bytes:
    """Return the key of a managed ledger's record."""
    return _MANAGED_LEDGER + name.encode()


def managed_ledger_name(key: bytes) -> str:
    """Return the name in a key of `managed_ledger_key`."""
    return key[len(_MANAGED_LEDGER) :].decode()


def managed_ledger_range() -> tuple[bytes, bytes]:
    """Return start and end (exclusive) of all managed ledger records."""
    return _MANAGED_LEDGER, successor(_MANAGED_LEDGER)


def ledger_key(managed_ledger_id: int, ledger_id: int) -> bytes:
    """Return the key of a ledger's record."""
    return _LEDGER + _IDS.pack(managed_ledger_id, ledger_id)


def ledger_id_in(key: bytes) -> int:
    """Return the ledger id in a key of `ledger_key`."""
    ledger_id: int = _IDS.unpack_from(key, len(_LEDGER))[1]
    return ledger_id


def ledger_range(managed_ledger_id: int) -> tuple[bytes, bytes]:
    """Return start and end (exclusive) of the records of one managed ledger's ledgers."""
    start = _LEDGER + _ID.pack(managed_ledger_id)
    return start, successor(start)


def cursor_key(managed_ledger_id: int, name: str) -> bytes:
    """Return the key of a cursor's snapshot."""
    return _CURSOR + _ID.pack(managed_ledger_id) + name.encode()


def cursor_progress_key(managed_ledger_id: int, name: str) -> bytes:
    """Return the key of a cursor's progress."""
    return _CURSOR_PROGRESS + _ID.pack(managed_ledger_id) + name.encode()


def cursor_change_key(managed_ledger_id: int, name: str, number: int) -> bytes:
    """Return the key of one of a cursor's changes."""
    return _CURSOR_CHANGE + _ID.pack(managed_ledger_id) + name.encode() + _NUMBER.pack(number)


def cursor_name_in(key: bytes) -> str:
    """Return the cursor's name in any of its keys."""
    end = len(key) - _NUMBER.size if key.startswith(_CURSOR_CHANGE) else len(key)
    return key[len(_CURSOR) + _ID.size : end].decode()


def cursor_change_number_in(key: bytes) -> int:
    """Return the number in a key of `cursor_change_key`."""
    number: int = _NUMBER.unpack_from(key, len(key) - _NUMBER.size)[0]
    return number


def cursor_ranges(managed_ledger_id: int) -> tuple[tuple[bytes, bytes], ...]:
    """Return three ranges, start and end (exclusive): snapshots, progress and changes."""
    kinds = (_CURSOR, _CURSOR_PROGRESS, _CURSOR_CHANGE)
    starts = [kind + _ID.pack(managed_ledger_id) for kind in kinds]
    return tuple((start, successor(start)) for start in starts)


def copy_deletion_key(attempt: UUID) -> bytes:
    """Return the key of the deletion of what an attempt to offload wrote."""
    return _COPY_DELETION + attempt.bytes


def attempt_in(key: bytes) -> UUID:
    """Return the attempt in a key of `copy_deletion_key`."""
    return UUID(bytes=key[len(_COPY_DELETION) :])


def copy_deletion_range() -> tuple[bytes, bytes]:
    """Return start and end (exclusive) of all deletions of copies."""
    return _COPY_DELETION, successor(_COPY_DELETION)


def user_key(key: bytes) -> bytes:
    """Return the stored form of a key of the store's user."""
    return _USER + key


def user_key_in(key: bytes) -> bytes:
    """Return the user's key in a stored key."""
    return key[len(_USER) :]


def user_range(prefix: bytes) -> tuple[bytes, bytes]:
    """Return start and end (exclusive) of the user's keys with that prefix."""
    start = _USER + prefix
    return start, successor(start)


def successor(prefix: bytes) -> bytes:
    """Return the first key after every key that begins with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    assert trimmed, "a prefix of 0xff bytes alone has no successor"
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
