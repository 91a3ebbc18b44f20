"""Consumer pick: which consumer is the next one, for each type that picks.

Rule: a pick depends on what it is given and on nothing else; the same consumers give the same pick,
in whatever order they joined, except where turns are taken.
Must not know: what is handed out. Key_shared picks by slot: `sticky_key_selector_state`.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """A consumer, as far as picking one is concerned."""

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def priority_level(self) -> int: ...


Chosen = TypeVar("Chosen", bound=Candidate)


def pick_exclusive(candidates: Iterable[Chosen]) -> Chosen | None:
    """Return the only one."""
    found = list(candidates)
    assert len(found) <= 1, f"{len(found)} exclusive consumers"
    return found[0] if found else None


def pick_failover(candidates: Iterable[Chosen], partition_index: int) -> Chosen | None:
    """Return who is active.

    Those of the highest priority, in the order of their names; the partitions of a topic go round
    them, so that each is active for some. Two of one name: who joined first.

    Source: Pulsar's AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer.
    """
    ordered = sorted(candidates, key=lambda each: (each.priority_level, each.name, each.number))
    if not ordered:
        return None
    first = [each for each in ordered if each.priority_level == ordered[0].priority_level]
    return first[partition_index % len(first)]


def pick_shared(with_room: Sequence[Chosen], last: int) -> Chosen | None:
    """Return whose turn it is among those with room, after the one that had the last turn.

    Levels of lower priority have a turn only when nobody above them has room.

    Args:
        with_room: consumers that may get something, in the order of their numbers.
        last: the number of the last pick; -1 when there was none.
    """
    if not with_room:
        return None
    level = min(each.priority_level for each in with_room)
    first = None
    for each in with_room:
        if each.priority_level == level:
            if each.number > last:
                return each
            first = first or each
    return first
