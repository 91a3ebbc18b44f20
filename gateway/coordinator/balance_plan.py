"""Consumer level plan: how many partitions of each topic members get that want different topics.

Rule: pure and repeatable. Topics and members are numbers here, and of two that are alike the member
with the lower number gets more easily and gives less easily. At the end nobody could give a
partition to somebody who wants its topic and has two less.
Must not know: which partitions they are.

A topic costs n log n with n its takers and the partitions that it gives out or moves. Topics are
looked at again only when somebody who wants them has got or given something since.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

Counts = dict[int, int]
"""How many partitions of one topic members have; who has none is missing."""


def balance_counts(
    subscribers: Sequence[Sequence[int]], totals: Sequence[int], counts: list[Counts]
) -> None:
    """Give out what nobody has, then move from those with much to those with little.

    Args:
        subscribers: by topic, who wants it, ascending.
        totals: by topic, how many partitions it has.
        counts: by topic, what takers have; changed in place.
    """
    sizes = [0] * (1 + max((one for some in subscribers for one in some), default=-1))
    for held in counts:
        for member, count in held.items():
            sizes[member] += count
    for topic in sorted(range(len(subscribers)), key=lambda one: (len(subscribers[one]), one)):
        left = totals[topic] - sum(counts[topic].values())
        _assign_unowned(left, subscribers[topic], counts[topic], sizes)
    _rebalance(subscribers, counts, sizes)


def _assign_unowned(left: int, subscribers: Sequence[int], held: Counts, sizes: list[int]) -> None:
    """Give each partition to the taker that has the least."""
    if not left or not subscribers:
        return
    least = [(sizes[member], member) for member in subscribers]
    heapify(least)
    for _ in range(left):
        size, member = least[0]
        heapreplace(least, (size + 1, member))
        sizes[member] += 1
        held[member] = held.get(member, 0) + 1


def _rebalance(
    subscribers: Sequence[Sequence[int]], counts: Sequence[Counts], sizes: list[int]
) -> None:
    """Move partitions until no topic has one to move.

    Every move makes the shares more equal, so it ends.
    """
    topics_of: list[list[int]] = [[] for _ in sizes]
    for topic, members in enumerate(subscribers):
        for member in members:
            topics_of[member].append(topic)
    due = set(range(len(subscribers)))
    while due:
        now, due = sorted(due), set()
        for topic in now:
            for member in _rebalance_topic(subscribers[topic], counts[topic], sizes):
                if len(due) < len(subscribers):
                    due.update(topics_of[member])
            due.discard(topic)


def _rebalance_topic(subscribers: Sequence[int], held: Counts, sizes: list[int]) -> Iterable[int]:
    """Move partitions of one topic from the most to the least; return who gave or got.

    Both heaps keep what is not true any more; it goes when it comes to the top.
    """
    size_of = sizes.__getitem__
    if not held or max(map(size_of, held)) - min(map(size_of, subscribers)) < 2:
        return ()
    most = [(-sizes[member], -member) for member in held]
    least = [(sizes[member], member) for member in subscribers]
    heapify(most)
    heapify(least)
    changed: set[int] = set()
    while True:
        while -most[0][0] != sizes[-most[0][1]] or -most[0][1] not in held:
            heappop(most)
        while least[0][0] != sizes[least[0][1]]:
            heappop(least)
        giver, subscriber = -most[0][1], least[0][1]
        if sizes[giver] - sizes[subscriber] < 2:
            return changed
        changed.update((giver, subscriber))
        for member, more in ((giver, -1), (subscriber, 1)):
            sizes[member] += more
            held[member] = held.get(member, 0) + more
            if not held[member]:
                del held[member]
            heappush(most, (-sizes[member], -member))
            heappush(least, (sizes[member], member))
