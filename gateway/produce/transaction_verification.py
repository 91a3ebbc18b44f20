"""TransactionVerification: whether a transactional batch may be appended to a partition.

Rule: the producer of a batch must be that of the request's transactional id, so that no client
writes into another's transaction. A batch of a transaction that is open in its partition needs no
more verification. The first one there is verified when the coordinator confirms that the
transaction includes the partition; from Produce 12 on, the batch itself adds the partition
(KIP-890), durably before it is appended. What a coordinator on another broker has confirmed is void
if a marker comes before the batch is appended: the transaction may have ended since.
Must not know: how batches are appended, where responses are sent.
"""

from collections.abc import Coroutine, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kledger.batches.header import BATCH_OVERHEAD, FLAGS_AT, TRANSACTIONAL_BIT
from kledger.gateway.api_errors import without_fencing
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.produce_codec import Records
from kledger.offsets import TopicPartition

if TYPE_CHECKING:
    from kledger.gateway.peers.remote_transactions import RemoteTransactions
    from kledger.gateway.services import Services
    from kledger.topics import PartitionLog

IMPLICIT_ADD_SINCE: Final = 12
ABORTABLE_SINCE: Final = 11
REMOTE_PRODUCERS_MAX: Final = 100_000
"""Producers whose transactional id another broker has confirmed; it is asked again for others."""
_PRODUCER: Final = Struct(">qh")
_PRODUCER_AT: Final = 43
_CODES_OF_COORDINATOR: Final = {
    # These say nothing about the broker that the client has asked: it asks this one again.
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
_CODES_BEFORE_ABORTABLE: Final = {
    # What clients get that do not know the newer code.
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    **_CODES_OF_COORDINATOR,
}

VerificationKey = tuple[str, ProducerIdAndEpoch, TopicPartition]
PendingBatch = tuple[int, "PartitionLog", memoryview]
"""Its position in the request, its log, and its bytes, of which nothing was checked."""
VerificationErrors = dict[int, ErrorCode]
"""By position: NONE for a verified batch, or its error. Other batches need no verification."""


class TransactionVerification:
    """Verifies batches with the coordinator; one for all connections."""

    def __init__(self, services: "Services") -> None:
        self._transactions = services.transactions
        remote = services.remote_transactions
        self._remote = None if remote is None else RemoteVerification(remote)
        self._rejected: dict[VerificationKey, ErrorCode] = {}

    def admit(
        self, transactional_id: str, batches: Iterable[PendingBatch], version: int
    ) -> VerificationErrors | Coroutine[Any, Any, None]:
        """Verify the batches of a request that has a transactional id.

        Args:
            transactional_id: of the request.
            batches: those that have a log.
            version: of Produce.

        Returns:
            The errors; or a coroutine to await before this is called again.
        """
        if self._remote is not None and self._remote.transactions.includes(transactional_id):
            return self._remote.admit(transactional_id, batches, version)
        errors: VerificationErrors = {}
        unverified: dict[int, VerificationKey] = {}
        for number, log, batch in batches:
            producer = _transactional_producer(batch)
            if producer is None:
                continue
            if log.has_transaction(*producer):
                if not self._transactions.is_producer(transactional_id, producer.producer_id):
                    errors[number] = ErrorCode.INVALID_PRODUCER_ID_MAPPING
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
            errors[number] = _code_for_version(self._rejected[key], version)
        if self._rejected:
            self._rejected.clear()  # a request that finds no error of its own asks again
        return errors

    async def _add_partitions(self, keys: Iterable[VerificationKey]) -> None:
        """Add partitions to transactions; the next `admit` returns what was rejected."""
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


class _Answer(NamedTuple):
    """What another broker has said of a partition, and what its producer had done here before.

    Attributes:
        log: of the partition.
        last: see `PartitionLog.last_of_producer`.
    """

    error: ErrorCode
    log: "PartitionLog"
    last: object


class RemoteVerification:
    """Verifies batches of transactional ids that other brokers coordinate.

    Attributes:
        transactions: asks these brokers.
    """

    def __init__(self, transactions: "RemoteTransactions") -> None:
        self.transactions = transactions
        self._answers: dict[VerificationKey, _Answer] = {}
        self._transactional_ids: dict[int, str] = {}
        """By producer id, which belongs to one transactional id for ever."""

    def admit(
        self, transactional_id: str, batches: Iterable[PendingBatch], version: int
    ) -> VerificationErrors | Coroutine[Any, Any, None]:
        """Verify the batches of a request; see `TransactionVerification.admit`."""
        errors: VerificationErrors = {}
        unverified: dict[VerificationKey, PartitionLog] = {}
        for number, log, batch in batches:
            producer = _transactional_producer(batch)
            if producer is None:
                continue
            known = self._transactional_ids.get(producer.producer_id, transactional_id)
            if known != transactional_id:
                errors[number] = ErrorCode.INVALID_PRODUCER_ID_MAPPING
                continue
            if log.has_transaction(*producer) and producer.producer_id in self._transactional_ids:
                continue
            key = transactional_id, producer, TopicPartition(log.topic, log.index)
            answer = self._answers.get(key)
            last = log.last_of_producer(producer.producer_id)
            if answer is not None and answer.log is log and answer.last is last:
                errors[number] = _code_for_version(answer.error, version)
            else:
                unverified[key] = log
        if unverified:
            return self._ask(unverified, is_added=version >= IMPLICIT_ADD_SINCE)
        if self._answers:
            self._answers.clear()
        return errors

    async def _ask(
        self, unverified: "dict[VerificationKey, PartitionLog]", *, is_added: bool
    ) -> None:
        """Ask the coordinator; the next `admit` uses its answers."""
        before = {
            key: (log, log.last_of_producer(key[1].producer_id)) for key, log in unverified.items()
        }
        by_producer: dict[tuple[str, ProducerIdAndEpoch], list[TopicPartition]] = {}
        for transactional_id, producer, topic_partition in unverified:
            by_producer.setdefault((transactional_id, producer), []).append(topic_partition)
        answers = {}
        for (transactional_id, producer), topic_partitions in by_producer.items():
            errors = await self.transactions.verify(
                transactional_id, producer, topic_partitions, is_added=is_added
            )
            for topic_partition, error in errors.items():
                key = transactional_id, producer, topic_partition
                answers[key] = _Answer(error, *before[key])
            if ErrorCode.NONE in errors.values():
                self._remember(transactional_id, producer.producer_id)
        self._answers |= answers

    def _remember(self, transactional_id: str, producer_id: int) -> None:
        known = self._transactional_ids
        known.pop(producer_id, None)
        known[producer_id] = transactional_id
        if len(known) > REMOTE_PRODUCERS_MAX:
            del known[next(iter(known))]


def has_transactional_batch(records: Records) -> bool:
    """Return whether one of the batches of a request is marked as transactional."""
    for each in records:
        if each is not None and len(each) > FLAGS_AT and each[FLAGS_AT] & TRANSACTIONAL_BIT:
            return True
    return False


def _transactional_producer(batch: memoryview) -> ProducerIdAndEpoch | None:
    """Return the producer of a transactional batch, None for any other batch."""
    if len(batch) < BATCH_OVERHEAD:
        return None
    if not batch[FLAGS_AT] & TRANSACTIONAL_BIT:
        return None
    return ProducerIdAndEpoch(*_PRODUCER.unpack_from(batch, _PRODUCER_AT))


def _code_for_version(error: ErrorCode, version: int) -> ErrorCode:
    """Return the code that clients of a version know for an error."""
    if version >= IMPLICIT_ADD_SINCE:
        return _CODES_OF_COORDINATOR.get(error, without_fencing(error))
    if error is ErrorCode.TRANSACTION_ABORTABLE and version >= ABORTABLE_SINCE:
        return error
    return _CODES_BEFORE_ABORTABLE.get(error, without_fencing(error))
