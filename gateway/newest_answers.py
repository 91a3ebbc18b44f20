"""Newest answers: what a broker may not say when it cannot know whether it still is the owner.

Rule: pure. An answer that means "this is the newest" is given only while nobody can have taken the
cluster over, so that no client reads an older state than one that was acknowledged elsewhere.
Afterwards the broker answers with an error at which clients look for the right broker, and ask
again. What changes something needs no row: its commit finds out. Fetch is none of these answers:
what it returns is committed for ever, and at worst not the newest.
Must not know: how a broker knows.
"""

from collections.abc import Mapping
from typing import Final

from kledger.gateway.wire.error_codes import ErrorCode

_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_COORDINATOR: Final = ErrorCode.NOT_COORDINATOR
_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

NOT_CURRENT_ERRORS: Final[Mapping[int, ErrorCode]] = {
    2: _LEADER,  # ListOffsets
    9: _COORDINATOR,  # OffsetFetch
    10: _AVAILABLE,  # FindCoordinator: clients would ask the one that it names at once
    11: _COORDINATOR,  # JoinGroup
    12: _COORDINATOR,  # Heartbeat: the next owner may have given the partitions to others
    14: _COORDINATOR,  # SyncGroup
    15: _COORDINATOR,  # DescribeGroups
    16: _AVAILABLE,  # ListGroups
    23: _LEADER,  # OffsetForLeaderEpoch
    24: _AVAILABLE,  # AddPartitionsToTxn: what is in the transaction already commits nothing
    27: _LEADER,  # WriteTxnMarkers: nor does a marker of a transaction that is not open here
    61: _LEADER,  # DescribeProducers
    65: _COORDINATOR,  # DescribeTransactions
    66: _AVAILABLE,  # ListTransactions
    68: _COORDINATOR,  # ConsumerGroupHeartbeat
    69: _COORDINATOR,  # ConsumerGroupDescribe
}
"""By API key."""
