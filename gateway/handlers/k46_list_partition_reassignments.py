"""ListPartitionReassignments, key 46, version 0.

Behaviour:
- Partitions never move on one node: the list is empty. Unknown topics are no mistake, as in Apache
  Kafka.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

KEY = 46
MIN_VERSION = 0
MAX_VERSION = 0


def handle(
    _context: RequestContext, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Say that nothing is on the move."""
    return ListPartitionReassignmentsResponse(error_message=None)
