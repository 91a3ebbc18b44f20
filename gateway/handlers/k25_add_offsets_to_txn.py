"""AddOffsetsToTxn, key 25, versions 0-4.

Behaviour:
- The offsets that the producer sends for this group with TxnOffsetCommit end with the transaction.
- The client must be allowed to write to the transactional id, and to read the group.
- An empty transactional id is INVALID_REQUEST, an empty group INVALID_GROUP_ID.

Version notes:
- v2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH (KIP-588). v4 knows
  TRANSACTION_ABORTABLE (KIP-890). Clients of transaction.version 2 never send this.
"""

from kledger.gateway.api_errors import without_fencing
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 25
MIN_VERSION = 0
MAX_VERSION = 4

FENCED_SINCE = 2


async def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a group to a transaction."""
    refused = context.refusal(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ) or context.refusal(Operation.READ, ResourceType.GROUP, request.group_id)
    if refused:
        return AddOffsetsToTxnResponse(error_code=refused)
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    error = await context.services.transactions.add(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        groups=[request.group_id],
    )
    if context.version < FENCED_SINCE:
        error = without_fencing(error)
    return AddOffsetsToTxnResponse(error_code=error)
