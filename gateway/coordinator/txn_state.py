"""Txn state: which step of a transaction may follow which, and with which epoch.

Rule: every function looks at a record and a request and returns what becomes of them; a record
holds from the moment when it is durable. While one is being stored nothing else is decided for that
transactional id; the shell answers CONCURRENT_TRANSACTIONS then.
Must not know: rows, partitions' logs, API versions beyond whether epochs rise (KIP-890).
Source: Kafka's TransactionCoordinator and TransactionMetadata, 4.3; KIP-98, KIP-360, KIP-890.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from kledger.gateway.coordinator.txn_record import NO_EPOCH, NO_ID, NO_TIME, TxnRecord, TxnState
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import Place

EPOCH_MAX: Final = 32_767
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""From here on a new producer id is needed: one more epoch is left for fencing, and no client may
name that one."""
GROUPS_MAX: Final = 1_000
"""Of so many groups one transaction commits offsets at most: anybody can name groups."""


class Identity(NamedTuple):
    """A producer as it names itself."""

    producer_id: int
    epoch: int


NOBODY: Final = Identity(NO_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing changes, and this is the answer."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Stays:
    """Nothing changes: it was done before. The answer names the producer."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Becomes:
    """Store the record, then answer with the producer."""

    record: TxnRecord
    identity: Identity


@dataclass(frozen=True, slots=True)
class AbortsFirst:
    """An open transaction is in the way: store this abort; the client asks again meanwhile."""

    record: TxnRecord


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """Decide again with a new producer id."""


Decision: TypeAlias = Refused | Stays | Becomes | AbortsFirst | NeedsProducerId


@dataclass(frozen=True, slots=True)
class InitRequest:
    """InitProducerId with a transactional id.

    Attributes:
        expected: the producer that the client was before (KIP-360); NOBODY: it starts.
    """

    transactional_id: str
    timeout_ms: int
    expected: Identity = NOBODY


def is_exhausted(record: TxnRecord) -> bool:
    """Whether the producer id has no epoch left to give to a client."""
    return record.epoch >= EPOCH_EXHAUSTED


def initialise(
    current: TxnRecord | None, request: InitRequest, *, new_producer_id: int | None, now_ms: int
) -> Decision:
    """Decide about a producer that begins, or comes back.

    Args:
        current: None if nobody has used the transactional id.
        request: what it asks.
        new_producer_id: None as long as none was needed.
        now_ms: wall time.
    """
    if current is None:
        if new_producer_id is None:
            return NeedsProducerId()
        current = TxnRecord(
            transactional_id=request.transactional_id,
            producer_id=new_producer_id,
            timeout_ms=request.timeout_ms,
            updated_ms=now_ms,
        )
    expected = request.expected
    if expected.producer_id != NO_ID and not _is_known(current, expected):
        return Refused(ErrorCode.PRODUCER_FENCED)
    if current.state.is_prepared:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TxnState.ONGOING:
        return AbortsFirst(fenced(current, now_ms))
    fresh = replace(
        current,
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
            return NeedsProducerId()
        return _becomes(
            replace(
                fresh,
                producer_id=new_producer_id,
                previous_producer_id=current.producer_id,
                epoch=0,
                last_epoch=NO_EPOCH if is_first else current.epoch,
            )
        )
    # Three cases: a new producer; the one that has the epoch; the one whose answer was lost.
    if is_first:
        return _becomes(replace(fresh, epoch=current.epoch + 1, last_epoch=NO_EPOCH))
    if current.epoch in {NO_EPOCH, expected.epoch}:
        return _becomes(replace(fresh, epoch=current.epoch + 1, last_epoch=current.epoch))
    if expected.epoch == current.last_epoch:
        return _becomes(fresh)
    return Refused(ErrorCode.PRODUCER_FENCED)


def _is_known(current: TxnRecord, expected: Identity) -> bool:
    """Whether a client that comes back may be the producer that is known."""
    if current.epoch == NO_EPOCH or expected.producer_id == current.producer_id:
        return True
    is_previous = expected.producer_id == current.previous_producer_id
    return is_previous and expected.epoch >= EPOCH_EXHAUSTED


def _becomes(record: TxnRecord) -> Becomes:
    return Becomes(record, Identity(record.producer_id, record.epoch))


def check_producer(current: TxnRecord | None, identity: Identity) -> ErrorCode:
    """Say whether a request comes from the producer that holds the transactional id."""
    if current is None or current.producer_id != identity.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != identity.epoch or identity.epoch == EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add(
    current: TxnRecord | None,
    identity: Identity,
    *,
    partitions: Iterable[Place] = (),
    groups: Iterable[str] = (),
    has_rising_epochs: bool,
    now_ms: int,
) -> Decision:
    """Decide about partitions and groups that a transaction is going to write to."""
    error = check_producer(current, identity)
    if current is None or error:
        return Refused(error)
    if current.state.is_prepared:
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_open = current.state is TxnState.ONGOING
    all_partitions = current.partitions.union(partitions)
    all_groups = current.groups.union(groups)
    if is_open and (all_partitions, all_groups) == (current.partitions, current.groups):
        return Stays(identity)
    if len(all_groups) > GROUPS_MAX:
        return Refused(ErrorCode.POLICY_VIOLATION)
    return Becomes(
        replace(
            current,
            state=TxnState.ONGOING,
            has_rising_epochs=has_rising_epochs,
            partitions=all_partitions,
            groups=all_groups,
            start_ms=current.start_ms if is_open else now_ms,
            updated_ms=now_ms,
        ),
        identity,
    )


def verify(current: TxnRecord | None, identity: Identity, place: Place) -> ErrorCode:
    """Say whether a partition belongs to the producer's open transaction; nothing changes."""
    error = check_producer(current, identity)
    if current is None or error:
        return error
    if current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_added = current.state is TxnState.ONGOING and place in current.partitions
    return ErrorCode.NONE if is_added else ErrorCode.TRANSACTION_ABORTABLE


def end(
    current: TxnRecord | None,
    identity: Identity,
    *,
    is_commit: bool,
    has_rising_epochs: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """Decide about a producer's wish to end its transaction.

    Args:
        current: None if nobody has used the transactional id.
        identity: who asks.
        is_commit: commit or abort.
        has_rising_epochs: the client takes a new epoch with the answer (EndTxn 5).
        new_producer_id: None as long as none was needed.
        now_ms: wall time.
    """
    if has_rising_epochs:
        return _end_rising(
            current, identity, is_commit=is_commit, new_producer_id=new_producer_id, now_ms=now_ms
        )
    error = check_producer(current, identity)
    if current is None or error:
        return Refused(error)
    if current.state is TxnState.ONGOING:
        return Becomes(_prepared(current, is_commit=is_commit, now_ms=now_ms), identity)
    return _again(current, identity, is_commit=is_commit)


def _end_rising(
    current: TxnRecord | None,
    identity: Identity,
    *,
    is_commit: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Decision:
    """End under rising epochs: an old epoch tells a repeated request from the next one."""
    if current is None:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    state, epoch = current.state, identity.epoch
    is_after_overflow = (
        current.previous_producer_id == identity.producer_id
        and epoch == EPOCH_EXHAUSTED
        and current.epoch == 0
    )
    is_fenced_for_good = current.epoch == EPOCH_MAX and state.is_idle
    is_repeated = is_after_overflow or (current.epoch == epoch + 1 and not is_fenced_for_good)
    if current.producer_id != identity.producer_id and not is_after_overflow:
        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = current.epoch == epoch < EPOCH_MAX
    is_valid = is_current if state in {TxnState.ONGOING, TxnState.EMPTY} else is_repeated
    if state in {TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}:
        is_valid = is_repeated or is_current
    if not is_valid:
        return Refused(ErrorCode.PRODUCER_FENCED)
    has_nothing = state is not TxnState.ONGOING
    if has_nothing and (is_repeated or state.is_prepared):
        return _again(current, Identity(current.producer_id, current.epoch), is_commit=is_commit)
    if has_nothing and is_commit:
        return Refused(ErrorCode.INVALID_TXN_STATE)
    next_id = NO_ID
    if is_exhausted(current):
        if new_producer_id is None:
            return NeedsProducerId()
        next_id = new_producer_id
    raised = replace(
        _prepared(current, is_commit=is_commit, now_ms=now_ms),
        epoch=current.epoch + 1,
        last_epoch=current.epoch,
        next_producer_id=next_id,
        has_rising_epochs=True,
        start_ms=now_ms if has_nothing else current.start_ms,
    )
    after = completed(raised, now_ms)
    return Becomes(raised, Identity(after.producer_id, after.epoch))


def _again(current: TxnRecord, identity: Identity, *, is_commit: bool) -> Decision:
    """Answer an end when no transaction is open: the same end again is fine, another is not."""
    match current.state, is_commit:
        case (TxnState.COMPLETE_COMMIT, True) | (TxnState.COMPLETE_ABORT, False):
            return Stays(identity)
        case (TxnState.PREPARE_COMMIT, True) | (TxnState.PREPARE_ABORT, False):
            return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        case _:
            return Refused(ErrorCode.INVALID_TXN_STATE)


def _prepared(current: TxnRecord, *, is_commit: bool, now_ms: int) -> TxnRecord:
    state = TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT
    return replace(current, state=state, updated_ms=now_ms)


def fenced(current: TxnRecord, now_ms: int) -> TxnRecord:
    """Return the abort of an open transaction whose producer must not write any more.

    It may come back, by InitProducerId (KIP-588) or by the abort that it has not heard of, and then
    goes on with the new epoch; unless that is the last one, which no client gets.
    """
    assert current.state is TxnState.ONGOING, f"nothing to abort in {current.state}"
    assert current.epoch < EPOCH_MAX, "the epoch that was kept for fencing is used up"
    epoch = current.epoch + 1
    return replace(
        _prepared(current, is_commit=False, now_ms=now_ms),
        epoch=epoch,
        last_epoch=NO_EPOCH if epoch == EPOCH_MAX else current.epoch,
    )


def ended_but_in(prepared: TxnRecord, refused: Iterable[Place]) -> TxnRecord:
    """Return what is left of an outcome when all partitions but some have taken their markers."""
    assert prepared.state.is_prepared, f"nothing to end in {prepared.state}"
    return replace(prepared, partitions=prepared.partitions.intersection(refused))


def completed(prepared: TxnRecord, now_ms: int) -> TxnRecord:
    """Return the record that holds when all markers are durable."""
    assert prepared.state.is_prepared, f"nothing to complete in {prepared.state}"
    is_commit = prepared.state is TxnState.PREPARE_COMMIT
    record = replace(
        prepared,
        state=TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
        partitions=frozenset(),
        groups=frozenset(),
        start_ms=NO_TIME,
        next_producer_id=NO_ID,
        updated_ms=now_ms,
    )
    if prepared.next_producer_id == NO_ID:
        return record
    return replace(
        record,
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
