"""Acknowledged set: what one subscriber has acknowledged, as plain sets.

Rule: everything before a position is acknowledged, and after it single entries; of a partly
acknowledged batch, the other records are not. Nothing is merged.
Must not know: when it becomes durable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kledger.ledger import Cursor, Position


@dataclass(frozen=True, slots=True)
class AcknowledgedSet:
    """Attributes:
    before: everything before it is acknowledged.
    alone: entries that were acknowledged individually.
    parts: the unacknowledged records of each partly acknowledged batch.
    """

    before: Position
    alone: frozenset[Position] = frozenset()
    parts: Mapping[Position, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def read_off(cls, cursor: Cursor, positions: Iterable[Position]) -> "AcknowledgedSet":
        """Return what a cursor reports for these positions."""
        before = cursor.mark_delete_position.successor
        behind = [each for each in positions if each >= before]
        alone = frozenset(each for each in behind if cursor.state.is_acknowledged(each))
        parts = {
            each: unacknowledged
            for each in behind
            if (unacknowledged := cursor.batch_indexes(each)) is not None
        }
        return cls(before, alone, parts)

    def is_unacknowledged(self, position: Position) -> bool:
        """Return whether an entry, or a part of it, is not acknowledged."""
        return position >= self.before and position not in self.alone

    def upto(self, position: Position) -> "AcknowledgedSet":
        """Return the set after everything up to a position was acknowledged."""
        return replace(self, before=max(self.before, position.successor))

    def without(self, positions: Iterable[Position]) -> "AcknowledgedSet":
        """Return the set after entries were acknowledged individually."""
        return replace(self, alone=self.alone | frozenset(positions))

    def without_records(
        self, position: Position, indexes: Iterable[int], batch_size: int
    ) -> "AcknowledgedSet":
        """Return the set after a part of an entry was acknowledged."""
        if not self.is_unacknowledged(position):
            return self
        whole = frozenset(range(batch_size))
        unacknowledged = self.parts.get(position, whole) - frozenset(indexes)
        if not unacknowledged:
            return self.without([position])
        return (
            self
            if unacknowledged == whole
            else replace(self, parts={**self.parts, position: unacknowledged})
        )

    def unacknowledged_of(self, positions: Iterable[Position]) -> list[Position]:
        """Return those that are not acknowledged."""
        return [each for each in positions if self.is_unacknowledged(each)]

    def records_of(self, position: Position) -> frozenset[int] | None:
        """Return the unacknowledged records of a batch; None if it is not partly acknowledged."""
        return self.parts.get(position) if self.is_unacknowledged(position) else None

    def difference(self, cursor: Cursor, positions: Iterable[Position]) -> str | None:
        """Return the first difference from a cursor's state, None if there is none."""
        for each in positions:
            is_unacknowledged = not cursor.state.is_acknowledged(each)
            if is_unacknowledged != self.is_unacknowledged(each):
                return f"{each} {'is' if is_unacknowledged else 'is not'} unacknowledged"
            if (records := cursor.batch_indexes(each)) != self.records_of(each):
                return f"of {each}, {records} is unacknowledged, not {self.records_of(each)}"
        return None

    def lowest(self, ranges_max: int, order: Sequence[Position]) -> "AcknowledgedSet":
        """Return the least that a record limited to that many ranges, and batches, contains.

        Entries since removed from the log may have existed when it was written, and count.
        """
        kept: list[Position] = []
        ranges, last, is_behind = 0, None, False
        for each in order:
            if self.is_unacknowledged(each):
                is_behind = True
                continue
            if is_behind and (last is None or each != last.successor):
                ranges += 1
            if ranges > ranges_max:
                break
            kept.append(each)
            last = each
        batches = sorted(each for each in self.parts if self.is_unacknowledged(each))[:ranges_max]
        before = order[0] if order else self.before
        return AcknowledgedSet(
            before, frozenset(kept), {each: self.parts[each] for each in batches}
        )

    def lies_between(
        self, least: "AcknowledgedSet", most: "AcknowledgedSet", positions: Iterable[Position]
    ) -> bool:
        """Return whether this contains one set and is contained in another."""
        return all(
            _unacknowledged_part(most, each)
            <= _unacknowledged_part(self, each)
            <= _unacknowledged_part(least, each)
            for each in positions
        )


def _unacknowledged_part(acknowledged: AcknowledgedSet, position: Position) -> frozenset[int]:
    """Return the unacknowledged records of an entry; no batch has more records than this range."""
    if not acknowledged.is_unacknowledged(position):
        return frozenset()
    return acknowledged.parts.get(position, frozenset(range(64)))
