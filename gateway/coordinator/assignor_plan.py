"""Assignor plan: which member of a consumer group is to own which partition.

Rule: pure and repeatable; every partition of a subscribed topic goes to exactly one of the members
that subscribe to it.
Must not know: epochs, the partitions that members own at the moment.

`uniform` gives all members shares as equal as their subscriptions allow and moves few partitions.
`range` gives a member neighbouring partitions of a topic, and the same partition numbers of several
topics if all members subscribe to the same topics.

Members with different subscriptions are balanced by counts first: topics and members are numbers
then, and of two equal members the one with the lower number receives first and gives last. At the
end no member can give a partition to a subscriber of its topic that has two fewer. A topic costs
n log n, with n its subscribers and the partitions that are assigned or moved; topics are visited
again only when the count of one of their subscribers has changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, islice
from typing import Final
from uuid import UUID

from kledger.gateway.coordinator.consumer_messages import Partitions, TopicIdPartition

Assignment = dict[str, Partitions]
"""The partitions of each member, by member id."""

Counts = dict[int, int]
"""How many partitions of one topic each member has; members without any are missing."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member subscribes to, and its target so far.

    Attributes:
        rank: its order among the others for `range`; a static member keeps it when it rejoins.
    """

    rank: str
    topic_ids: frozenset[UUID]
    previous: Partitions


Assignor = Callable[[Mapping[str, MemberSubscription], Mapping[UUID, int]], Assignment]


def assign_range(
    subscriptions: Mapping[str, MemberSubscription], topics: Mapping[UUID, int]
) -> Assignment:
    """Give each member neighbouring partitions of every topic; the first members get one more.

    Args:
        subscriptions: by member id.
        topics: number of partitions by topic id.
    """
    ranked = sorted(subscriptions, key=lambda one: (subscriptions[one].rank, one))
    shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscriptions}
    for topic_id, count in topics.items():
        subscribers = [one for one in ranked if topic_id in subscriptions[one].topic_ids]
        if not subscribers:
            continue
        share, more = divmod(count, len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + share + (number < more)
            shares[member_id].update(TopicIdPartition(topic_id, one) for one in range(start, end))
            start = end
    return _frozen(shares)


def assign_uniform(
    subscriptions: Mapping[str, MemberSubscription], topics: Mapping[UUID, int]
) -> Assignment:
    """Give all members shares as equal as subscriptions allow, moving few partitions.

    Args:
        subscriptions: by member id.
        topics: number of partitions by topic id.
    """
    wanted = {subscription.topic_ids for subscription in subscriptions.values()}
    counts = {each: topics[each] for each in sorted(set().union(*wanted) & topics.keys())}
    kept = _retained(subscriptions, counts)
    if len(wanted) == 1:
        every = {TopicIdPartition(one, at) for one, count in counts.items() for at in range(count)}
        _fill_equally(kept, list(every.difference(*kept.values())))
        return _frozen(kept)
    return _frozen(_balanced(kept, subscriptions, counts))


def _retained(
    subscriptions: Mapping[str, MemberSubscription], counts: Mapping[UUID, int]
) -> dict[str, set[TopicIdPartition]]:
    """Return the previous partitions that members still subscribe to, each partition once.

    The leader of a classic group may have assigned a partition to several members.
    """
    taken: set[TopicIdPartition] = set()
    kept = {}
    for member_id in sorted(subscriptions):
        subscription = subscriptions[member_id]
        kept[member_id] = {
            one
            for one in subscription.previous - taken
            if one.topic_id in subscription.topic_ids
            and one.partition < counts.get(one.topic_id, 0)
        }
        taken |= kept[member_id]
    return kept


def _fill_equally(shares: dict[str, set[TopicIdPartition]], left: list[TopicIdPartition]) -> None:
    """Bring all members to the same number; those that had more keep the odd partitions.

    Each member gets the quota, and as many members as there are odd partitions get one more.
    """
    total = len(left) + sum(map(len, shares.values()))
    quota, odd = divmod(total, len(shares))
    for member_id in sorted(shares):
        share = shares[member_id]
        keeps_odd = len(share) > quota and odd > 0
        odd -= keeps_odd
        for one in sorted(share)[quota + keeps_odd :]:
            share.remove(one)
            left.append(one)
    left.sort(reverse=True)
    for member_id in sorted(shares, key=lambda each: (len(shares[each]), each)):
        share = shares[member_id]
        room = quota - len(share)
        if room >= 0 and odd > 0:
            room, odd = room + 1, odd - 1
        for _ in range(room):
            share.add(left.pop())


def _balanced(
    kept: Mapping[str, set[TopicIdPartition]],
    subscriptions: Mapping[str, MemberSubscription],
    counts: Mapping[UUID, int],
) -> dict[str, set[TopicIdPartition]]:
    """Balance the counts of each topic, then let members keep as many of theirs as they can."""
    members = sorted(subscriptions)
    number_of = {topic_id: number for number, topic_id in enumerate(counts)}
    subscribers: list[list[int]] = [[] for _ in counts]
    held: list[dict[int, list[int]]] = [{} for _ in counts]
    for member, member_id in enumerate(members):
        for topic_id in subscriptions[member_id].topic_ids:
            if (number := number_of.get(topic_id)) is not None:
                subscribers[number].append(member)
        for one in kept[member_id]:
            held[number_of[one.topic_id]].setdefault(member, []).append(one.partition)
    shares = [{member: len(partitions) for member, partitions in each.items()} for each in held]
    balance_counts(subscribers, list(counts.values()), shares)
    shares_by_id: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    for (topic_id, count), had, gets in zip(counts.items(), held, shares, strict=True):
        for member, partition in _distributed(count, had, gets):
            shares_by_id[members[member]].add(TopicIdPartition(topic_id, partition))
    return shares_by_id


def _distributed(
    count: int, had: Mapping[int, list[int]], gets: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Return (member, partition) of a topic: first what members had, then the others."""
    kept = {member: sorted(had.get(member, ()))[:share] for member, share in gets.items()}
    left = iter(sorted(set(range(count)).difference(*kept.values())))
    for member in sorted(gets):
        more = islice(left, gets[member] - len(kept[member]))
        for partition in chain(kept[member], more):
            yield member, partition


def _frozen(shares: Mapping[str, set[TopicIdPartition]]) -> Assignment:
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def balance_counts(
    subscribers: Sequence[Sequence[int]], totals: Sequence[int], counts: list[Counts]
) -> None:
    """Assign the unowned partitions, then move some from members with many to those with few.

    Args:
        subscribers: by topic, the members that subscribe to it, ascending.
        totals: by topic, how many partitions it has.
        counts: by topic, how many partitions its subscribers have; changed in place.
    """
    sizes = [0] * (1 + max((member for members in subscribers for member in members), default=-1))
    for held in counts:
        for member, count in held.items():
            sizes[member] += count
    for topic in sorted(range(len(subscribers)), key=lambda one: (len(subscribers[one]), one)):
        left = totals[topic] - sum(counts[topic].values())
        _assign_unowned(left, subscribers[topic], counts[topic], sizes)
    _rebalance(subscribers, counts, sizes)


def _assign_unowned(left: int, subscribers: Sequence[int], held: Counts, sizes: list[int]) -> None:
    """Assign each partition to the subscriber that has the fewest."""
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

    Every move makes the counts more equal, so the loop ends.
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
    """Move partitions of one topic from most to fewest; return the members whose count changed.

    Both heaps keep outdated entries, which are dropped when they reach the top.
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


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that clients and settings use."""
