"""Consumer assignor plan: which member of a consumer group is to own which partition.

Rule: pure and repeatable; every partition of a topic that somebody wants goes to exactly one of
those who want it.
Must not know: epochs, what members own at the moment.

`uniform` gives everybody as equal a share as interests allow and moves as little as it can.
`range` gives neighbours to one member, and partitions of the same number of several topics to the
same member if all want the same topics.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final
from uuid import UUID

from kledger.gateway.coordinator.balance_plan import balance_counts
from kledger.gateway.coordinator.consumer_messages import TopicIdPartition

Assignment = dict[str, frozenset[TopicIdPartition]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member wants, and what it was meant to own so far.

    Attributes:
        rank: place among the others for `range`; a static member keeps it when it comes back.
    """

    rank: str
    topic_ids: frozenset[UUID]
    previous: frozenset[TopicIdPartition]


Assignor = Callable[[Mapping[str, MemberSubscription], Mapping[UUID, int]], Assignment]


def assign_range(
    subscriptions: Mapping[str, MemberSubscription], topics: Mapping[UUID, int]
) -> Assignment:
    """Give each member neighbours of every topic; the first members get one more.

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
    """Give everybody as equal a share as interests allow, moving little.

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
    """Return what members had and still want, each partition once.

    The leader of a classic group may have given one to several.
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
    """Bring all to the same number; who had more before keeps the odd ones.

    Everybody gets the quota, and as many members as there are partitions over get one more.
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
    """Work out how many of each topic everybody gets, then let all keep what they can."""
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
    shares = [{member: len(some) for member, some in each.items()} for each in held]
    balance_counts(subscribers, list(counts.values()), shares)
    dealt: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    for (topic_id, count), had, gets in zip(counts.items(), held, shares, strict=True):
        for member, partition in _distributed(count, had, gets):
            dealt[members[member]].add(TopicIdPartition(topic_id, partition))
    return dealt


def _distributed(
    count: int, had: Mapping[int, list[int]], gets: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Say who gets which partitions of a topic: those that he had, and then of the others."""
    kept = {member: sorted(had.get(member, ()))[:share] for member, share in gets.items()}
    left = iter(sorted(set(range(count)).difference(*kept.values())))
    for member in sorted(gets):
        more = islice(left, gets[member] - len(kept[member]))
        for partition in chain(kept[member], more):
            yield member, partition


def _frozen(shares: Mapping[str, set[TopicIdPartition]]) -> Assignment:
    return {member_id: frozenset(share) for member_id, share in shares.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that clients and settings use."""
