"""Newest answers: requests that a broker refuses once another may have taken over the cluster.

Rule: pure. These requests return the newest state, so a broker answers them only while no other one
can have taken over; otherwise a client could read a state older than one that was acknowledged
elsewhere. The error makes a client find the right broker and retry. Requests that change something
are not listed: their commit fails. Nor is Fetch: committed records stay committed, and a client
gets the newest ones later.
Must not know: how a takeover is detected.
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
