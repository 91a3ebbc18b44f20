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

from dataclasses import dataclass, field, replace

from kledger.ledger.position import Position
from kledger.ledger.row_format import I64, TEXT32, U64, RowFormat, RowLayout, converted, mapping

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


def _stored_end(terminated_at: Position | None) -> Position:
    return terminated_at or _NOT_TERMINATED


def _end(stored: Position) -> Position | None:
    return None if stored == _NOT_TERMINATED else stored


POSITION = RowLayout(Position, ledger_id=I64, entry_id=I64)
"""A position, in rows of managed ledgers and cursors."""
_MANAGED_LEDGERS = RowFormat[ManagedLedgerRecord](
    "managed ledger",
    {
        _VERSION: RowLayout(
            ManagedLedgerRecord,
            managed_ledger_id=U64,
            version=U64,
            terminated_at=converted(POSITION, _stored_end, _end),
            properties=mapping(TEXT32, TEXT32),
        )
    },
)
_LEDGERS = RowFormat[LedgerRecord](
    "ledger",
    {_VERSION: RowLayout(LedgerRecord, entries=U64, size=U64, closed_ms=I64, max_timestamp_ms=I64)},
    given=("ledger_id",),
)
_COUNTERS = RowFormat[int]("counter", {_VERSION: U64})


def encode_managed_ledger(record: ManagedLedgerRecord) -> bytes:
    """Return the row of a managed ledger."""
    return _MANAGED_LEDGERS.encode(record)


def decode_managed_ledger(row: bytes) -> ManagedLedgerRecord:
    """Return the record in a row of `encode_managed_ledger`.

    Raises:
        UnreadableRow: the row is not one of these, or not whole.
    """
    return _MANAGED_LEDGERS.decode(row)


def encode_ledger(record: LedgerRecord) -> bytes:
    """Return the row of a ledger; its id stands in the key."""
    return _LEDGERS.encode(record)


def decode_ledger(ledger_id: int, row: bytes) -> LedgerRecord:
    """Return the record in a row of `encode_ledger`.

    Raises:
        UnreadableRow: the row is not one of these, or not whole.
    """
    return _LEDGERS.decode(row, ledger_id)


def encode_counter(value: int) -> bytes:
    """Return the row of the store's id counter."""
    return _COUNTERS.encode(value)


def decode_counter(row: bytes) -> int:
    """Return the number in a row of `encode_counter`.

    Raises:
        UnreadableRow: the row is not one of these, or not whole.
    """
    return _COUNTERS.decode(row)
