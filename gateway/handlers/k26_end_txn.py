"""EndTxn, key 26, versions 0-5.

Behaviour:
- Answered when the outcome is durable: from then on nothing can change it. Markers follow at once.
- The client must be allowed to write to the transactional id.
- The same end repeated succeeds while no new transaction has begun; the other end is
  INVALID_TXN_STATE.

Version notes:
- v2 knows PRODUCER_FENCED, older versions get INVALID_PRODUCER_EPOCH (KIP-588).
- v5 (transaction.version 2, KIP-890): every end raises the epoch, and the answer carries
  the producer id and epoch to continue with; an abort without a transaction is allowed.
"""

from kledger.gateway.api_errors import without_fencing
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from kledger.security.acl_state import Operation, ResourceType

KEY = 26
MIN_VERSION = 0
MAX_VERSION = 5

FENCED_SINCE = 2
RISING_EPOCHS_SINCE = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort the transaction."""
    refused = context.refusal(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    )
    if refused:
        return EndTxnResponse(error_code=refused)
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    error, producer = await context.services.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        is_commit=request.committed,
        is_v2=context.version >= RISING_EPOCHS_SINCE,
    )
    if context.version < FENCED_SINCE:
        error = without_fencing(error)
    return EndTxnResponse(
        error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
