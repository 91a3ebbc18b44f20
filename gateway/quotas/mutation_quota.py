"""MutationQuota: what one request may change of how many partitions there are (KIP-599).

Rule: partitions that come or go are counted, also where a change is only checked, and only when
nothing else is wrong with it. Strict: who is in debt is refused; permissive: whoever changed too
much is told to wait. The first change of a request may lead into debt, however large it is.
Must not know: topics, how the connection waits.
"""

from kledger.gateway.api_errors import ApiError
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode


class MutationQuota:
    """The quota of the client of one request."""

    __slots__ = ("_context", "_is_strict")

    def __init__(self, context: RequestContext, *, strict_since: int) -> None:
        """Args: strict_since: the API version from which on clients know the error."""
        self._context = context
        self._is_strict = context.version >= strict_since

    def charge(self, partition_count: int) -> None:
        """Count partitions.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, and nothing was counted.
        """
        context = self._context
        quotas, client_id = context.services.quotas, context.client_id or ""
        debt_ms = quotas.charge_mutations(client_id, 0) if self._is_strict else 0
        if debt_ms:
            context.wait_ms = debt_ms
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"controller_mutation_rate: expected no change for another {debt_ms} ms",
            )
        wait_ms = quotas.charge_mutations(client_id, partition_count)
        if not self._is_strict:
            context.wait_ms = wait_ms
