"""ProduceTransactions: whether a transactional batch may enter a partition.

Rule: a batch of a transaction that is open in its partition needs no question. Its first one there
is admitted when the coordinator says that the transaction includes the partition; from Produce 12
on it comes to include it by that batch (KIP-890), which is durable before the batch is appended.
Must not know: how batches are appended, where responses go.
"""

from collections.abc import Coroutine
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from batches.header import BATCH_OVERHEAD, TRANSACTIONAL_BIT
from gateway.coordinator.txn_state import Identity
from gateway.error_map import without_fencing
from gateway.wire.error_codes import ErrorCode
from offsets import Place

if TYPE_CHECKING:
    from gateway.coordinator.transactions import TransactionCoordinator
    from topics import PartitionLog

ADDED_IMPLICITLY_SINCE: Final = 12
ABORTABLE_SINCE: Final = 11
_ATTRIBUTES: Final = Struct(">h")
_ATTRIBUTES_AT: Final = 21
_PRODUCER: Final = Struct(">qh")
_PRODUCER_AT: Final = 43
_OLD_CODES: Final = {
    # What clients know that have never heard of the newer code.
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}

Question = tuple[str, Identity, Place]
Admission = bool | ErrorCode | Coroutine[Any, Any, None]
"""Whether the batch is verified; or what is wrong; or what must happen before it is asked again."""


class ProduceTransactions:
    """Asks the coordinator about batches; one for all connections."""

    def __init__(self, transactions: "TransactionCoordinator") -> None:
        self._transactions = transactions
        self._refused: dict[Question, ErrorCode] = {}

    def admit(
        self, transactional_id: str, log: "PartitionLog", batch: memoryview, version: int
    ) -> Admission:
        """Decide about a batch of a request that names a transactional id.

        Args:
            transactional_id: of the request.
            log: where the batch goes.
            batch: as it came; nothing of it was checked.
            version: of Produce.
        """
        if len(batch) < BATCH_OVERHEAD:
            return False
        (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
        if not attributes & TRANSACTIONAL_BIT:
            return False
        identity = Identity(*_PRODUCER.unpack_from(batch, _PRODUCER_AT))
        if log.has_transaction(*identity):
            return False
        place = Place(log.topic, log.index)
        question = transactional_id, identity, place
        error = self._transactions.verify(*question)
        if error is ErrorCode.NONE:
            return True
        if version < ADDED_IMPLICITLY_SINCE:
            is_told = error is ErrorCode.TRANSACTION_ABORTABLE and version >= ABORTABLE_SINCE
            return error if is_told else _OLD_CODES.get(error, without_fencing(error))
        if question in self._refused:
            return without_fencing(self._refused.pop(question))
        return self._join(*question)

    async def _join(self, transactional_id: str, identity: Identity, place: Place) -> None:
        """Let the partition belong to the transaction; a refusal is told when it is asked again."""
        error = await self._transactions.add(
            transactional_id, identity, partitions=[place], has_rising_epochs=True
        )
        if error is not ErrorCode.NONE:
            self._refused[transactional_id, identity, place] = error
