"""Txn state: which step of a transaction may follow which, and with which epoch.

Rule: every function looks at a record and a request and returns the next record, which is
valid once it is durable. While it is being stored nothing else is decided for that transactional
id; the shell answers CONCURRENT_TRANSACTIONS then.
Must not know: rows, partitions' logs, API versions beyond whether epochs rise (KIP-890).
Source: Kafka's TransactionCoordinator and TransactionMetadata, 4.3; KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kledger.gateway.coordinator.transactions.txn_record import (
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    TxnRecord,
    TxnState,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import TopicPartition

EPOCH_MAX: Final = 32_767
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""From here on a new producer id is needed: one more epoch is left for fencing, and no client may
name that one."""
GROUPS_MAX: Final = 1_000
"""Groups of one transaction at most: a client can name groups that do not exist."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer as it names itself."""

    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing changes, and this is the answer."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing changes: it was done before. The answer names the producer."""

    producer: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """Store the record, then answer with the producer."""

    record: TxnRecord
    producer: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class AbortFirst:
    """An open transaction is in the way: store this abort; the client asks again meanwhile."""

    record: TxnRecord


@dataclass(frozen=True, slots=True)
class NeedProducerId:
    """Decide again with a new producer id."""


Decision: TypeAlias = Rejected | Unchanged | StoreRecord | AbortFirst | NeedProducerId


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """InitProducerId with a transactional id.

    Attributes:
        expected: the producer that the client was before (KIP-360); NO_PRODUCER: it starts.
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch = NO_PRODUCER


def is_exhausted(record: TxnRecord) -> bool:
    """Whether the producer id has no epoch left to give to a client."""
    return record.epoch >= EPOCH_EXHAUSTED


def initialise(
    current: TxnRecord | None, request: InitProducerId, *, new_producer_id: int | None, now_ms: int
) -> Decision:
    """Decide on InitProducerId of a new or a returning producer.

    Args:
        current: None if the transactional id was never used.
        request: the request.
        new_producer_id: None as long as none was needed.
        now_ms: wall time.
    """
    if current is None:
        if new_producer_id is None:
            return NeedProducerId()
        current = TxnRecord(
            transactional_id=request.transactional_id,
            producer_id=new_producer_id,
            timeout_ms=request.timeout_ms,
            updated_ms=now_ms,
        )
    expected = request.expected
    if expected.producer_id != NO_ID and not _is_known(current, expected):
        return Rejected(ErrorCode.PRODUCER_FENCED)
    if current.state.is_prepared:
        return Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TxnState.ONGOING:
        return AbortFirst(abort_of(current, now_ms))
    fresh = current._replace(
        timeout_ms=request.timeout_ms,
        state=TxnState.EMPTY,
        partitions=frozenset(),
        groups=frozenset(),
        start_ms=NO_TIME,
        updated_ms=now_ms,
    )
    is_first = expected.producer_id == NO_ID
    if is_exhausted(current) and (is_first or expected.epoch == current.epoch):
        if new_producer_id is None:
            return NeedProducerId()
        return _store(
            fresh._replace(
                producer_id=new_producer_id,
                previous_producer_id=current.producer_id,
                epoch=0,
                last_epoch=NO_EPOCH if is_first else current.epoch,
            )
        )
    # Three cases: a new producer; the holder of the epoch; a retry after a lost answer.
    if is_first:
        return _store(fresh._replace(epoch=current.epoch + 1, last_epoch=NO_EPOCH))
    if current.epoch in {NO_EPOCH, expected.epoch}:
        return _store(fresh._replace(epoch=current.epoch + 1, last_epoch=current.epoch))
    if expected.epoch == current.last_epoch:
        return _store(fresh)
    return Rejected(ErrorCode.PRODUCER_FENCED)


def _is_known(current: TxnRecord, expected: ProducerIdAndEpoch) -> bool:
    """Whether a client that comes back may be the producer that is known."""
    if current.epoch == NO_EPOCH or expected.producer_id == current.producer_id:
        return True
    is_previous = expected.producer_id == current.previous_producer_id
    return is_previous and expected.epoch >= EPOCH_EXHAUSTED


def _store(record: TxnRecord) -> StoreRecord:
    return StoreRecord(record, ProducerIdAndEpoch(record.producer_id, record.epoch))


def check_producer(current: TxnRecord | None, producer: ProducerIdAndEpoch) -> ErrorCode:
    """Say whether a request comes from the producer that holds the transactional id."""
    if current is None or current.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != producer.epoch or producer.epoch == EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add(
    current: TxnRecord | None,
    producer: ProducerIdAndEpoch,
    *,
    partitions: Iterable[TopicPartition] = (),
    groups: Iterable[str] = (),
    is_v2: bool,
    now_ms: int,
) -> Decision:
    """Decide about partitions and groups that a transaction is going to write to."""
    error = check_producer(current, producer)
    if current is None or error:
        return Rejected(error)
    if current.state.is_prepared:
        return Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_open = current.state is TxnState.ONGOING
    all_partitions = current.partitions.union(partitions)
    all_groups = current.groups.union(groups)
    if is_open and (all_partitions, all_groups) == (current.partitions, current.groups):
        return Unchanged(producer)
    if len(all_groups) > GROUPS_MAX:
        return Rejected(ErrorCode.POLICY_VIOLATION)
    return StoreRecord(
        current._replace(
            state=TxnState.ONGOING,
            is_v2=is_v2,
            partitions=all_partitions,
            groups=all_groups,
            start_ms=current.start_ms if is_open else now_ms,
            updated_ms=now_ms,
        ),
        producer,
    )


def verify(
    current: TxnRecord | None, producer: ProducerIdAndEpoch, topic_partition: TopicPartition
) -> ErrorCode:
    """Say whether a partition belongs to the producer's open transaction; nothing changes."""
    error = check_producer(current, producer)
    if current is None or error:
        return error
    if current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_added = current.state is TxnState.ONGOING and topic_partition in current.partitions
    return ErrorCode.NONE if is_added else ErrorCode.TRANSACTION_ABORTABLE


