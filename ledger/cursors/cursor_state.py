"""Cursor state: the positions of one subscriber in a managed ledger, and its acknowledgements.

Rule: everything up to the mark-delete position is acknowledged; acknowledged entries after it are
holes, and a hole that it reaches becomes part of it, across ledgers too. The read position lies
after it, unless a forced seek or reset moved it back.
Must not know: storage, clocks, consumers. Theory: docs/ARCHITECTURE.md, "Cursors".
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyroaring import BitMap

from kledger.ledger.cursors.compacted_positions import CompactedPositions
from kledger.ledger.cursors.cursor_records import CursorRecord
from kledger.ledger.cursors.position_ranges import PositionRanges
from kledger.ledger.entry import Entry
from kledger.ledger.errors import AlreadyMarkDeleted, InvalidArgument, InvalidPosition
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.position import EARLIEST, LATEST, Position

READ_GAP_MAX = 16
"""A read goes over holes of up to so many entries and drops them: cheaper than another read."""
CHANGES_MAX = 10_000
"""With more changed entries, or batches, between two rows the whole cursor is written."""
READS_COMPACTED = "kledger.reads-compacted"
"""The property of the row of a cursor that reads compacted entries; it is none of `properties`."""


class EntryPart(NamedTuple):
    """The acknowledged part of one entry.

    Attributes:
        indexes: of records; None is the whole entry.
        batch_size: how many records the entry has; ignored for a whole entry.
    """

    position: Position
    indexes: Collection[int] | None
    batch_size: int = 0

    def check(self) -> None:
        """Raise InvalidArgument unless every index is within the batch."""
        indexes, size = self.indexes, self.batch_size
        if indexes is None or (size > 0 and all(0 <= index < size for index in indexes)):
            return
        raise InvalidArgument(f"indexes: expected 0 to {size - 1}, got {sorted(indexes)}")


class CursorState:
    """One cursor.

    Attributes:
        mark_delete_position: see above; only the editor of a revision sets it from outside.
        read_position: where the next sequential read begins; set in the same way.
        properties: whole numbers given with the last mark-delete.
        changes: since the rows were written; for the writer.
        version: grows with every change that must become durable.
    """

    __slots__ = (
        "_batches",
        "_deleted",
        "_ledgers",
        "_settled",
        "changes",
        "mark_delete_position",
        "properties",
        "read_position",
        "version",
    )

    def __init__(
        self,
        ledgers: LedgerListState,
        mark_delete_position: Position,
        *,
        properties: Mapping[str, int] | None = None,
        reads_compacted: bool = False,
    ) -> None:
        """Args: reads_compacted: whether the beginning of the log is read from what was kept."""
        self._ledgers: LedgerListState | CompactedPositions = (
            CompactedPositions(ledgers) if reads_compacted else ledgers
        )
        self._deleted = PositionRanges()
        self._batches = PartialBatches()
        self.mark_delete_position = self._existing_position(mark_delete_position)
        self.read_position = self._ledgers.next_valid(self.mark_delete_position)
        self._settled = self.mark_delete_position
        self.properties = dict(properties or {})
        self.changes = CursorChanges()
        self.version = 0

    @classmethod
    def recovered(cls, ledgers: LedgerListState, record: CursorRecord) -> "CursorState":
        """Return the state of a record, adapted to the ledgers that exist.

        A position beyond the last confirmed entry moves back to that, one in a removed ledger moves
        to the next ledger, and acknowledgements of entries that do not exist are dropped.
        """
        properties = dict(record.properties)
        reads_compacted = bool(properties.pop(READS_COMPACTED, 0))
        state = cls(
            ledgers,
            record.mark_delete_position,
            properties=properties,
            reads_compacted=reads_compacted,
        )
        state._deleted = deleted = PositionRanges.load(record.deleted)
        for ledger_id in deleted.ledger_ids:
            known = state._ledgers
            entries = known.entries_in(ledger_id) if known.has_ledger(ledger_id) else 0
            deleted.remove_in_ledger_from(Position(ledger_id, entries))
        open_batches = (each for each in record.batches if state._is_open_entry(each[0]))
        state._batches = PartialBatches.load(open_batches)
        state._settle()
        return state

    # Properties

    @property
    def last_confirmed(self) -> Position:
        """The newest entry that can be read."""
        return self._ledgers.lac

    @property
    def reads_compacted(self) -> bool:
        """Whether the beginning of the log is read from what a compaction has kept."""
        return isinstance(self._ledgers, CompactedPositions)

    @property
    def horizon(self) -> Position:
        """Up to where entries are read from the compacted ledger; EARLIEST: none are."""
        return self._ledgers.horizon if isinstance(self._ledgers, CompactedPositions) else EARLIEST

    @property
    def backlog(self) -> int:
        """How many entries of the log are not acknowledged.

        Those that compaction has removed count until a cursor that reads compacted has passed them.
        """
        ledgers, holes = self._ledgers, self._deleted.count
        following = ledgers.total_entries - ledgers.progress_of(self.mark_delete_position)
        if holes and self.reads_compacted:  # some may be in ledgers that were removed
            holes = sum(map(self._deleted.count_in, ledgers.ledger_ids))
        return max(0, following - holes)

    @property
    def hole_count(self) -> int:
        """How many entries after the mark-delete position are acknowledged."""
        return self._deleted.count

    @property
    def individually_deleted(self) -> tuple[tuple[Position, Position], ...]:
        """The holes, ascending, as pairs (after, upto): open at the left, closed at the right."""
        return tuple(
            (
                Position(entry_range.ledger_id, entry_range.first - 1),
                Position(entry_range.ledger_id, entry_range.last),
            )
            for entry_range in self._deleted.entry_ranges()
        )

    @property
    def has_unread(self) -> bool:
        """Whether there is an entry at or after the read position, acknowledged or not."""
        return self._ledgers.has_entries_from(self.read_position)

    @property
    def last_acknowledged(self) -> Position:
        """The newest entry that is acknowledged, as a whole or in part."""
        return max(self.mark_delete_position, self._deleted.last, *self._batches.last)

    def batch_indexes(self, position: Position) -> frozenset[int] | None:
        """Return the unacknowledged records of a batch; None unless only some are acknowledged."""
        unacknowledged = self._batches.get(position)
        return None if unacknowledged is None else frozenset(unacknowledged)

    def is_acknowledged(self, position: Position) -> bool:
        """Whether an entry as a whole is acknowledged."""
        return position <= self.mark_delete_position or position in self._deleted

    def is_in_hole(self, position: Position) -> bool:
        """Whether an entry after the mark-delete position is acknowledged."""
        return position in self._deleted

    def check_exists(self, position: Position) -> None:
        """Raise InvalidPosition unless there is an entry at that position."""
        self._check_confirmed(position)
        if not self._ledgers.is_valid(position):
            raise InvalidPosition(f"there is no entry at {position}")

    def nth_unacknowledged(self, count: int) -> Position:
        """Return the `count`-th entry that is not acknowledged; the last entry if there are fewer.

        Raises:
            InvalidArgument: the count is not positive.
        """
        if count <= 0:
            raise InvalidArgument(f"count: expected a positive number, got {count!r}")
        ledgers, after = self._ledgers, self.mark_delete_position
        for ledger_id in ledgers.ledger_ids:
            if ledger_id < after.ledger_id:
                continue
            first = after.entry_id if ledger_id == after.ledger_id else -1
            unacknowledged = (
                ledgers.entries_in(ledger_id) - 1 - first - self._deleted.count_in(ledger_id)
            )
            if count <= unacknowledged:
                entry_id = self._deleted.nth_absent(Position(ledger_id, first), count)
                return Position(ledger_id, entry_id)
            count -= max(unacknowledged, 0)
        return ledgers.lac

    # Acknowledging

    def mark_delete(self, position: Position, properties: Mapping[str, int] | None = None) -> None:
        """Acknowledge everything up to a position.

        Args:
            position: without a backlog also the position before the first entry of an empty ledger.
            properties: replace the old ones; None keeps them.

        Raises:
            InvalidPosition: it is beyond the last confirmed entry.
            AlreadyMarkDeleted: it is before the mark-delete position.
        """
        if not self._is_empty_ledger_ahead(position):
            self._check_confirmed(position)
        if position < self.mark_delete_position:
            raise AlreadyMarkDeleted(
                f"{position} is before the mark-delete position {self.mark_delete_position}"
            )
        if properties is not None and properties != self.properties:
            self.properties = dict(properties)
            self.version += 1
        if position > self.mark_delete_position:
            self.mark_delete_position = position
            self._settle()
            self.version += 1

    def delete(self, positions: Sequence[Position]) -> None:
        """Acknowledge single entries; acknowledged and removed ones are ignored.

        Raises:
            InvalidPosition: one is beyond the last confirmed entry; nothing has changed.
        """
        for position in positions:
            self._check_confirmed(position)
        fresh = False
        for position in positions:
            if self._is_open_entry(position):
                self._deleted.add(position)
                self._batches.remove(position)
                self.changes.add_entry(position)
                fresh = True
        if fresh:
            self._settle()
            self.version += 1

    def delete_batch_index(
        self, position: Position, indexes: Iterable[int], batch_size: int
    ) -> None:
        """Acknowledge a part of an entry, and with its last part the entry.

        Raises:
            InvalidArgument: an index is not within the batch.
            InvalidPosition: the entry is beyond the last confirmed one.
        """
        self.acknowledge([EntryPart(position, frozenset(indexes), batch_size)])

    def acknowledge(self, parts: Sequence[EntryPart], *, upto: Position | None = None) -> None:
        """Acknowledge entries and parts of entries in one step.

        Args:
            parts: the last part of an entry acknowledges the entry.
            upto: also everything up to this; ignored before the mark-delete position.

        Raises:
            InvalidArgument: an index is not within its batch; nothing was changed.
            InvalidPosition: one is beyond the last confirmed entry; nothing was changed.
        """
        for part in parts:
            part.check()
            self._check_confirmed(part.position)
        if upto is not None and upto > self.mark_delete_position:
            self.mark_delete(upto)
        self.delete([part.position for part in parts if self._is_last_of(part)])

    # Reading

    def next_unacknowledged(self, position: Position) -> Position | None:
        """Return the first entry at or after a position that is in no hole."""
        found = self._ledgers.first_readable(position)
        while found is not None and found in self._deleted:
            found = self._ledgers.first_readable(self._deleted.range_end(found).successor)
        return found

    def read_end_from(self, start: Position, count: int) -> Position:
        """Return the last position for a read of `count` entries from `start` on.

        The read crosses small holes, no large ones, and not the end of the ledger.
        """
        ledger_id, entry_id = start
        end = self._ledgers.entries_in(ledger_id)
        while True:
            hole = self._deleted.first_from(Position(ledger_id, entry_id))
            if hole is None or hole - entry_id >= count:
                return Position(ledger_id, min(entry_id + count, end) - 1)
            count -= hole - entry_id
            following = self._deleted.range_end(Position(ledger_id, hole)).entry_id + 1
            if following - hole > READ_GAP_MAX or following >= end:
                return Position(ledger_id, hole - 1)
            entry_id = following

    def without_acknowledged(self, entries: Iterable[Entry], since: Position) -> list[Entry]:
        """Drop the entries that are in holes, or that the mark-delete position has passed since.

        Args:
            entries: of a read.
            since: the mark-delete position when it began; a forced read may begin before it.
        """
        upto, deleted = self.mark_delete_position, self._deleted
        return [
            entry
            for entry in entries
            if entry.position not in deleted and not since < entry.position <= upto
        ]

    def note_read(self, start: Position, positions: Iterable[Position], upto: Position) -> None:
        """Note what a read found; see `CompactedPositions`. Only if it reads compacted.

        The mark-delete position moves over what compaction has removed before acknowledged entries.
        """
        assert isinstance(self._ledgers, CompactedPositions), "it reads the log alone"
        before = self.mark_delete_position
        self._ledgers.note_read(start, positions, upto)
        self._settle()
        self.version += self.mark_delete_position != before

    def read_upto(self, last: Position) -> None:
        """Move the read position past `last`."""
        following = self._ledgers.next_valid(last)
        self.read_position = max(self.read_position, following)

    # Revisions

    def revised(self) -> None:
        """Adapt everything else to both positions, which were set from outside."""
        self.mark_delete_position = self._existing_position(self.mark_delete_position)
        if self.mark_delete_position != self._settled:
            self.changes.require_whole_row()
            self.version += 1
        self._settle()

    def seek_target(self, position: Position) -> Position:
        """Return the read position for `position`: the same, or the next that exists."""
        ledgers = self._ledgers
        if position == EARLIEST:
            return ledgers.next_valid(ledgers.first_position)
        if position == LATEST or position > ledgers.lac:
            return ledgers.next_valid(ledgers.lac)
        return position if ledgers.is_valid(position) else ledgers.next_valid(position)

    def reset_target(self, position: Position, *, force: bool) -> tuple[Position, Position]:
        """Return the mark-delete and the read position of a reset.

        Args:
            position: the next entry to be read.
            force: keep it even if it does not exist. Entries between the last confirmed one and it
                stay unacknowledged.
        """
        ledgers = self._ledgers
        is_edge = position in {EARLIEST, LATEST}
        target = position if force and not is_edge else self.seek_target(position)
        if position == EARLIEST:
            return ledgers.first_position, target
        return min(ledgers.previous(target), ledgers.lac), target

    def rewind(self) -> None:
        """Move the read position back to the first unacknowledged entry."""
        self._forget_read()
        self.read_position = self._ledgers.next_valid(self.mark_delete_position)

    def seek(self, position: Position, *, force: bool) -> None:
        """Move the read position; before the first unacknowledged entry only by force."""
        target = self.seek_target(position)
        if not force:
            target = max(target, self._ledgers.next_valid(self.mark_delete_position))
        self._forget_read()
        self.read_position = target

    def replace_with(self, target: "CursorState") -> None:
        """Take over the positions and acknowledgements of another state."""
        self._deleted, self._batches = target._deleted, target._batches
        self.properties = target.properties
        self.mark_delete_position = target.mark_delete_position
        self._forget_read()
        self.read_position = target.read_position
        self.changes.require_whole_row()
        self.version += 1

    def reset_to(
        self,
        position: Position,
        *,
        force: bool = False,
        acknowledged: Collection[int] = (),
        batch_size: int = 0,
    ) -> None:
        """Make everything from a position on unacknowledged, all before it acknowledged.

        Args:
            position: the next entry to be read; see `reset_target`.
            force: keep it even if it does not exist.
            acknowledged: records of that entry that stay acknowledged, if the entry exists.
            batch_size: how many records it has.

        Raises:
            InvalidArgument: a record is not within the batch; nothing has changed.
        """
        part = EntryPart(position, acknowledged, batch_size)
        if acknowledged:
            part.check()
        self.reset(*self.reset_target(position, force=force))
        if acknowledged and position == self.read_position <= self._ledgers.lac:
            self.acknowledge([part])

    def reset(self, mark_delete_position: Position, read_position: Position) -> None:
        """Set both positions and drop all acknowledgements after them."""
        self._deleted = PositionRanges()
        self._batches = PartialBatches()
        self._settled = self.mark_delete_position = mark_delete_position
        self._forget_read()
        self.read_position = read_position
        self.changes.require_whole_row()
        self.version += 1

    def copy(self) -> "CursorState":
        """Return an independent state that is equal to this one."""
        copied = CursorState(
            self._listed,
            self.mark_delete_position,
            properties=self.properties,
            reads_compacted=self.reads_compacted,
        )
        copied.read_position = self.read_position
        copied._deleted = self._deleted.copy()
        copied._batches = self._batches.copy()
        return copied

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that restores the state."""
        before = {name: getattr(self, name) for name in self.__slots__}
        before["_deleted"], before["_batches"] = self._deleted.copy(), self._batches.copy()
        before["properties"] = self.properties.copy()

        def restore() -> None:
            for name, value in before.items():
                setattr(self, name, value)
            self.changes.require_whole_row()

        return restore

    def set_reads_compacted(self, is_wanted: bool) -> None:
        """Begin to read what compactions keep, or stop; reading begins again."""
        if is_wanted is not self.reads_compacted:
            listed = self._listed
            self._ledgers = CompactedPositions(listed) if is_wanted else listed
            self.version += 1
            self.mark_delete_position = self._existing_position(self.mark_delete_position)
            self.rewind()

    # Following the ledgers, becoming durable

    def ledgers_removed(self, last: Position) -> bool:
        """Acknowledge all up to `last`: the ledgers that end there are about to be removed.

        Returns:
            False if nothing is acknowledged, because a compacted ledger stands for the first of
            these entries; the others are missing when it was read.
        """
        if self.mark_delete_position < self.horizon:
            return False
        self.acknowledge_removed(last)
        return True

    def acknowledge_removed(self, last: Position) -> None:
        """Acknowledge all up to `last`: these entries are removed, or about to be."""
        if last > self.mark_delete_position:
            self.mark_delete_position = last
            self._settle()
            self.version += 1

    @property
    def stored_properties(self) -> dict[str, int]:
        """The properties of its rows."""
        return {**self.properties, READS_COMPACTED: 1} if self.reads_compacted else self.properties

    @property
    def part_count(self) -> int:
        """How many entries after the mark-delete position are acknowledged, wholly or in part."""
        return self._deleted.count + len(self._batches)

    def record(
        self, *, ranges_max: int, batches_max: int, generation: int = 0
    ) -> tuple[CursorRecord, bool]:
        """Return the durable form, and whether acknowledgements were left out of it.

        Above the limits the highest are left out: a restart redelivers their entries.
        """
        deleted = self._deleted.lowest(ranges_max)
        batches = self._batches.dump(batches_max)
        record = CursorRecord(
            generation=generation,
            mark_delete_position=self.mark_delete_position,
            properties=dict(self.stored_properties),
            deleted=tuple(deleted.dump()),
            batches=tuple(batches),
        )
        is_cut = deleted is not self._deleted or len(batches) < len(self._batches)
        return record, is_cut

    # Inside

    @property
    def _listed(self) -> LedgerListState:
        ledgers = self._ledgers
        return ledgers.listed if isinstance(ledgers, CompactedPositions) else ledgers

    def _forget_read(self) -> None:
        """The read position is set anew: what was read before it says nothing any more."""
        if isinstance(self._ledgers, CompactedPositions):
            self._ledgers.forget_read()

    def _settle(self) -> None:
        """Move the mark-delete position over the holes that it reaches, and adapt the rest."""
        deleted, ledgers = self._deleted, self._ledgers
        deleted.remove_upto(self.mark_delete_position)
        while deleted:
            following = ledgers.next_valid(self.mark_delete_position)
            if following not in deleted:
                break
            self.mark_delete_position = deleted.range_end(following)
            deleted.remove_upto(self.mark_delete_position)
        if isinstance(ledgers, CompactedPositions):
            self.mark_delete_position = ledgers.gap_end(self.mark_delete_position)
            ledgers.forget_upto(self.mark_delete_position)
        self._batches.remove_upto(self.mark_delete_position)
        # A read position that was forced back stays until an entry is acknowledged.
        has_moved, self._settled = (
            self._settled != self.mark_delete_position,
            (self.mark_delete_position),
        )
        if has_moved and self.read_position <= self.mark_delete_position:
            self.rewind()

    def _is_last_of(self, part: EntryPart) -> bool:
        """Acknowledge a part of an entry; return whether it was the last part."""
        position, indexes, batch_size = part
        if indexes is None:
            return True
        if not self._is_open_entry(position):
            return False
        known = self._batches.get(position)
        unacknowledged = BitMap(range(batch_size)) if known is None else known
        left = unacknowledged - BitMap(indexes)
        if left and len(left) < len(unacknowledged):
            self._batches.set(position, left)
            self.changes.add_batch(position, left)
            self.version += 1
        return not left

    def _is_open_entry(self, position: Position) -> bool:
        """Whether a position names a confirmed, unacknowledged entry."""
        return (
            position <= self._ledgers.lac
            and self._ledgers.is_valid(position)
            and not self.is_acknowledged(position)
        )

    def _is_empty_ledger_ahead(self, position: Position) -> bool:
        """Whether a position lies before an empty ledger, and there is no backlog."""
        return (
            position.entry_id == -1
            and position > self._ledgers.lac
            and self._ledgers.has_ledger(position.ledger_id)
            and not self.backlog
        )

    def _check_confirmed(self, position: Position) -> None:
        if position > self._ledgers.lac:
            raise InvalidPosition(
                f"{position} is beyond the last confirmed entry {self._ledgers.lac}"
            )

    def _existing_position(self, position: Position) -> Position:
        """Return the nearest mark-delete position in the ledgers that exist."""
        ledgers = self._ledgers
        if position > ledgers.lac:
            is_ahead = position.entry_id == -1 and ledgers.has_ledger(position.ledger_id)
            return position if is_ahead else ledgers.lac
        if ledgers.has_ledger(position.ledger_id) or position == ledgers.lac:
            return position
        following = ledgers.first_readable(position)
        if following is None:
            return ledgers.lac
        return Position(following.ledger_id, -1)


