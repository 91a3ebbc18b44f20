"""MutationQuota: how many partitions one request may create or delete (KIP-599).

Rule: partitions of valid changes are counted, also where a change is only checked. Strict: a client
in debt is refused; permissive: the answer says how long it has to wait. The first change of a
request may lead into debt, however large it is.
Must not know: topics, how the connection waits.
"""

from functools import partial

from kledger.gateway.api_errors import ApiError
from kledger.gateway.quotas.client_quotas import ClientQuotas
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.security.principal import Principal


class MutationQuota:
    """The quota of the client of one request.

    Attributes:
        wait_ms: how long the client must wait behind the response.
    """

    __slots__ = ("_client_id", "_is_strict", "_principal", "_quotas", "wait_ms")

    def __init__(
        self,
        quotas: ClientQuotas,
        principal: Principal,
        client_id: str | None,
        *,
        is_strict: bool,
    ) -> None:
        """Args: is_strict: the client knows the error, by the API version of its request."""
        self._quotas = quotas
        self._principal = principal
        self._client_id = client_id or ""
        self._is_strict = is_strict
        self.wait_ms = 0

    def charge(self, partition_count: int) -> None:
        """Count partitions.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, and nothing is counted.
        """
        charge = partial(self._quotas.charge_mutations, self._principal, self._client_id)
        debt_ms = charge(0) if self._is_strict else 0
        if debt_ms:
            self.wait_ms = debt_ms
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"controller_mutation_rate: expected no change for another {debt_ms} ms",
            )
        wait_ms = charge(partition_count)
        if not self._is_strict:
            self.wait_ms = wait_ms
