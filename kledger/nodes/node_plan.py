"""Node plan: which nodes a server claims, and which one it hands over.

Rule: pure. All servers compute the same plan from the same state, so none of them has to be a
leader. Nodes are divided as evenly as possible; a node moves only if that makes the division more
even, or if its server is draining. One server hands over a node at a time, and only while every
other node has an owner; a draining server does not wait for others.
Must not know: databases, sessions, what liveness is.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What one server does next.

    Attributes:
        claims: nodes without an owner that it is to own, in the order of their ids.
        hand_over: one of its nodes, which another server will own; None: none.
    """

    claims: tuple[int, ...] = ()
    hand_over: int | None = None


def plan_nodes(
    server_id: int, owners: Mapping[int, int | None], takers: Collection[int]
) -> NodePlan:
    """Return what a server does.

    Args:
        server_id: which server.
        owners: the server that owns each node; None: none does.
        takers: all servers that live and are not draining; the server itself is draining if it is
            not among them.
    """
    if not takers:
        return NodePlan()  # the last server keeps its nodes until it ends
    owned = Counter(owner for owner in owners.values() if owner is not None)
    room = _room(len(owners), owned, takers)
    unowned = sorted(node for node, owner in owners.items() if owner is None)
    mine = sorted(node for node, owner in owners.items() if owner == server_id)
    if server_id not in takers:
        return NodePlan(hand_over=mine[0] if mine else None)
    if unowned:
        return NodePlan(claims=_share(server_id, unowned, room))
    most = min(room, key=lambda each: (room[each], each))
    if most == server_id and room[most] < 0:
        return NodePlan(hand_over=mine[-1])
    return NodePlan()


def _room(count: int, owned: Mapping[int, int], takers: Collection[int]) -> dict[int, int]:
    """Return how many nodes more each server should own; below 0: how many fewer.

    The sum is the number of nodes that none of these servers owns. Those that own the most keep
    what does not divide evenly.
    """
    share, rest = divmod(count, len(takers))
    by_count = sorted(takers, key=lambda each: (-owned.get(each, 0), each))
    return {
        each: share + (place < rest) - owned.get(each, 0) for place, each in enumerate(by_count)
    }


def _share(server_id: int, unowned: Sequence[int], room: Mapping[int, int]) -> tuple[int, ...]:
    """Return those nodes without an owner that a server is to own."""
    left, found = dict(room), []
    for node in unowned:
        taker = max(left, key=lambda each: (left[each], -each))
        left[taker] -= 1
        if taker == server_id:
            found.append(node)
    return tuple(found)
