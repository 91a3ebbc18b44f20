"""Consumer pick: the consumer that gets the next records, for the types that pick one.

Rule: a pick depends on its arguments only. Exclusive and failover pick the same consumer in
whatever order consumers joined; shared picks in rotation.
Must not know: records. Key_shared picks by key hash: `sticky_key_selector_state`.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """What a pick needs of a consumer."""

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def priority_level(self) -> int: ...


Chosen = TypeVar("Chosen", bound=Candidate)


def pick_exclusive(candidates: Iterable[Chosen]) -> Chosen | None:
    """Return the only consumer."""
    found = list(candidates)
    assert len(found) <= 1, f"{len(found)} exclusive consumers"
    return found[0] if found else None


def pick_failover(candidates: Iterable[Chosen], partition_index: int) -> Chosen | None:
    """Return the active consumer.

    The consumers of the highest priority are ordered by name, and those of one name in the order in
    which they joined; the index of the partition picks one of them, so that the partitions of a
    topic are spread over them.

    Source: Pulsar's AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer.
    """
    ordered = sorted(candidates, key=lambda each: (each.priority_level, each.name, each.number))
    if not ordered:
        return None
    first = [each for each in ordered if each.priority_level == ordered[0].priority_level]
    return first[partition_index % len(first)]


def pick_shared(with_room: Sequence[Chosen], last: int) -> Chosen | None:
    """Return the consumer after the last one, in rotation among those with room.

    A consumer of a lower priority is picked only when none of a higher one has room.

    Args:
        with_room: consumers that may get records, in the order of their numbers.
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