class CursorChanges:
    """What was acknowledged since the rows of a cursor were written.

    Only acknowledgements are collected. Any other change, such as a reset, or too many of them,
    require a whole row; until that is written nothing is collected, so a cursor that is never
    written collects nothing.

    Attributes:
        is_whole: whether the whole cursor must be written next.
    """

    __slots__ = ("_batches", "_deleted", "is_whole")

    def __init__(self) -> None:
        self.is_whole = True
        self._deleted: list[Position] = []
        self._batches: dict[Position, BitMap] = {}

    def __len__(self) -> int:
        return len(self._deleted) + len(self._batches)

    def restart(self) -> None:
        """Drop the changes, which are being written, and collect from now on."""
        self.is_whole = False
        self._deleted = []
        self._batches = {}

    def require_whole_row(self) -> None:
        """Require that the next row is a whole one."""
        self.restart()
        self.is_whole = True

    def add_entry(self, position: Position) -> None:
        """Note that an entry is acknowledged."""
        if not self.is_whole:
            self._deleted.append(position)
            if len(self._deleted) > CHANGES_MAX:
                self.require_whole_row()

    def add_batch(self, position: Position, left: BitMap) -> None:
        """Note the unacknowledged records of a batch; the bitmap must not change afterwards."""
        if not self.is_whole:
            self._batches[position] = left
            if len(self._batches) > CHANGES_MAX:
                self.require_whole_row()

    def record(
        self, mark_delete_position: Position, properties: Mapping[str, int], *, generation: int
    ) -> CursorRecord:
        """Return the changes in their durable form.

        Args:
            mark_delete_position: of the cursor; changes up to it are left out.
            properties: all of the cursor.
            generation: of the last whole row.
        """
        upto = mark_delete_position
        deleted = PositionRanges(each for each in self._deleted if each > upto)
        batches = sorted(
            (position, left.serialize())
            for position, left in self._batches.items()
            if position > upto and position not in deleted
        )
        return CursorRecord(
            generation=generation,
            mark_delete_position=upto,
            properties=dict(properties),
            deleted=tuple(deleted.dump()),
            batches=tuple(batches),
        )


