"""Reads: what a cursorless read may return while the log changes.

Rule: between the call and its result the log grows at one end and is trimmed at the other. Entries
of the range that existed all the time must be in the result, in order and byte for byte; entries
that existed at neither moment must not.
Must not know: how entries are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kledger.ledger import Entry, Position
from tests.simulation.invariants import InvariantBroken
from tests.simulation.log_model import HandleModel
from tests.simulation.store_model import StoreModel


@dataclass(frozen=True, slots=True)
class ReadModel:
    """One read, and the log when it was called."""

    model: StoreModel
    handle: HandleModel
    start: Position
    count: int
    bytes_max: int | None
    upto: Position
    lac: Position
    gone_upto: int

    @classmethod
    def begin(
        cls,
        model: StoreModel,
        handle: HandleModel,
        start: Position,
        count: int,
        *,
        bytes_max: int | None,
        upto: Position,
    ) -> "ReadModel":
        """Record the present state."""
        lac, gone_upto = handle.ml.last_confirmed_entry, handle.log.gone_upto
        return cls(model, handle, start, count, bytes_max, upto, lac, gone_upto)

    def check(self, entries: Sequence[Entry], *, may_be_partial: bool) -> None:
        """Compare a result; `may_be_partial`: something failed after its first entry."""
        log = self.handle.log
        self._check_limits(entries)
        for entry in entries:
            self._check_position(entry.position)
            self.model.recognise(log, entry.position, entry.data)
        found = [entry.position for entry in entries]
        if found != sorted(set(found)):
            raise InvariantBroken(f"{self}: out of order: {_text(found)}")
        expected = log.between(self.start, min(self.upto, self.lac))
        is_complete = len(found) < self.count and self.bytes_max is None and not may_be_partial
        if not is_complete:
            expected = [each for each in expected if found and each <= found[-1]]
        missing = set(expected) - set(found)
        if missing:
            raise InvariantBroken(f"{self}: missing {_text(sorted(missing))} in {_text(found)}")
        if self.bytes_max is not None and not found and not may_be_partial:
            self._check_nothing_there()

    def _check_limits(self, entries: Sequence[Entry]) -> None:
        if len(entries) > self.count:
            raise InvariantBroken(f"{self}: {len(entries)} entries")
        size = sum(entry.size for entry in entries)
        if self.bytes_max is not None and len(entries) > 1 and size > self.bytes_max:
            raise InvariantBroken(f"{self}: {size} bytes")

    def _check_position(self, position: Position) -> None:
        if not self.start <= position <= self.upto:
            raise InvariantBroken(f"{self}: {position} was not requested")
        if position > self.handle.ml.last_confirmed_entry:
            raise InvariantBroken(f"{self}: {position} is after the last confirmed entry")
        if position.ledger_id <= self.gone_upto:
            raise InvariantBroken(f"{self}: {position} had been removed before")

    def _check_nothing_there(self) -> None:
        """Check that a limit of bytes never excludes the first entry."""
        if expected := self.handle.log.between(self.start, min(self.upto, self.lac)):
            raise InvariantBroken(f"{self}: nothing, although {expected[0]} exists")

    def __str__(self) -> str:
        limits = f"count {self.count}, bytes {self.bytes_max}, upto {self.upto}"
        return f"{self.handle} read from {self.start}, {limits}"


def _text(positions: Sequence[Position]) -> str:
    return " ".join(map(str, positions[:20])) or "nothing"
