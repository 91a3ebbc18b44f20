"""Consumer assignor plan: which member of a consumer group is to own which partition.

Rule: pure and repeatable; every partition of a topic that somebody wants goes to exactly one of
those who want it.
Must not know: epochs, what members own at the moment.

`uniform` gives everybody as equal a share as interests allow and moves as little as it can.
`range` gives neighbours to one member, and partitions of the same number of several topics to the
same member if all want the same topics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.coordinator.consumer_messages import TopicPartition

Assignment = dict[str, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Interest:
    """What one member wants, and what it was meant to own so far.

    Attributes:
        rank: place among the others for `range`; a static member keeps it when it comes back.
    """

    rank: str
    topic_ids: frozenset[UUID]
    before: frozenset[TopicPartition]


Assignor = Callable[[Mapping[str, Interest], Mapping[UUID, int]], Assignment]


def assign_range(interests: Mapping[str, Interest], topics: Mapping[UUID, int]) -> Assignment:
    """Give each member neighbours of every topic; the first members get one more.

    Args:
        interests: by member id.
        topics: number of partitions by topic id.
    """
    ranked = sorted(interests, key=lambda one: (interests[one].rank, one))
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in interests}
    for topic_id, count in topics.items():
        takers = [one for one in ranked if topic_id in interests[one].topic_ids]
        if not takers:
            continue
        share, more = divmod(count, len(takers))
        start = 0
        for number, member_id in enumerate(takers):
            end = start + share + (number < more)
            shares[member_id].update(TopicPartition(topic_id, one) for one in range(start, end))
            start = end
    return _frozen(shares)


def assign_uniform(interests: Mapping[str, Interest], topics: Mapping[UUID, int]) -> Assignment:
    """Give everybody as equal a share as interests allow, moving little.

    Args:
        interests: by member id.
        topics: number of partitions by topic id.
    """
    wanted = {interest.topic_ids for interest in interests.values()}
    shares = {
        member_id: {one for one in interest.before if _is_wanted(one, interest, topics)}
        for member_id, interest in interests.items()
    }
    taken = set().union(*shares.values()) if shares else set()
    left = [
        one
        for topic_id in sorted(set().union(*wanted) & topics.keys())
        for partition in range(topics[topic_id])
        if (one := TopicPartition(topic_id, partition)) not in taken
    ]
    if len(wanted) == 1:
        _fill_equally(shares, left)
    else:
        _fill_lowest(shares, left, interests)
        _level(shares, interests)
    return _frozen(shares)


def _is_wanted(one: TopicPartition, interest: Interest, topics: Mapping[UUID, int]) -> bool:
    return one.topic_id in interest.topic_ids and one.partition < topics.get(one.topic_id, 0)


def _fill_equally(shares: dict[str, set[TopicPartition]], left: list[TopicPartition]) -> None:
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


def _fill_lowest(
    shares: dict[str, set[TopicPartition]],
    left: list[TopicPartition],
    interests: Mapping[str, Interest],
) -> None:
    """Give each partition to the member with the least of those who want it; rare ones first."""
    takers = _takers(interests)
    for one in sorted(left, key=lambda each: (len(takers[each.topic_id]), each)):
        shares[_lowest(takers[one.topic_id], shares)].add(one)


def _level(shares: dict[str, set[TopicPartition]], interests: Mapping[str, Interest]) -> None:
    """Move single partitions to members with at least two less, until there is none such.

    Every move makes the shares more equal, so it ends.
    """
    takers = _takers(interests)
    topic_ids = sorted(takers)
    has_moved = True
    while has_moved:
        has_moved = False
        for topic_id in topic_ids:
            while _move_one(topic_id, takers[topic_id], shares):
                has_moved = True


def _move_one(topic_id: UUID, takers: list[str], shares: dict[str, set[TopicPartition]]) -> bool:
    owners = [
        member_id
        for member_id in takers
        if any(one.topic_id == topic_id for one in shares[member_id])
    ]
    if not owners:
        return False
    most = max(owners, key=lambda member_id: (len(shares[member_id]), member_id))
    least = _lowest(takers, shares)
    if len(shares[most]) - len(shares[least]) < 2:
        return False
    moved = max(one for one in shares[most] if one.topic_id == topic_id)
    shares[most].remove(moved)
    shares[least].add(moved)
    return True


def _lowest(takers: list[str], shares: Mapping[str, set[TopicPartition]]) -> str:
    return min(takers, key=lambda member_id: (len(shares[member_id]), member_id))


def _takers(interests: Mapping[str, Interest]) -> dict[UUID, list[str]]:
    takers: dict[UUID, list[str]] = {}
    for member_id in sorted(interests):
        for topic_id in interests[member_id].topic_ids:
            takers.setdefault(topic_id, []).append(member_id)
    return takers


def _frozen(shares: Mapping[str, set[TopicPartition]]) -> Assignment:
    return {member_id: frozenset(share) for member_id, share in shares.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that clients and settings use."""
