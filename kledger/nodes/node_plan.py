"""Node plan: which nodes a server claims, and which one it hands over.

Rule: pure. All servers compute the same plan from the same state, so none of them has to be a
leader. Nodes are divided as evenly as possible; a node moves only if that makes the division more
even, if its server is draining, or if another server is preferred for it. One server hands over a
node at a time, and only while every other node has an owner; a draining server does not wait for
others. Among equal choices a node goes to its home, which only depends on the servers that are
known: so most nodes have the addresses that they had when a server has come back, or all have.
Must not know: databases, sessions, what liveness is.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


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
    server_id: int,
    owners: Mapping[int, int | None],
    takers: Collection[int],
    preferred: Mapping[int, int] = MappingProxyType({}),
    known: Collection[int] = (),
) -> NodePlan:
    """Return what a server does.

    Args:
        server_id: which server.
        owners: the server that owns each node; None: none does.
        takers: all servers that live and are not draining; the server itself is draining if it is
            not among them.
        preferred: nodes that one server is to own while it is a taker, whatever that makes of the
            division; the other nodes are divided so that all servers own as many as they can.
        known: other servers that were seen lately, which may come back.
    """
    if not takers:
        return NodePlan()  # the last server keeps its nodes until it ends
    fixed = {node: each for node, each in preferred.items() if each in takers and node in owners}
    unowned = sorted(node for node, owner in owners.items() if owner is None)
    mine = sorted(node for node, owner in owners.items() if owner == server_id)
    if server_id not in takers:
        return NodePlan(hand_over=mine[0] if mine else None)
    room = _room(owners, takers, fixed)
    homes = sorted({*takers, *known})
    if unowned:
        return NodePlan(claims=_share(server_id, unowned, room, fixed, homes))
    astray = min((node for node, each in fixed.items() if owners[node] != each), default=None)
    if astray is not None:
        return NodePlan(hand_over=astray if astray in mine else None)
    most = min(room, key=lambda each: (room[each], each))
    if most == server_id and room[most] < 0:
        free = [node for node in mine if node not in fixed]
        return NodePlan(hand_over=max(free, key=lambda node: _leaving(node, room, homes)))
    return NodePlan()


def _home(node: int, homes: Sequence[int]) -> int:
    return homes[(node - 1) % len(homes)]


def _leaving(node: int, room: Mapping[int, int], homes: Sequence[int]) -> tuple[int, int]:
    """Return by what the node is chosen that leaves: its home has room, and it is the last one."""
    return room.get(_home(node, homes), 0), node


def _room(
    owners: Mapping[int, int | None], takers: Collection[int], fixed: Mapping[int, int]
) -> dict[int, int]:
    """Return how many nodes more each server should own; below 0: how many fewer.

    The sum is the number of nodes that none of these servers owns, where a fixed node counts as
    owned by its server. Those that own the most keep what does not divide evenly.
    """
    owned = Counter(fixed.get(node, owner) for node, owner in owners.items())
    count, room, dividing = len(owners), {}, set(takers)
    # A server with more fixed nodes than its share owns these alone, which leaves less to divide.
    for each, fixed_count in Counter(fixed.values()).most_common():
        if fixed_count * len(dividing) <= count:
            break
        dividing.remove(each)
        room[each] = fixed_count - owned[each]
        count -= fixed_count
    if dividing:
        share, rest = divmod(count, len(dividing))
        by_count = sorted(dividing, key=lambda each: (-owned[each], each))
        for rank, each in enumerate(by_count):
            room[each] = share + (rank < rest) - owned[each]
    return room


def _share(
    server_id: int,
    unowned: Sequence[int],
    room: Mapping[int, int],
    fixed: Mapping[int, int],
    homes: Sequence[int],
) -> tuple[int, ...]:
    """Return those nodes without an owner that a server is to own."""
    left = dict(room)
    owners = {node: fixed[node] for node in unowned if node in fixed}
    free = [node for node in unowned if node not in fixed]
    for node in free:
        home = _home(node, homes)
        if left.get(home, 0) > 0:
            owners[node] = home
            left[home] -= 1
    for node in free:
        if node not in owners:
            owners[node] = taker = max(left, key=lambda each: (left[each], -each))
            left[taker] -= 1
    return tuple(node for node in unowned if owners[node] == server_id)
