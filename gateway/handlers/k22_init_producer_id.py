"""InitProducerId, key 22, versions 0-5.

Behaviour:
- Without a transactional id: a new producer id with epoch 0, whatever the request says about an
  older one, as Kafka does. An id is never assigned twice, not even after a restart. The client must
  be allowed to write to some topic, or idempotently to the cluster (KIP-679).
- With one, to which the client must be allowed to write: its producer from now on; older ones are
  fenced. A transaction that they left open is aborted first, and the answer meanwhile is
  CONCURRENT_TRANSACTIONS.
- An empty transactional id is INVALID_REQUEST, and so is a producer id without an epoch.

Version notes:
- v3 carries the producer id and epoch that the client had (KIP-360): if no other producer took
  the id meanwhile, it continues with the next epoch. v4 knows PRODUCER_FENCED (KIP-588), older
  versions get INVALID_PRODUCER_EPOCH.
- v6 (two-phase commit, KIP-939) is unstable in Kafka 4.3 and not offered.
"""

from kledger.gateway.api_errors import without_fencing
from kledger.gateway.coordinator.transactions.txn_state import InitProducerId, ProducerIdAndEpoch
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kledger.ledger import LedgerError
from kledger.security.acl_state import Operation, ResourceType

KEY = 22
MIN_VERSION = 0
MAX_VERSION = 5

FENCED_SINCE = 4
NO_PRODUCER = -1
"""Producer id and epoch of a client that had none."""


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Assign a producer id, or the next epoch of one."""
    if refused := _refusal(context, request.transactional_id):
        return InitProducerIdResponse(error_code=refused, producer_epoch=-1)
    if request.transactional_id is not None:
        return await _initialise(context, request, request.transactional_id)
    try:
        producer_id = await context.services.producer_ids.next_id()
    except LedgerError:
        # The storage may recover; this is the code on which every client retries.
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(context: RequestContext, transactional_id: str | None) -> ErrorCode:
    if transactional_id is not None:
        return context.refusal(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if context.authorize_any(Operation.WRITE, ResourceType.TOPIC):
        return ErrorCode.NONE
    return context.refusal(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


async def _initialise(
    context: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER) != (expected.epoch == NO_PRODUCER):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    error, producer = await context.services.transactions.initialise(
        InitProducerId(transactional_id, request.transaction_timeout_ms, expected)
    )
    if context.version < FENCED_SINCE:
        error = without_fencing(error)
    return InitProducerIdResponse(
        error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
