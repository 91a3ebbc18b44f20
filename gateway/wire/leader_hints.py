"""Leader hints (KIP-951): the tagged fields by which Produce and Fetch name the current leader.

    CurrentLeader of a partition      leader_id int32, leader_epoch int32, tags
    NodeEndpoints of the response     compact array of: node_id int32, host, port int32, rack, tags

Rule: has the bytes of the compiled codec. A response without hints has neither field.
Must not know: leaders, which errors carry a hint.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kledger.gateway.wire.primitives import encode_uvarint

NODE_ENDPOINTS_TAG: Final = 0
_LEADER: Final = Struct(">BBBiiB")
_INT32: Final = Struct(">i").pack
_NULL_RACK_AND_NO_TAGS: Final = b"\0\0"


class LeaderHints(NamedTuple):
    """The leaders that one response names.

    Attributes:
        leaders: (broker id, leader epoch) by topic, as on the wire, and partition index.
        endpoints: (broker id, host, port) of each of these brokers.
    """

    leaders: Mapping[tuple[bytes, int], tuple[int, int]]
    endpoints: Sequence[tuple[int, str, int]]


NO_HINTS: Final = LeaderHints({}, ())


def partition_tags(hints: LeaderHints, topic: bytes, index: int, tag: int) -> bytes:
    """Return the tagged fields of a partition, with its leader if a hint names it.

    Args:
        hints: of the response.
        topic: as on the wire.
        index: of the partition.
        tag: of `CurrentLeader`.
    """
    leader = hints.leaders.get((topic, index))
    return b"\0" if leader is None else _LEADER.pack(1, tag, 9, *leader, 0)


def response_tags(hints: LeaderHints) -> bytes:
    """Return the tagged fields of a response, with the addresses of the leaders."""
    if not hints.endpoints:
        return b"\0"
    parts = [encode_uvarint(len(hints.endpoints) + 1)]
    for broker_id, host, port in hints.endpoints:
        name = host.encode()
        parts += (_INT32(broker_id), encode_uvarint(len(name) + 1), name, _INT32(port))
        parts.append(_NULL_RACK_AND_NO_TAGS)
    data = b"".join(parts)
    return bytes((1, NODE_ENDPOINTS_TAG)) + encode_uvarint(len(data)) + data
