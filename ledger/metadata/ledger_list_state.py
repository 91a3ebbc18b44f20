"""Ledger list state: which ledgers make up a managed ledger, and where positions lie in them.

Rule: durable metadata is changed by apply() alone; advance() moves the last confirmed entry. A
closed ledger ends at its recorded count, the open one (always the last) at the last confirmed
entry, even if the storage has later ones.
Must not know: storage, clocks, readers. Theory: Pulsar's ManagedLedgerImpl position helpers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from kledger.ledger.metadata.records import (
    NO_TIMESTAMP,
    CompactedLedger,
    CopyDeletion,
    LedgerRecord,
    ManagedLedgerRecord,
    OffloadContext,
)
from kledger.ledger.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerInfo:
    """A description of one ledger.

    Attributes:
        entries: number of confirmed entries, also of the open ledger.
        size: their bytes.
        closed_ms: wall time of closing, None while it is open.
        offloaded: whether a tier has all of it.
        max_timestamp_ms: the latest timestamp given by writers; -1 = unknown, as while it is open.
        offload: the copy in the tier, or the latest attempt to make one; None before the first.
    """

    ledger_id: int
    entries: int
    size: int
    closed_ms: int | None
    offloaded: bool = False
    max_timestamp_ms: int = NO_TIMESTAMP
    offload: OffloadContext | None = None

    @property
    def primary_deleted(self) -> bool:
        """Whether the tier has the only copy."""
        return self.offload is not None and self.offload.primary_deleted

    @classmethod
    def of(cls, record: LedgerRecord) -> "LedgerInfo":
        """Describe a ledger whose record has the true counts."""
        return cls(
            ledger_id=record.ledger_id,
            entries=record.entries,
            size=record.size,
            closed_ms=record.closed_ms or None,
            offloaded=record.tiered is not None,
            max_timestamp_ms=record.max_timestamp_ms,
            offload=record.offload,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """One atomic step of a managed ledger's metadata.

    Attributes:
        head: the whole record after the step; its version is one above the previous one.
        put: ledgers that are new or changed.
        removed: ledgers that are removed from the list together with their data.
        dropped: ledgers beside the list whose data is removed.
        primaries: ledgers of the list whose data is removed, as a tier has a copy.
        unneeded: what a tier may have and no ledger needs after the step.
        needed: attempts that `unneeded` of an earlier step named, and that a ledger needs now.
    """

    head: ManagedLedgerRecord
    put: tuple[LedgerRecord, ...] = ()
    removed: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    primaries: tuple[int, ...] = ()
    unneeded: tuple[CopyDeletion, ...] = ()
    needed: tuple[UUID, ...] = ()

    @property
    def drops(self) -> tuple[int, ...]:
        """All ledgers whose data in this store is removed."""
        return self.removed + self.dropped + self.primaries


def begun_compaction(head: ManagedLedgerRecord, ledger_id: int | None) -> MetadataChange:
    """Return the change that names the ledger of a compaction; the one named before is dropped."""
    before = head.compacting_id
    return MetadataChange(
        head=replace(head.successor(), compacting_id=ledger_id),
        dropped=() if before is None else (before,),
    )


def completed_compaction(head: ManagedLedgerRecord, compacted: CompactedLedger) -> MetadataChange:
    """Return the change that makes a compacted ledger visible, and drops the one before it."""
    before = head.compacted
    return MetadataChange(
        head=replace(head.successor(), compacted=compacted, compacting_id=None),
        dropped=() if before is None else (before.ledger_id,),
    )


class LedgerListState:
    """The confirmed state of one managed ledger.

    `lac` is the last confirmed entry, `open_size` the confirmed bytes of the open ledger.
    """

    __slots__ = (
        "_closed_infos",
        "_entries_before",
        "_ids",
        "_records",
        "_sizes_before",
        "head",
        "lac",
        "open_id",
        "open_size",
    )

    def __init__(self, head: ManagedLedgerRecord, ledgers: Sequence[LedgerRecord]) -> None:
        """Start from recovered metadata; the last ledger may be open and is then empty.

        Args:
            head: the managed ledger's record.
            ledgers: ascending by id, all closed ones with their true counts.
        """
        self.head = head
        self.open_size = 0
        self._closed_infos: tuple[LedgerInfo, ...] | None = None
        self._records = {record.ledger_id: record for record in ledgers}
        self.lac = Position(-1, -1)
        self._rebuild()
        self.lac = self._recovered_lac()

    def apply(self, change: MetadataChange) -> None:
        """Apply a durable change; its version must be the next one."""
        assert change.head.version == self.head.version + 1, (
            f"version {change.head.version} after {self.head.version}"
        )
        self.head = change.head
        for record in change.put:
            if record.ledger_id == self.open_id and record.closed_ms:
                assert record.entries == self.entries_in(record.ledger_id), (
                    f"ledger {record.ledger_id} closed with {record.entries} entries, "
                    f"{self.entries_in(record.ledger_id)} are confirmed"
                )
                self.open_size = 0
            self._records[record.ledger_id] = record
        for ledger_id in change.removed:
            del self._records[ledger_id]
        self._rebuild()

    def advance(self, position: Position, open_size: int) -> None:
        """Confirm the next entry of the open ledger, which then has `open_size` bytes."""
        self.lac = position
        self.open_size = open_size

    @property
    def is_terminated(self) -> bool:
        """Whether the managed ledger ended for good."""
        return self.head.terminated_at is not None

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """Ids of all ledgers, ascending."""
        return tuple(self._ids)

    def latest_time(self, ledger_id: int) -> int | None:
        """Return the latest timestamp of a closed ledger, None if it is not known."""
        record = self._records.get(ledger_id)
        if record is None or record.max_timestamp_ms == NO_TIMESTAMP:
            return None
        return record.max_timestamp_ms

    def infos(self) -> tuple[LedgerInfo, ...]:
        """Describe every ledger, ascending by id."""
        records = self._records
        if self._closed_infos is None:
            closed = [each for each in self._ids if each != self.open_id]
            self._closed_infos = tuple(self._info(records[each]) for each in closed)
        if self.open_id is None:
            return self._closed_infos
        return (*self._closed_infos, self._info(records[self.open_id]))

    def entries_in(self, ledger_id: int) -> int:
        """Return the confirmed entries of a ledger of the list."""
        if ledger_id == self.open_id:
            return self.lac.entry_id + 1 if self.lac.ledger_id == ledger_id else 0
        return self._records[ledger_id].entries

    def has_ledger(self, ledger_id: int) -> bool:
        """Return whether the ledger is in the list."""
        return ledger_id in self._records

    def find(self, ledger_id: int) -> LedgerRecord | None:
        """Return the record of a ledger; counts of the open one are marks."""
        return self._records.get(ledger_id)

    def tiered(self, ledger_id: int) -> OffloadContext | None:
        """Return the complete copy of a ledger in a tier, None if it has none."""
        record = self._records.get(ledger_id)
        return None if record is None else record.tiered

    def removal(self, head: ManagedLedgerRecord, ledger_ids: Sequence[int]) -> MetadataChange:
        """Return the change that follows `head` and removes ledgers, with all copies of them."""
        copies = [(each, self.tiered(each)) for each in ledger_ids]
        return MetadataChange(
            head=head.successor(),
            removed=tuple(ledger_ids),
            unneeded=tuple(CopyDeletion.of(each, copy) for each, copy in copies if copy),
        )

    # Where a read begins

    def first_readable(self, start: Position) -> Position | None:
        """Return the first existing entry at or after `start`, None if there is none."""
        if start > self.lac:
            return None
        ids = self._ids
        index = bisect_left(ids, start.ledger_id)
        if index < len(ids) and ids[index] == start.ledger_id:
            entry_id = max(start.entry_id, 0)
            if entry_id < self.entries_in(start.ledger_id):
                return Position(start.ledger_id, entry_id)
            index += 1
        for ledger_id in ids[index:]:
            if self.entries_in(ledger_id):
                return Position(ledger_id, 0)
        return None

    # Positions as Pulsar has them

    @property
    def first_position(self) -> Position:
        """The position before the first entry: its entry id is -1."""
        if not self._ids or self._ids[0] > self.lac.ledger_id:
            return Position(self.lac.ledger_id, -1)
        return Position(self._ids[0], -1)

    def is_valid(self, position: Position) -> bool:
        """Return whether the position exists or is the next to be written."""
        ledger_id, entry_id = position
        if entry_id < 0 or ledger_id not in self._records:
            return False
        if ledger_id == self.open_id:
            return entry_id <= self.entries_in(ledger_id)
        return entry_id < self.entries_in(ledger_id)

    def next_valid(self, position: Position) -> Position:
        """Return the next valid position after this one; at the end, the next to be written."""
        candidate = position.successor
        if self.is_valid(candidate):
            return candidate
        index = bisect_right(self._ids, candidate.ledger_id)
        for ledger_id in self._ids[index:]:
            candidate = Position(ledger_id, 0)
            if self.is_valid(candidate):
                return candidate
        if self.open_id is not None and not self.entries_in(self.open_id):
            return Position(self.open_id, 0)
        return self.lac.successor

    def previous(self, position: Position) -> Position:
        """Return the position before this one; entry -1 when there is no entry before it."""
        ledger_id, entry_id = position
        if entry_id > 0:
            return Position(ledger_id, entry_id - 1)
        earlier = self._ids[: bisect_left(self._ids, ledger_id)]
        if not earlier:
            return Position(ledger_id, -1)
        for earlier_id in reversed(earlier):
            if entries := self.entries_in(earlier_id):
                return Position(earlier_id, entries - 1)
        return Position(earlier[0], -1)

    def has_entries_from(self, position: Position) -> bool:
        """Return whether the position is at or before the last confirmed entry."""
        return position <= self.lac

    # Counting

    @property
    def total_size(self) -> int:
        """Confirmed bytes of all ledgers."""
        return self._sizes_before[-1] + self.open_size

    @property
    def total_entries(self) -> int:
        """Confirmed entries of all ledgers."""
        return self.progress_of(self.lac)

    def number_of_entries(self, start: Position, end: Position) -> int:
        """Count the entries that exist from `start` to `end`, both included."""
        return max(0, self.progress_of(end) - self._rank(start.ledger_id, start.entry_id))

    def progress_of(self, position: Position) -> int:
        """Count the existing entries up to and including a position: a cursor's progress.

        The last entry of one ledger and the position before the first entry of the next one are
        different positions and the same progress.
        """
        return self._rank(position.ledger_id, position.entry_id + 1)

    def locate(self, index: int) -> Position:
        """Return the position of the `index`-th existing entry, counted from 0."""
        assert 0 <= index < self.total_entries, f"index {index} of {self.total_entries} entries"
        at = bisect_right(self._entries_before, index) - 1
        return Position(self._ids[at], index - self._entries_before[at])

    def estimated_backlog_bytes(self, position: Position) -> int:
        """Estimate the bytes from a position on, by the average entry size of its ledger."""
        index = bisect_left(self._ids, position.ledger_id)
        rest = self.total_size - self._sizes_before[index]
        if index == len(self._ids):
            return 0
        ledger_id = self._ids[index]
        entries = self.entries_in(ledger_id)
        if ledger_id != position.ledger_id or not entries:
            return rest
        consumed = min(max(position.entry_id, 0), entries)
        return rest - self._size_in(ledger_id) * consumed // entries

    def _rank(self, ledger_id: int, entry_id: int) -> int:
        """Count the existing entries before that position."""
        index = bisect_left(self._ids, ledger_id)
        if index == len(self._ids):
            last_count = self.entries_in(self._ids[-1]) if self._ids else 0
            return self._entries_before[index - 1] + last_count if self._ids else 0
        before = self._entries_before[index]
        if self._ids[index] != ledger_id:
            return before
        return before + min(max(entry_id, 0), self.entries_in(ledger_id))

    def _size_in(self, ledger_id: int) -> int:
        return self.open_size if ledger_id == self.open_id else self._records[ledger_id].size

    def _info(self, record: LedgerRecord) -> LedgerInfo:
        if record.ledger_id != self.open_id:
            return LedgerInfo.of(record)
        return LedgerInfo(
            ledger_id=record.ledger_id,
            entries=self.entries_in(record.ledger_id),
            size=self.open_size,
            closed_ms=None,
        )

    def _recovered_lac(self) -> Position:
        if self.head.terminated_at is not None:
            return self.head.terminated_at
        for ledger_id in reversed(self._ids):
            if ledger_id != self.open_id and (entries := self._records[ledger_id].entries):
                return Position(ledger_id, entries - 1)
        return Position(self.open_id if self.open_id is not None else -1, -1)

    def _rebuild(self) -> None:
        """Derive the lookup lists from the records.

        `_entries_before[i]` counts the entries of the ledgers before the i-th. `_sizes_before` does
        the same in bytes and has one more element; the open ledger counts as 0 in it.
        """
        records = list(self._records.values())
        self._ids = [record.ledger_id for record in records]
        assert self._ids == sorted(self._ids), f"ledgers out of order: {self._ids}"
        has_open = bool(records) and not records[-1].closed_ms
        self.open_id: int | None = self._ids[-1] if has_open else None
        self._closed_infos = None
        self._entries_before: list[int] = []
        self._sizes_before = [0]
        entries = 0
        for record in records:
            self._entries_before.append(entries)
            is_open = record.ledger_id == self.open_id
            assert is_open or record.closed_ms, f"ledger {record.ledger_id} is open but not last"
            entries += 0 if is_open else record.entries
            self._sizes_before.append(self._sizes_before[-1] + (0 if is_open else record.size))