def end(
    current: TxnRecord | None,
    producer: ProducerIdAndEpoch,
    *,
    is_commit: bool,
    is_v2: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Decide on EndTxn.

    Args:
        current: None if the transactional id was never used.
        producer: id and epoch of the request.
        is_commit: commit or abort.
        is_v2: the client takes a new epoch with the answer (EndTxn 5).
        new_producer_id: None as long as none was needed.
        now_ms: wall time.
    """
    if is_v2:
        return _end_v2(
            current, producer, is_commit=is_commit, new_producer_id=new_producer_id, now_ms=now_ms
        )
    error = check_producer(current, producer)
    if current is None or error:
        return Rejected(error)
    if current.state is TxnState.ONGOING:
        return StoreRecord(_prepared(current, is_commit=is_commit, now_ms=now_ms), producer)
    return _repeated_end(current, producer, is_commit=is_commit)


def _end_v2(
    current: TxnRecord | None,
    producer: ProducerIdAndEpoch,
    *,
    is_commit: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """End under rising epochs: a repeated request is recognised by its old epoch."""
    if current is None:
        return Rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    state, epoch = current.state, producer.epoch
    is_after_overflow = (
        current.previous_producer_id == producer.producer_id
        and epoch == EPOCH_EXHAUSTED
        and current.epoch == 0
    )
    is_fenced_for_good = current.epoch == EPOCH_MAX and state.is_idle
    is_repeated = is_after_overflow or (current.epoch == epoch + 1 and not is_fenced_for_good)
    if current.producer_id != producer.producer_id and not is_after_overflow:
        return Rejected(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = current.epoch == epoch < EPOCH_MAX
    is_valid = is_current if state in {TxnState.ONGOING, TxnState.EMPTY} else is_repeated
    if state in {TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}:
        is_valid = is_repeated or is_current
    if not is_valid:
        return Rejected(ErrorCode.PRODUCER_FENCED)
    has_nothing = state is not TxnState.ONGOING
    if has_nothing and (is_repeated or state.is_prepared):
        return _repeated_end(
            current, ProducerIdAndEpoch(current.producer_id, current.epoch), is_commit=is_commit
        )
    if has_nothing and is_commit:
        return Rejected(ErrorCode.INVALID_TXN_STATE)
    next_id = NO_ID
    if is_exhausted(current):
        if new_producer_id is None:
            return NeedProducerId()
        next_id = new_producer_id
    raised = _prepared(current, is_commit=is_commit, now_ms=now_ms)._replace(
        epoch=current.epoch + 1,
        last_epoch=current.epoch,
        next_producer_id=next_id,
        is_v2=True,
        start_ms=now_ms if has_nothing else current.start_ms,
    )
    after = completed(raised, now_ms)
    return StoreRecord(raised, ProducerIdAndEpoch(after.producer_id, after.epoch))


def _repeated_end(current: TxnRecord, producer: ProducerIdAndEpoch, *, is_commit: bool) -> Decision:
    """Answer an end when no transaction is open: the same end succeeds, the other is rejected."""
    match current.state, is_commit:
        case (TxnState.COMPLETE_COMMIT, True) | (TxnState.COMPLETE_ABORT, False):
            return Unchanged(producer)
        case (TxnState.PREPARE_COMMIT, True) | (TxnState.PREPARE_ABORT, False):
            return Rejected(ErrorCode.CONCURRENT_TRANSACTIONS)
        case _:
            return Rejected(ErrorCode.INVALID_TXN_STATE)


def _prepared(current: TxnRecord, *, is_commit: bool, now_ms: int) -> TxnRecord:
    state = TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT
    return current._replace(state=state, updated_ms=now_ms)


def abort_of(current: TxnRecord, now_ms: int) -> TxnRecord:
    """Return the abort of an open transaction whose producer must not write any more.

    The producer may return, by InitProducerId (KIP-588) or by its own abort with the old epoch, and
    continues with the new one, unless that is the last epoch, which no client gets.
    """
    assert current.state is TxnState.ONGOING, f"nothing to abort in {current.state}"
    assert current.epoch < EPOCH_MAX, "the epoch that was kept for fencing is used up"
    epoch = current.epoch + 1
    return _prepared(current, is_commit=False, now_ms=now_ms)._replace(
        epoch=epoch,
        last_epoch=NO_EPOCH if epoch == EPOCH_MAX else current.epoch,
    )


def with_unmarked(
    prepared: TxnRecord, partitions: Iterable[TopicPartition], groups: Iterable[str]
) -> TxnRecord:
    """Return what is left of an outcome when all have taken it but these partitions and groups."""
    assert prepared.state.is_prepared, f"nothing to end in {prepared.state}"
    return prepared._replace(
        partitions=prepared.partitions.intersection(partitions),
        groups=prepared.groups.intersection(groups),
    )


def completed(prepared: TxnRecord, now_ms: int) -> TxnRecord:
    """Return the record that holds when all markers are durable."""
    assert prepared.state.is_prepared, f"nothing to complete in {prepared.state}"
    is_commit = prepared.state is TxnState.PREPARE_COMMIT
    record = prepared._replace(
        state=TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
        partitions=frozenset(),
        groups=frozenset(),
        start_ms=NO_TIME,
        next_producer_id=NO_ID,
        updated_ms=now_ms,
    )
    if prepared.next_producer_id == NO_ID:
        return record
    return record._replace(
        producer_id=prepared.next_producer_id,
        previous_producer_id=prepared.producer_id,
        epoch=0,
    )


def is_timed_out(record: TxnRecord, now_ms: int) -> bool:
    """Whether an open transaction has taken longer than its producer allowed."""
    is_open = record.state is TxnState.ONGOING
    return is_open and now_ms - record.start_ms > record.timeout_ms


def is_expired(record: TxnRecord, expiration_ms: int, now_ms: int) -> bool:
    """Whether a transactional id was not used for so long that it is forgotten."""
    return record.state.is_idle and now_ms - record.updated_ms >= expiration_ms
