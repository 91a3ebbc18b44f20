"""Compaction model: the compacted ledger of one managed ledger, and which others may replace it.

Rule: readers see a state as a whole. A completion that was reported stays; one that failed is never
seen; one without a report may be seen until another handle has found something else.
Must not know: how a compacted ledger is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kledger.ledger import CompactedEntry, CompactedLedger, Position
from tests.simulation.invariants import InvariantBroken, check


@dataclass(frozen=True, slots=True)
class CompactedState:
    """A compacted ledger: its horizon, and all its entries with their original positions."""

    ledger_id: int
    horizon: Position
    entries: tuple[tuple[Position, bytes], ...]

    def check_record(self, found: CompactedLedger) -> None:
        """Check that a stored record is that of this state."""
        expected = self.ledger_id, self.horizon, len(self.entries)
        if expected != (found.ledger_id, found.horizon, found.entries):
            raise InvariantBroken(f"{self}: its record is {found}")

    def check_entries(self, first: int, found: Sequence[CompactedEntry]) -> None:
        """Check entries that were read from number `first` on."""
        read = tuple((each.position, bytes(each.data)) for each in found)
        if read != self.entries[first : first + len(read)]:
            raise InvariantBroken(f"{self}: from {first} on has {read}, expected {self.entries}")

    def __str__(self) -> str:
        return f"compacted ledger {self.ledger_id}"


class CompactionModel:
    """The compacted state of one managed ledger.

    Attributes:
        has_cursor: whether a handle has reported that the cursor of compactions exists.
    """

    def __init__(self) -> None:
        self.has_cursor = False
        self._states: list[CompactedState | None] = [None]
        """The present one, then those that may follow, in the order of submission."""
        self._past_ids: set[int] = set()

    @property
    def present(self) -> CompactedState | None:
        """The state that was seen last."""
        return self._states[0]

    def has_seen(self, state: CompactedState) -> bool:
        """Return whether a handle has shown a state."""
        return state.ledger_id in self._past_ids

    def or_none(self) -> "CompactionModel":
        """Return the model of a managed ledger that is this one or a new one of its name."""
        other = CompactionModel()
        other._states += [each for each in self._states if each is not None]
        return other

    def begin_completion(self, state: CompactedState) -> None:
        """Record that a state may become visible."""
        self._states.append(state)

    def completed(self, state: CompactedState) -> None:
        """Record that a completion was reported."""
        if state.ledger_id not in self._past_ids:
            raise InvariantBroken(f"{state} is complete, but was never seen")

    def refused(self, state: CompactedState) -> None:
        """Record that a completion failed, and nothing was stored."""
        check(state.ledger_id not in self._past_ids, f"{state} was refused, and seen")
        if state in self._states:
            self._states.remove(state)

    def see(self, found: CompactedLedger | None) -> None:
        """Check what a handle shows; states before it are over."""
        found_id = None if found is None else found.ledger_id
        ids = [None if each is None else each.ledger_id for each in self._states]
        if found_id not in ids:
            raise InvariantBroken(f"{found} is compacted, expected one of {ids}")
        del self._states[: ids.index(found_id)]
        state = self._states[0]
        if state is not None and found is not None:
            state.check_record(found)
            self._past_ids.add(state.ledger_id)

    def settle(self) -> None:
        """Record that what was not seen never will be: another handle has found the present one."""
        del self._states[1:]
