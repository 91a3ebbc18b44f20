"""ProduceTransactions: whether a transactional batch may enter a partition.

Rule: a batch of a transaction that is open in its partition needs no question. Its first one there
is admitted when the coordinator says that the transaction includes the partition; from Produce 12
on it comes to include it by that batch (KIP-890), which is durable before the batch is appended.
Must not know: how batches are appended, where responses go.
"""

from collections.abc import Coroutine, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kledger.batches.header import BATCH_OVERHEAD, FLAGS_AT, TRANSACTIONAL_BIT
from kledger.gateway.coordinator.txn_state import Identity
from kledger.gateway.error_map import without_fencing
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.produce_codec import PartitionRecords
from kledger.offsets import Place

if TYPE_CHECKING:
    from kledger.gateway.coordinator.transactions import TransactionCoordinator
    from kledger.topics import PartitionLog

ADDED_IMPLICITLY_SINCE: Final = 12
ABORTABLE_SINCE: Final = 11
_PRODUCER: Final = Struct(">qh")
_PRODUCER_AT: Final = 43
_OLD_CODES: Final = {
    # What clients know that have never heard of the newer code.
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}

Question = tuple[str, Identity, Place]
Batch = tuple[int, "PartitionLog", memoryview]
"""Its number in the request, where it goes, and the bytes as they came: nothing was checked."""
Admissions = dict[int, ErrorCode]
"""By number: NONE, the batch is verified; or what is wrong. Others need no admission."""


class ProduceTransactions:
    """Asks the coordinator about batches; one for all connections."""

    def __init__(self, transactions: "TransactionCoordinator") -> None:
        self._transactions = transactions
        self._refused: dict[Question, ErrorCode] = {}

    def admit(
        self, transactional_id: str, batches: Iterable[Batch], version: int
    ) -> Admissions | Coroutine[Any, Any, None]:
        """Decide about the batches of a request that names a transactional id.

        Args:
            transactional_id: of the request.
            batches: those that have a place to go.
            version: of Produce.

        Returns:
            What must happen before it is asked again, or the admissions.
        """
        admissions: Admissions = {}
        open_questions: dict[int, Question] = {}
        for number, log, batch in batches:
            identity = _transaction_of(batch)
            if identity is None or log.has_transaction(*identity):
                continue
            question = transactional_id, identity, Place(log.topic, log.index)
            error = self._transactions.verify(*question)
            if error is ErrorCode.NONE or version < ADDED_IMPLICITLY_SINCE:
                admissions[number] = _told(error, version)
            else:
                open_questions[number] = question
        new = [each for each in open_questions.values() if each not in self._refused]
        if new:
            return self._join(new)
        for number, question in open_questions.items():
            admissions[number] = without_fencing(self._refused[question])
        if self._refused:
            self._refused.clear()  # whose others are asks again
        return admissions

    async def _join(self, questions: Iterable[Question]) -> None:
        """Let partitions belong to a transaction; a refusal is told when it is asked again."""
        places: dict[tuple[str, Identity], list[Place]] = {}
        for transactional_id, identity, place in questions:
            places.setdefault((transactional_id, identity), []).append(place)
        for (transactional_id, identity), partitions in places.items():
            error = await self._transactions.add(
                transactional_id, identity, partitions=partitions, has_rising_epochs=True
            )
            if error is not ErrorCode.NONE:
                self._refused.update(
                    ((transactional_id, identity, each), error) for each in partitions
                )


def has_transaction(frame: memoryview, batches: Iterable[PartitionRecords]) -> bool:
    """Return whether one of the batches in a request says that it belongs to a transaction."""
    for _, _, start, length in batches:
        if length > FLAGS_AT and frame[start + FLAGS_AT] & TRANSACTIONAL_BIT:
            return True
    return False


def _transaction_of(batch: memoryview) -> Identity | None:
    """Return the producer of a transactional batch."""
    if len(batch) < BATCH_OVERHEAD:
        return None
    if not batch[FLAGS_AT] & TRANSACTIONAL_BIT:
        return None
    return Identity(*_PRODUCER.unpack_from(batch, _PRODUCER_AT))


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """Say it in words that the version knows."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version >= ABORTABLE_SINCE:
        return error
    return _OLD_CODES.get(error, without_fencing(error))
