"""Group wire: the requests of a member of a classic group, made by hand.

Rule: plain versions: FindCoordinator 2, JoinGroup 5, SyncGroup 3, Heartbeat 3, LeaveGroup 3. What
members say and are assigned is opaque to the server and is only some bytes here.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from benchmarks.wire import framed, sized, string

_FIND_COORDINATOR, _JOIN, _HEARTBEAT, _LEAVE, _SYNC = 10, 11, 12, 13, 14
_SESSION_MS, _REBALANCE_MS = 45_000, 60_000
_NOBODY = struct.pack(">h", -1)
SUBSCRIPTION = struct.pack(">hi", 0, 1) + string("load") + sized(b"")
ASSIGNMENT = struct.pack(">hi", 0, 1) + string("load") + struct.pack(">ii", 1, 0) + sized(b"")


class Joined(NamedTuple):
    """The answer to a JoinGroup request; only the leader's has the members."""

    error: int
    generation: int
    leader: str
    member_id: str
    members: list[str]


def find_coordinator_request(group: str) -> bytes:
    """Find the coordinator."""
    return framed(_FIND_COORDINATOR, 2, string(group) + b"\0")


def join_request(group: str, member_id: str) -> bytes:
    """Join; a new member has no id yet."""
    body = string(group) + struct.pack(">ii", _SESSION_MS, _REBALANCE_MS)
    body += string(member_id) + _NOBODY + string("consumer")
    return framed(_JOIN, 5, body + struct.pack(">i", 1) + string("range") + sized(SUBSCRIPTION))


def sync_request(group: str, joined: Joined) -> bytes:
    """Request the assignment; the leader sends those of all members."""
    body = _member(group, joined.generation, joined.member_id)
    body += struct.pack(">i", len(joined.members))
    assigned = sized(ASSIGNMENT)
    return framed(_SYNC, 3, body + b"".join(string(each) + assigned for each in joined.members))


def heartbeat_request(group: str, joined: Joined) -> bytes:
    """Show a sign of life."""
    return framed(_HEARTBEAT, 3, _member(group, joined.generation, joined.member_id))


def leave_request(group: str, joined: Joined) -> bytes:
    """Leave."""
    member = string(joined.member_id) + _NOBODY
    return framed(_LEAVE, 3, string(group) + struct.pack(">i", 1) + member)


def _member(group: str, generation: int, member_id: str) -> bytes:
    return string(group) + struct.pack(">i", generation) + string(member_id) + _NOBODY


def error_of(response: bytes) -> int:
    """Read the error code that stands behind the throttle time in all answers."""
    return int(struct.unpack_from(">h", response, 4)[0])


def joined_of(response: bytes) -> Joined:
    """Read the answer to a JoinGroup request."""
    error, generation = struct.unpack_from(">hi", response, 4)
    at = 10
    words = []
    for _ in range(3):
        word, at = _string_at(response, at)
        words.append(word)
    _, leader, member_id = words
    (count,) = struct.unpack_from(">i", response, at)
    at += 4
    members = []
    for _ in range(count):
        member, at = _string_at(response, at)
        _, at = _string_at(response, at)
        (size,) = struct.unpack_from(">i", response, at)
        at += 4 + size
        members.append(member)
    return Joined(error, generation, leader, member_id, members)


def _string_at(response: bytes, at: int) -> tuple[str, int]:
    """Give a string, empty for null, and where it ends."""
    (size,) = struct.unpack_from(">h", response, at)
    at += 2
    end = at + max(size, 0)
    return response[at:end].decode(), end
