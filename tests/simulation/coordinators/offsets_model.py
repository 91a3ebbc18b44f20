"""Offsets model: what a client may see of the offsets that it has sent.

Rule: a request that was acknowledged holds until a later one replaces it; one that was refused has
no effect; one that was not answered may have happened. Transactions hold in all groups, or in none.
Must not know: coordinators, shards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import product

from tests.simulation.invariants import InvariantBroken, check


class Outcome(Enum):
    """What is known of a request."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


@dataclass(slots=True, eq=False)
class Write:
    """A request that sets a value; None deletes it."""

    value: int | None
    outcome: Outcome = Outcome.UNKNOWN


class ValueModel:
    """The value of one key; the store completes writes in the order in which they are sent."""

    def __init__(self) -> None:
        self._writes = [Write(None, Outcome.ACKNOWLEDGED)]

    def send(self, value: int | None) -> Write:
        """Note that a write is sent, and return it for its outcome."""
        write = Write(value)
        self._writes.append(write)
        return write

    def choices(self) -> set[int | None]:
        """Return the values that may hold."""
        choices: set[int | None] = set()
        for write in reversed(self._writes):
            if write.outcome is not Outcome.REFUSED:
                choices.add(write.value)
            if write.outcome is Outcome.ACKNOWLEDGED:
                break
        return choices

    def settle(self, value: int | None) -> None:
        """Note the value that holds when nothing is under way."""
        self._writes = [Write(value, Outcome.ACKNOWLEDGED)]


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction, with the offsets that it would commit, by group.

    Attributes:
        may_commit: whether its commit was requested.
        has_ended: whether its end was acknowledged.
    """

    values: dict[str, int] = field(default_factory=dict)
    may_commit: bool = False
    has_ended: bool = False


class TransactionsModel:
    """The transactions of one transactional id, which come one after the other."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._attempts: list[Attempt] = []
        self._before: dict[str, int] = {}

    def begin(self) -> Attempt:
        """Note that a transaction begins."""
        attempt = Attempt()
        self._attempts.append(attempt)
        return attempt

    def settle(self, seen: Mapping[str, int]) -> None:
        """Check the offsets of all groups when no transaction is open."""
        choices = [
            (True,) if each.has_ended else (False, True)
            for each in (attempt for attempt in self._attempts if attempt.may_commit)
        ]
        committed = [attempt for attempt in self._attempts if attempt.may_commit]
        for chosen in product(*choices):
            expected = dict(self._before)
            for attempt, holds in zip(committed, chosen, strict=True):
                expected.update(attempt.values if holds else {})
            if expected == seen:
                break
        else:
            sure = [each.values for each in committed if each.has_ended]
            unsure = [each.values for each in committed if not each.has_ended]
            raise InvariantBroken(
                f"transactions of {self.transactional_id}: seen {dict(seen)}, expected"
                f" {self._before} with {sure}, and perhaps {unsure}"
            )
        self._attempts.clear()
        self._before = dict(seen)


class MarkersModel:
    """The outcomes that partitions have taken, by producer id and epoch."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[int, int], bool] = {}

    def take(self, producer: tuple[int, int], is_commit: bool) -> None:
        """Note a marker: a transaction has one outcome, however often it is written."""
        known = self._outcomes.setdefault(producer, is_commit)
        check(known is is_commit, f"producer {producer} has got both outcomes")
