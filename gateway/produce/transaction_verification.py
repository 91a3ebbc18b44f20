"""TransactionVerification: whether a transactional batch may enter a partition.

Rule: a batch of a transaction that is open in its partition needs no question. Its first one there
is admitted when the coordinator says that the transaction includes the partition; from Produce 12
on it comes to include it by that batch (KIP-890), which is durable before the batch is appended.
Must not know: how batches are appended, where responses go.
"""

from collections.abc import Coroutine, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kledger.batches.header import BATCH_OVERHEAD, FLAGS_AT, TRANSACTIONAL_BIT
from kledger.gateway.api_errors import without_fencing
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.produce_codec import Records
from kledger.offsets import TopicPartition

if TYPE_CHECKING:
    from kledger.gateway.coordinator.transactions.transaction_coordinator import (
        TransactionCoordinator,
    )
    from kledger.topics import PartitionLog

IMPLICIT_ADD_SINCE: Final = 12
ABORTABLE_SINCE: Final = 11
_PRODUCER: Final = Struct(">qh")
_PRODUCER_AT: Final = 43
_CODES_BEFORE_ABORTABLE: Final = {
    # What clients know that have never heard of the newer code.
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
}

VerificationKey = tuple[str, ProducerIdAndEpoch, TopicPartition]
PendingBatch = tuple[int, "PartitionLog", memoryview]
"""Its number in the request, where it goes, and the bytes as they came: nothing was checked."""
VerificationErrors = dict[int, ErrorCode]
"""By number: NONE, the batch is verified; or what is wrong. Others need no admission."""


class TransactionVerification:
    """Asks the coordinator about batches; one for all connections."""

    def __init__(self, transactions: "TransactionCoordinator") -> None:
        self._transactions = transactions
        self._rejected: dict[VerificationKey, ErrorCode] = {}

    def admit(
        self, transactional_id: str, batches: Iterable[PendingBatch], version: int
    ) -> VerificationErrors | Coroutine[Any, Any, None]:
        """Decide about the batches of a request that names a transactional id.

        Args:
            transactional_id: of the request.
            batches: those that have a place to go.
            version: of Produce.

        Returns:
            What must happen before it is asked again, or the admissions.
        """
        errors: VerificationErrors = {}
        unverified: dict[int, VerificationKey] = {}
        for number, log, batch in batches:
            producer = _transactional_producer(batch)
            if producer is None or log.has_transaction(*producer):
                continue
            key = transactional_id, producer, TopicPartition(log.topic, log.index)
            error = self._transactions.verify(*key)
            if error is ErrorCode.NONE or version < IMPLICIT_ADD_SINCE:
                errors[number] = _code_for_version(error, version)
            else:
                unverified[number] = key
        new = [each for each in unverified.values() if each not in self._rejected]
        if new:
            return self._add_partitions(new)
        for number, key in unverified.items():
            errors[number] = without_fencing(self._rejected[key])
        if self._rejected:
            self._rejected.clear()  # whose others are asks again
        return errors

    async def _add_partitions(self, keys: Iterable[VerificationKey]) -> None:
        """Let partitions belong to a transaction; a refusal is told when it is asked again."""
        topic_partitions: dict[tuple[str, ProducerIdAndEpoch], list[TopicPartition]] = {}
        for transactional_id, producer, topic_partition in keys:
            topic_partitions.setdefault((transactional_id, producer), []).append(topic_partition)
        for (transactional_id, producer), partitions in topic_partitions.items():
            error = await self._transactions.add(
                transactional_id, producer, partitions=partitions, is_v2=True
            )
            if error is not ErrorCode.NONE:
                self._rejected.update(
                    ((transactional_id, producer, each), error) for each in partitions
                )


def has_transactional_batch(records: Records) -> bool:
    """Return whether one of the batches of a request is marked as transactional."""
    for each in records:
        if each is not None and len(each) > FLAGS_AT and each[FLAGS_AT] & TRANSACTIONAL_BIT:
            return True
    return False


def _transactional_producer(batch: memoryview) -> ProducerIdAndEpoch | None:
    """Return the producer of a transactional batch."""
    if len(batch) < BATCH_OVERHEAD:
        return None
    if not batch[FLAGS_AT] & TRANSACTIONAL_BIT:
        return None
    return ProducerIdAndEpoch(*_PRODUCER.unpack_from(batch, _PRODUCER_AT))


def _code_for_version(error: ErrorCode, version: int) -> ErrorCode:
    """Say it in words that the version knows."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version >= ABORTABLE_SINCE:
        return error
    return _CODES_BEFORE_ABORTABLE.get(error, without_fencing(error))
