"""ListTransactions, key 66, versions 0-2.

Behaviour:
- Every known transactional id that passes all filters. States that Kafka does not
  know are named in the answer and match nothing.
- Ids that the client may not describe are left out.
- Ids of other coordinators are not listed. While some are being loaded the answer is
  COORDINATOR_LOAD_IN_PROGRESS: a part of the ids would look like all of them.
- A pattern is RE2's, so that none can take more than linear time; what is no regular expression is
  INVALID_REGULAR_EXPRESSION.

Version notes:
- v1 filters by how long a transaction has been open (KIP-994), v2 by a pattern of the whole
  transactional id (KIP-1152).
"""

from kledger.gateway.coordinator.transactions.txn_record import NO_TIME, TxnState
from kledger.gateway.regex import InvalidRegex, compile_regex
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 66
MIN_VERSION = 0
MAX_VERSION = 2

STATES = {state.value for state in TxnState} | {"Dead", "PrepareEpochFence", "Unknown"}
"""Kafka's names; no transaction is ever in those that `TxnState` lacks."""


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactions that pass the filters."""
    if context.services.transactions.shards.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    text, pattern = request.transactional_id_pattern, None
    if text:
        try:
            pattern = compile_regex(text)
        except InvalidRegex:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    opened_before_ms = context.services.clock.now_ms() - request.duration_filter
    found = [
        TransactionState(
            transactional_id=record.transactional_id,
            producer_id=record.producer_id,
            transaction_state=record.state.value,
        )
        for record in context.services.transactions.records()
        if (not states or record.state.value in states)
        and (not producers or record.producer_id in producers)
        and (request.duration_filter < 0 or NO_TIME < record.start_ms < opened_before_ms)
        and (pattern is None or pattern.fullmatch(record.transactional_id))
        and context.authorize(
            Operation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            record.transactional_id,
            is_audited=False,
        )
    ]
    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - STATES), transaction_states=found
    )
