"""InitProducerId, key 22, versions 0-5.

Behaviour:
- Without a transactional id: a new producer id with epoch 0, whatever the request says about an
  older one, as Kafka does. An id is never given out twice, not even after a restart.
- An empty transactional id is INVALID_REQUEST. Transactions are not served yet: any other one is
  UNSUPPORTED_VERSION, which clients report as final.

Version notes:
- v3 carries the producer id and epoch that the client had (KIP-360); they matter to transactions.
- v6 (two-phase commit, KIP-939) is unstable in Kafka 4.3 and not offered.
"""

from gateway.context import RequestContext
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ledger import LedgerError

KEY = 22
MIN_VERSION = 0
MAX_VERSION = 5


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give out a producer id."""
    if request.transactional_id is not None:
        code = ErrorCode.UNSUPPORTED_VERSION
        if not request.transactional_id:
            code = ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    try:
        producer_id = await context.services.producer_ids.next_id()
    except LedgerError:
        # The storage may recover; this is the code on which every client asks again.
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
