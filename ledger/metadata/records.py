"""Records: the durable metadata of a managed ledger, and its byte layouts.

Rule: every record begins with the version of its format; a reader refuses an unknown version.
Integers are big-endian and of fixed width; texts carry their length. A new field is a new version.
Must not know: keys, engines.

Managed ledger, version 1            Ledger, version 1
| offset | size | field           |  | offset | size | field                      |
|--------|------|-----------------|  |--------|------|----------------------------|
| 0      | 1    | version         |  | 0      | 1    | version                    |
| 1      | 8    | id              |  | 1      | 8    | entries                    |
| 9      | 8    | metadata version|  | 9      | 8    | size                       |
| 17     | 8    | terminated at:  |  | 17     | 8    | closed at (ms), 0 = open   |
| 25     | 8    |  ledger, entry; |  | 25     | 8    | largest timestamp (ms)     |
|        |      |  (-2,-2) = never|
| 33     | 4    | property count  |
| 37     | ...  | key, value, ... |
"""

import struct
from dataclasses import dataclass, field, replace

from kledger.ledger.errors import Corrupt
from kledger.ledger.position import Position

_HEAD = struct.Struct(">BQQqqI")
_LEDGER = struct.Struct(">BQQqq")
_LENGTH = struct.Struct(">I")
_COUNTER = struct.Struct(">BQ")
_VERSION = 1
_NOT_TERMINATED = Position(-2, -2)

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerRecord:
    """The metadata of a managed ledger as a whole.

    Attributes:
        managed_ledger_id: part of the keys of its ledgers.
        version: grows by one with every change of metadata; a change compares and sets it.
        terminated_at: its final last position, None while it is not terminated.
        properties: key-value texts of the user.
    """

    managed_ledger_id: int
    version: int = 1
    terminated_at: Position | None = None
    properties: dict[str, str] = field(default_factory=dict)

    def successor(
        self, *, properties: dict[str, str] | None = None, terminated_at: Position | None = None
    ) -> "ManagedLedgerRecord":
        """Return the next version of the record with the given changes."""
        return replace(
            self,
            version=self.version + 1,
            properties=self.properties if properties is None else properties,
            terminated_at=terminated_at or self.terminated_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """One ledger of the list.

    For the open ledger (`closed_ms` 0) entries and size are a mark: they were true when the row was
    written, and recovery counts from them.
    """

    ledger_id: int
    entries: int = 0
    size: int = 0
    closed_ms: int = 0
    max_timestamp_ms: int = NO_TIMESTAMP


def encode_managed_ledger(record: ManagedLedgerRecord) -> bytes:
    """Return the row of a managed ledger."""
    end = record.terminated_at or _NOT_TERMINATED
    parts = [
        _HEAD.pack(
            _VERSION,
            record.managed_ledger_id,
            record.version,
            end.ledger_id,
            end.entry_id,
            len(record.properties),
        )
    ]
    for pair in record.properties.items():
        for text in pair:
            data = text.encode()
            parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def decode_managed_ledger(row: bytes) -> ManagedLedgerRecord:
    """Return what `encode_managed_ledger` wrote.

    Raises:
        Corrupt: the row is not one of these, or not whole.
    """
    _check_version(row, _HEAD.size, "managed ledger")
    _, managed_ledger_id, version, ledger_id, entry_id, count = _HEAD.unpack_from(row)
    texts, position = [], _HEAD.size
    for _ in range(2 * count):
        text, position = _take_text(row, position)
        texts.append(text)
    if position != len(row):
        raise Corrupt(f"managed ledger record: {len(row) - position} bytes too many")
    end = Position(ledger_id, entry_id)
    return ManagedLedgerRecord(
        managed_ledger_id=managed_ledger_id,
        version=version,
        terminated_at=None if end == _NOT_TERMINATED else end,
        properties=dict(zip(texts[::2], texts[1::2], strict=True)),
    )


def encode_ledger(record: LedgerRecord) -> bytes:
    """Return the row of a ledger; its id is in the key."""
    return _LEDGER.pack(
        _VERSION, record.entries, record.size, record.closed_ms, record.max_timestamp_ms
    )


def decode_ledger(ledger_id: int, row: bytes) -> LedgerRecord:
    """Return what `encode_ledger` wrote.

    Raises:
        Corrupt: the row is not one of these, or not whole.
    """
    _check_version(row, _LEDGER.size, "ledger", exact=True)
    _, entries, size, closed_ms, max_timestamp_ms = _LEDGER.unpack(row)
    return LedgerRecord(
        ledger_id=ledger_id,
        entries=entries,
        size=size,
        closed_ms=closed_ms,
        max_timestamp_ms=max_timestamp_ms,
    )


def encode_counter(value: int) -> bytes:
    """Return the row of the store's id counter."""
    return _COUNTER.pack(_VERSION, value)


def decode_counter(row: bytes) -> int:
    """Return what `encode_counter` wrote.

    Raises:
        Corrupt: the row is not one of these, or not whole.
    """
    _check_version(row, _COUNTER.size, "counter", exact=True)
    value: int = _COUNTER.unpack(row)[1]
    return value


def _take_text(row: bytes, position: int) -> tuple[str, int]:
    start = position + _LENGTH.size
    if start > len(row):
        raise Corrupt("managed ledger record: a property is cut off")
    end = start + _LENGTH.unpack_from(row, position)[0]
    if end > len(row):
        raise Corrupt("managed ledger record: a property is cut off")
    try:
        return row[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise Corrupt(f"managed ledger record: a property is not text: {error}") from None


def _check_version(row: bytes, size: int, kind: str, *, exact: bool = False) -> None:
    if len(row) < size or (exact and len(row) != size):
        raise Corrupt(f"{kind} record: expected {size} bytes, got {len(row)}")
    if row[0] != _VERSION:
        raise Corrupt(f"{kind} record: expected version {_VERSION}, got {row[0]}")
