"""Records: the durable metadata of a managed ledger, and its byte layouts.

Rule: every record begins with the version of its format; a reader refuses an unknown version.
Integers are big-endian and of fixed width; texts carry their length. A new field is a new version.
Must not know: keys, engines.

Managed ledger, version 2            Ledger, version 1
| offset | size | field           |  | offset | size | field                      |
|--------|------|-----------------|  |--------|------|----------------------------|
| 0      | 1    | version         |  | 0      | 1    | version                    |
| 1      | 8    | id              |  | 1      | 8    | entries                    |
| 9      | 8    | metadata version|  | 9      | 8    | size                       |
| 17     | 8    | terminated at:  |  | 17     | 8    | closed at (ms), 0 = open   |
| 25     | 8    |  ledger, entry; |  | 25     | 8    | largest timestamp (ms)     |
|        |      |  (-2,-2) = never|
| 33     | 4    | property count  |     Compacted ledger
| 37     | ...  | key, value, ... |     | offset | size | field               |
| then   | 1    | 1 = compacted:  |     |--------|------|---------------------|
|        | 48   |  its ledger     |     | 0      | 8    | ledger id           |
| then   | 8    | being written   |     | 8      | 8    | entries             |
|        |      |  by a compaction|     | 16     | 8    | size                |
|        |      |  or -1          |     | 24     | 8, 8 | horizon             |
                                         | 40     | 8    | compacted at (ms)   |
Version 1 ends after the properties.

Ledger, version 2: as version 1, then       Deletion of a copy, version 1
| size | field                          |  | offset | size | field                |
|------|--------------------------------|  |--------|------|----------------------|
| 1    | 1 = offloaded, or attempted:   |  | 0      | 1    | version              |
| 16   |  attempt                       |  | 1      | 8    | ledger id            |
| 2    |  length of the driver's name   |  | 9      | 1    | 1 = was complete     |
| ...  |  that name                     |  | 10     | 2    | length of the name   |
| 4    |  number of texts: the location |  | 12     | ...  | the driver's name    |
| ...  |  key, value, ...               |  | then   | 4    | number of texts: the |
| 8    |  completed at (ms), 0 = not    |  |        | ...  |  location            |
| 1    |  1 = primary deleted           |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from kledger.ledger.position import Position
from kledger.ledger.row_format import (
    FLAG,
    I64,
    TEXT16,
    TEXT32,
    U8,
    U64,
    UUID16,
    RowFormat,
    RowLayout,
    array,
    converted,
    mapping,
)

Part = TypeVar("Part")

_VERSION = 1
_VERSION_WITH_COMPACTION = 2
_VERSION_WITH_OFFLOAD = 2
_NOT_TERMINATED = Position(-2, -2)
_NO_LEDGER = -1

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLedger:
    """A ledger that stands for the beginning of a managed ledger, beside the list of ledgers.

    Attributes:
        ledger_id: of its entries, which are numbered from 0 and carry the positions of the entries
            that they were made from.
        entries: how many they are.
        size: their bytes, with those positions.
        horizon: the last position of the managed ledger that it stands for.
        compacted_ms: wall time of its completion.
    """

    ledger_id: int
    entries: int
    size: int
    horizon: Position
    compacted_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerRecord:
    """The metadata of a managed ledger as a whole.

    Attributes:
        managed_ledger_id: part of the keys of its ledgers.
        version: grows by one with every change of metadata; a change compares and sets it.
        terminated_at: its final last position, None while it is not terminated.
        properties: key-value texts of the user.
        compacted: None before the first compaction.
        compacting_id: of the ledger that a compaction writes; its data is dropped unless that
            compaction completes.
    """

    managed_ledger_id: int
    version: int = 1
    terminated_at: Position | None = None
    properties: dict[str, str] = field(default_factory=dict)
    compacted: CompactedLedger | None = None
    compacting_id: int | None = None

    @property
    def ids_beside_list(self) -> tuple[int, ...]:
        """Ids of the ledgers that have no row of their own."""
        compacted_id = None if self.compacted is None else self.compacted.ledger_id
        return tuple(each for each in (compacted_id, self.compacting_id) if each is not None)

    def successor(self) -> "ManagedLedgerRecord":
        """Return the next version of the record, without other changes."""
        return replace(self, version=self.version + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadContext:
    """The copy of a ledger in a tier, or the latest attempt to make one.

    Attributes:
        attempt: id of the attempt, unique in the tier; part of the names of its objects.
        driver: name of the kind of tier.
        location: where the tier has the copy, in the tier's own words.
        completed_ms: wall time of the completion, 0 while the attempt is not complete.
        primary_deleted: whether the tier has the only copy.
    """

    attempt: UUID
    driver: str
    location: Mapping[str, str]
    completed_ms: int = 0
    primary_deleted: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the tier has all of the ledger."""
        return self.completed_ms != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDeletion:
    """What a tier may have and no ledger needs: it has to be deleted there.

    Attributes:
        attempt: that wrote it.
        ledger_id: of the ledger that it is a copy of.
        driver: name of the kind of tier.
        location: where the tier has it.
        was_complete: whether a ledger needed it; else an attempt wrote it, or was going to.
    """

    attempt: UUID
    ledger_id: int
    driver: str
    location: Mapping[str, str]
    was_complete: bool

    @classmethod
    def of(cls, ledger_id: int, offload: OffloadContext) -> "CopyDeletion":
        """Return the deletion of the copy of a ledger."""
        return cls(
            attempt=offload.attempt,
            ledger_id=ledger_id,
            driver=offload.driver,
            location=offload.location,
            was_complete=offload.is_complete,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """One ledger of the list.

    For the open ledger (`closed_ms` 0) entries and size are a mark: they were true when the row was
    written, and recovery counts from them. `offload` is None before the first attempt.
    """

    ledger_id: int
    entries: int = 0
    size: int = 0
    closed_ms: int = 0
    max_timestamp_ms: int = NO_TIMESTAMP
    offload: OffloadContext | None = None

    @property
    def tiered(self) -> OffloadContext | None:
        """The complete copy in a tier, None if there is none."""
        return self.offload if self.offload is not None and self.offload.is_complete else None

    @property
    def is_in_tier_only(self) -> bool:
        """Whether the primary copy was deleted."""
        return self.offload is not None and self.offload.primary_deleted


def _stored_end(terminated_at: Position | None) -> Position:
    return terminated_at or _NOT_TERMINATED


def _end(stored: Position) -> Position | None:
    return None if stored == _NOT_TERMINATED else stored


def _stored_id(ledger_id: int | None) -> int:
    return _NO_LEDGER if ledger_id is None else ledger_id


def _id(stored: int) -> int | None:
    return None if stored == _NO_LEDGER else stored


def _none_or_one(value: Part | None) -> tuple[Part, ...]:
    return () if value is None else (value,)


def _first(values: Sequence[Part]) -> Part | None:
    return values[0] if values else None


POSITION = RowLayout(Position, ledger_id=I64, entry_id=I64)
"""A position, in rows of managed ledgers and cursors."""
_COMPACTED = RowLayout(
    CompactedLedger, ledger_id=U64, entries=U64, size=U64, horizon=POSITION, compacted_ms=I64
)
_END = converted(POSITION, _stored_end, _end)
_PROPERTIES = mapping(TEXT32, TEXT32)
_MANAGED_LEDGERS = RowFormat[ManagedLedgerRecord](
    "managed ledger",
    {
        _VERSION: RowLayout(
            ManagedLedgerRecord,
            managed_ledger_id=U64,
            version=U64,
            terminated_at=_END,
            properties=_PROPERTIES,
        ),
        _VERSION_WITH_COMPACTION: RowLayout(
            ManagedLedgerRecord,
            managed_ledger_id=U64,
            version=U64,
            terminated_at=_END,
            properties=_PROPERTIES,
            compacted=converted(array(_COMPACTED, count=U8), _none_or_one, _first),
            compacting_id=converted(I64, _stored_id, _id),
        ),
    },
)
_LOCATION = mapping(TEXT32, TEXT32)
_OFFLOAD = RowLayout(
    OffloadContext,
    attempt=UUID16,
    driver=TEXT16,
    location=_LOCATION,
    completed_ms=I64,
    primary_deleted=FLAG,
)
_LEDGERS = RowFormat[LedgerRecord](
    "ledger",
    {
        _VERSION: RowLayout(
            LedgerRecord, entries=U64, size=U64, closed_ms=I64, max_timestamp_ms=I64
        ),
        _VERSION_WITH_OFFLOAD: RowLayout(
            LedgerRecord,
            entries=U64,
            size=U64,
            closed_ms=I64,
            max_timestamp_ms=I64,
            offload=converted(array(_OFFLOAD, count=U8), _none_or_one, _first),
        ),
    },
    given=("ledger_id",),
)
_COPY_DELETIONS = RowFormat[CopyDeletion](
    "deletion of a copy",
    {
        _VERSION: RowLayout(
            CopyDeletion,
            ledger_id=U64,
            was_complete=FLAG,
            driver=TEXT16,
            location=_LOCATION,
        )
    },
    given=("attempt",),
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


def encode_copy_deletion(deletion: CopyDeletion) -> bytes:
    """Return the row of a deletion; the attempt stands in the key."""
    return _COPY_DELETIONS.encode(deletion)


def decode_copy_deletion(attempt: UUID, row: bytes) -> CopyDeletion:
    """Return the deletion in a row of `encode_copy_deletion`.

    Raises:
        UnreadableRow: the row is not one of these, or not whole.
    """
    return _COPY_DELETIONS.decode(row, attempt)


def encode_counter(value: int) -> bytes:
    """Return the row of the store's id counter."""
    return _COUNTERS.encode(value)


def decode_counter(row: bytes) -> int:
    """Return the number in a row of `encode_counter`.

    Raises:
        UnreadableRow: the row is not one of these, or not whole.
    """
    return _COUNTERS.decode(row)