class PartialBatches:
    """The entries of which only some records are acknowledged, and their unacknowledged records.

    A bitmap is replaced, never changed, so copies of the state share it.
    """

    __slots__ = ("_left", "_order")

    def __init__(self) -> None:
        self._left: dict[Position, BitMap] = {}
        self._order: list[Position] = []

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Position]:
        return iter(self._order)

    def get(self, position: Position) -> BitMap | None:
        """Return the unacknowledged records of a batch, read-only; None if it is not partial."""
        return self._left.get(position)

    @property
    def last(self) -> tuple[Position, ...]:
        """The newest batch, if there is any."""
        return tuple(self._order[-1:])

    def set(self, position: Position, left: BitMap) -> None:
        """Set the unacknowledged records of a batch."""
        if position not in self._left:
            insort(self._order, position)
        self._left[position] = left

    def remove(self, position: Position) -> None:
        """Forget a batch; ignored if it is not partial."""
        if self._left.pop(position, None) is not None:
            self._order.remove(position)

    def remove_upto(self, position: Position) -> None:
        """Forget everything up to a position, included."""
        if not self._order:
            return
        end = bisect_right(self._order, position)
        for each in self._order[:end]:
            del self._left[each]
        del self._order[:end]

    def copy(self) -> "PartialBatches":
        """Return an independent object that is equal to this one."""
        copied = PartialBatches()
        copied._left, copied._order = self._left.copy(), self._order.copy()
        return copied

    def dump(self, count_max: int) -> list[tuple[Position, bytes]]:
        """Return so many batches, the lowest, with their bitmaps in Roaring's portable format."""
        left = self._left
        return [(position, left[position].serialize()) for position in self._order[:count_max]]

    @classmethod
    def load(cls, dumped: Iterable[tuple[Position, bytes]]) -> "PartialBatches":
        """Return what `dump` gave; the bytes must be whole."""
        loaded = cls()
        loaded._left = {position: BitMap.deserialize(bitmap) for position, bitmap in dumped}
        loaded._order = sorted(loaded._left)
        return loaded
