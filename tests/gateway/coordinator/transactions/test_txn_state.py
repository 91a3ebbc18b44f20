"""Which step of a transaction may follow which; rows 110 to 125 of docs/SCENARIOS.md."""

from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.gateway.coordinator.transactions.txn_record import (
    NO_EPOCH,
    NO_TIME,
    TxnRecord,
    TxnState,
)
from kledger.gateway.coordinator.transactions.txn_state import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    GROUPS_MAX,
    NO_PRODUCER,
    AbortFirst,
    Decision,
    InitProducerId,
    NeedProducerId,
    ProducerIdAndEpoch,
    Rejected,
    StoreRecord,
    Unchanged,
    abort_of,
    add,
    completed,
    end,
    initialise,
    is_expired,
    is_timed_out,
    verify,
    with_unmarked,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import TopicPartition

HERE = TopicPartition("t", 0)
NOW = 1_000
ME = ProducerIdAndEpoch(7, 4)
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE


def record(state: TxnState = TxnState.ONGOING, *, epoch: int = 4, last_epoch: int = 3) -> TxnRecord:
    has_parts = state is TxnState.ONGOING or state.is_prepared
    return TxnRecord(
        transactional_id="x",
        producer_id=7,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=100,
        state=state,
        partitions=frozenset({HERE} if has_parts else ()),
        start_ms=900 if has_parts else NO_TIME,
        updated_ms=900,
    )


def init(
    current: TxnRecord | None, expected: ProducerIdAndEpoch = NO_PRODUCER, new_id: int | None = None
) -> Decision:
    request = InitProducerId("x", 100, expected)
    return initialise(current, request, new_producer_id=new_id, now_ms=NOW)


def ended(
    current: TxnRecord | None,
    producer: ProducerIdAndEpoch = ME,
    *,
    is_commit: bool = True,
    rising: bool = False,
    new_id: int | None = None,
) -> Decision:
    return end(
        current,
        producer,
        is_commit=is_commit,
        is_v2=rising,
        new_producer_id=new_id,
        now_ms=NOW,
    )


def became(decision: Decision) -> TxnRecord:
    assert isinstance(decision, StoreRecord), decision
    return decision.record


# InitProducerId


def test_the_first_producer_gets_a_new_id_and_epoch_0() -> None:
    assert NeedProducerId() == init(None)
    decision = init(None, new_id=9)
    assert isinstance(decision, StoreRecord)
    assert ProducerIdAndEpoch(9, 0) == decision.producer
    assert (TxnState.EMPTY, 100, NOW) == (
        decision.record.state, decision.record.timeout_ms, decision.record.updated_ms,
    )  # fmt: skip


@pytest.mark.parametrize(
    "state", [TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT]
)
def test_another_producer_raises_the_epoch(state: TxnState) -> None:
    decision = init(record(state))
    assert isinstance(decision, StoreRecord)
    assert ProducerIdAndEpoch(7, 5) == decision.producer
    assert NO_EPOCH == decision.record.last_epoch, "the one before is fenced for good"


def test_row_110_an_open_transaction_is_aborted_first() -> None:
    decision = init(record())
    assert isinstance(decision, AbortFirst)
    assert (TxnState.PREPARE_ABORT, 5) == (decision.record.state, decision.record.epoch)
    assert Rejected(CONCURRENT) == init(decision.record)
    after = completed(decision.record, NOW)
    assert ProducerIdAndEpoch(7, 6) == became_identity(init(after))


def became_identity(decision: Decision) -> ProducerIdAndEpoch:
    assert isinstance(decision, StoreRecord), decision
    return decision.producer


@pytest.mark.parametrize(
    ("expected", "producer"),
    [
        (ProducerIdAndEpoch(7, 4), ProducerIdAndEpoch(7, 5)),  # KIP-360: it has the epoch
        (
            ProducerIdAndEpoch(7, 3),
            ProducerIdAndEpoch(7, 4),
        ),  # its answer was lost: it gets the same one again
    ],
)
def test_a_producer_that_returns_continues(
    expected: ProducerIdAndEpoch, producer: ProducerIdAndEpoch
) -> None:
    assert producer == became_identity(init(record(TxnState.EMPTY), expected))


@pytest.mark.parametrize(
    "expected", [ProducerIdAndEpoch(7, 2), ProducerIdAndEpoch(7, 5), ProducerIdAndEpoch(8, 4)]
)
def test_a_producer_that_was_overtaken_is_fenced(expected: ProducerIdAndEpoch) -> None:
    assert Rejected(FENCED) == init(record(TxnState.EMPTY), expected)


def test_row_112_used_up_epochs_bring_a_new_producer_id() -> None:
    used_up = record(TxnState.COMPLETE_COMMIT, epoch=EPOCH_EXHAUSTED)
    assert NeedProducerId() == init(used_up)
    decision = init(used_up, new_id=9)
    assert isinstance(decision, StoreRecord)
    assert (ProducerIdAndEpoch(9, 0), 7) == (
        decision.producer,
        decision.record.previous_producer_id,
    )
    back = init(used_up, ProducerIdAndEpoch(7, EPOCH_EXHAUSTED), new_id=9)
    assert ProducerIdAndEpoch(9, 0) == became_identity(back)
    again = init(became(back), ProducerIdAndEpoch(7, EPOCH_EXHAUSTED))
    assert ProducerIdAndEpoch(9, 0) == became_identity(again), "its answer was lost"


# AddPartitionsToTxn


def added(
    current: TxnRecord | None,
    producer: ProducerIdAndEpoch = ME,
    topic_partition: TopicPartition = HERE,
) -> Decision:
    return add(current, producer, partitions=[topic_partition], is_v2=False, now_ms=NOW)


@pytest.mark.parametrize(
    ("current", "producer", "error"),
    [
        (None, ME, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), ProducerIdAndEpoch(8, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), ProducerIdAndEpoch(7, 3), FENCED),
        (record(), ProducerIdAndEpoch(7, 5), FENCED),
        (record(TxnState.PREPARE_COMMIT), ME, CONCURRENT),
        (record(TxnState.PREPARE_ABORT), ME, CONCURRENT),
    ],
)
def test_adding_is_refused(
    current: TxnRecord | None, producer: ProducerIdAndEpoch, error: ErrorCode
) -> None:
    assert Rejected(error) == added(current, producer)
    assert error == verify(current, producer, HERE)


@pytest.mark.parametrize("state", [state for state in TxnState if state.is_idle])
def test_the_first_partition_begins_a_transaction(state: TxnState) -> None:
    after = became(added(record(state)))
    assert (TxnState.ONGOING, frozenset({HERE}), NOW) == (
        after.state,
        after.partitions,
        after.start_ms,
    )


def test_further_partitions_join_and_the_same_one_changes_nothing() -> None:
    assert Unchanged(ME) == added(record())
    after = became(added(record(), topic_partition=TopicPartition("t", 1)))
    assert (frozenset({HERE, TopicPartition("t", 1)}), 900) == (after.partitions, after.start_ms)
    group = add(record(), ME, groups=["g"], is_v2=True, now_ms=NOW)
    assert (frozenset({"g"}), True) == (became(group).groups, became(group).is_v2)


def test_row_114_a_partition_that_was_not_added_is_not_verified() -> None:
    assert ErrorCode.NONE == verify(record(), ME, HERE)
    assert ErrorCode.TRANSACTION_ABORTABLE == verify(record(), ME, TopicPartition("t", 1))
    assert ErrorCode.TRANSACTION_ABORTABLE == verify(record(TxnState.EMPTY), ME, HERE)


# EndTxn

OLD_ENDS = [
    (TxnState.COMPLETE_COMMIT, True, Unchanged(ME)),
    (TxnState.COMPLETE_COMMIT, False, Rejected(INVALID)),
    (TxnState.COMPLETE_ABORT, True, Rejected(INVALID)),
    (TxnState.COMPLETE_ABORT, False, Unchanged(ME)),
    (TxnState.PREPARE_COMMIT, True, Rejected(CONCURRENT)),
    (TxnState.PREPARE_COMMIT, False, Rejected(INVALID)),
    (TxnState.PREPARE_ABORT, True, Rejected(INVALID)),
    (TxnState.PREPARE_ABORT, False, Rejected(CONCURRENT)),
    (TxnState.EMPTY, True, Rejected(INVALID)),
    (TxnState.EMPTY, False, Rejected(INVALID)),
]


@pytest.mark.parametrize(("state", "is_commit", "expected"), OLD_ENDS)
def test_end_without_an_open_transaction(
    state: TxnState, is_commit: bool, expected: Decision
) -> None:
    assert expected == ended(record(state), is_commit=is_commit)


@pytest.mark.parametrize(
    ("is_commit", "rising"), [(c, r) for c in (True, False) for r in (False, True)]
)
def test_end_of_an_open_transaction(is_commit: bool, rising: bool) -> None:
    decision = ended(record(), is_commit=is_commit, rising=rising)
    prepared = became(decision)
    assert is_commit == (prepared.state is TxnState.PREPARE_COMMIT)
    assert {HERE} == prepared.partitions
    assert 4 + rising == prepared.epoch
    assert ProducerIdAndEpoch(7, 4 + rising) == became_identity(decision)
    after = completed(prepared, NOW + 1)
    assert is_commit == (after.state is TxnState.COMPLETE_COMMIT)
    assert (frozenset(), NO_TIME, 4 + rising) == (after.partitions, after.start_ms, after.epoch)


@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize(
    ("current", "producer", "error"),
    [
        (None, ME, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), ProducerIdAndEpoch(8, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), ProducerIdAndEpoch(7, 3), FENCED),
        (record(), ProducerIdAndEpoch(7, 5), FENCED),
    ],
)
def test_end_by_another_producer(
    current: TxnRecord | None, producer: ProducerIdAndEpoch, error: ErrorCode, rising: bool
) -> None:
    assert Rejected(error) == ended(current, producer, rising=rising)


def test_row_123_repeated_end_under_rising_epochs() -> None:
    """The answer was lost: the same end brings the same producer, the other one is an error."""
    done = completed(became(ended(record(), rising=True)), NOW)
    assert Unchanged(ProducerIdAndEpoch(7, 5)) == ended(done, ME, rising=True)
    assert Rejected(INVALID) == ended(done, ME, is_commit=False, rising=True)
    prepared = became(ended(record(), is_commit=False, rising=True))
    assert Rejected(CONCURRENT) == ended(prepared, ME, is_commit=False, rising=True)
    assert Rejected(INVALID) == ended(prepared, ME, rising=True)
    assert Rejected(FENCED) == ended(prepared, ProducerIdAndEpoch(7, 5), rising=True)


@pytest.mark.parametrize("state", [state for state in TxnState if state.is_idle])
def test_rising_epochs_allow_an_abort_of_nothing(state: TxnState) -> None:
    after = became(ended(record(state), is_commit=False, rising=True))
    assert (TxnState.PREPARE_ABORT, 5, NOW) == (after.state, after.epoch, after.start_ms)
    assert Rejected(INVALID) == ended(record(state), rising=True)


def test_row_112_end_with_the_last_epoch_brings_a_new_producer_id() -> None:
    last = record(epoch=EPOCH_EXHAUSTED)
    me = ProducerIdAndEpoch(7, EPOCH_EXHAUSTED)
    assert NeedProducerId() == ended(last, me, rising=True)
    decision = ended(last, me, rising=True, new_id=9)
    assert ProducerIdAndEpoch(9, 0) == became_identity(decision)
    prepared = became(decision)
    assert (7, EPOCH_MAX) == (prepared.producer_id, prepared.epoch), "markers are the old one's"
    done = completed(prepared, NOW)
    assert (9, 0, 7) == (done.producer_id, done.epoch, done.previous_producer_id)
    assert Unchanged(ProducerIdAndEpoch(9, 0)) == ended(done, me, rising=True), (
        "its answer was lost"
    )


def test_a_transaction_takes_so_many_groups() -> None:
    full = record()._replace(groups=frozenset(map(str, range(GROUPS_MAX))))
    for group, expected in (("0", Unchanged(ME)), ("new", Rejected(ErrorCode.POLICY_VIOLATION))):
        assert expected == add(full, ME, groups=[group], is_v2=False, now_ms=NOW)


def test_what_has_taken_its_marker_is_not_asked_again() -> None:
    prepared = record(TxnState.PREPARE_ABORT)._replace(
        partitions=frozenset({HERE, TopicPartition("t", 1)}),
        groups=frozenset({"a", "b"}),
    )
    left = with_unmarked(prepared, [HERE, TopicPartition("gone", 0)], ["b", "gone"])
    assert prepared._replace(partitions=frozenset({HERE}), groups=frozenset({"b"})) == left
    assert completed(prepared, NOW) == completed(with_unmarked(left, (), ()), NOW)


# Time


def test_row_125_a_transaction_times_out_and_its_producer_is_fenced() -> None:
    assert not is_timed_out(record(), 1_000)
    assert is_timed_out(record(), 1_001)
    assert not is_timed_out(record(TxnState.PREPARE_COMMIT), 10_000)
    for rising in (False, True):
        aborted = abort_of(record()._replace(is_v2=rising), NOW)
        assert Rejected(CONCURRENT) == added(aborted, ProducerIdAndEpoch(7, aborted.epoch))
        done = completed(aborted, NOW)
        goes_on_as = ProducerIdAndEpoch(7, 5)
        assert goes_on_as == became_identity(init(done, ME)), "it may come back (KIP-588)"
        assert (Rejected(INVALID) if rising else Rejected(FENCED)) == ended(done, ME, rising=rising)
        abort = ended(done, ME, is_commit=False, rising=rising)
        assert (Unchanged(goes_on_as) if rising else Rejected(FENCED)) == abort
        assert Rejected(FENCED) == added(done), "nothing of its old epoch enters"
        taken_over = became(init(done))
        assert Rejected(FENCED) == init(taken_over, ME), (
            "another producer has initialised meanwhile"
        )


def test_the_last_epoch_can_be_fenced() -> None:
    assert EPOCH_MAX == abort_of(record(epoch=EPOCH_EXHAUSTED), NOW).epoch
    rising = record(epoch=EPOCH_EXHAUSTED)._replace(is_v2=True)
    done = completed(abort_of(rising, NOW), NOW)
    assert EPOCH_MAX == done.epoch
    me = ProducerIdAndEpoch(7, EPOCH_EXHAUSTED)
    assert Rejected(FENCED) == init(done, me), "no producer gets the last epoch"
    for is_commit in (False, True):
        assert Rejected(FENCED) == ended(done, me, is_commit=is_commit, rising=True)
    assert ProducerIdAndEpoch(9, 0) == became_identity(init(done, new_id=9))


def test_request_with_the_last_epoch_is_rejected() -> None:
    """A transaction begun with it could not be fenced, and no epoch is left for its end."""
    done = completed(abort_of(record(epoch=EPOCH_EXHAUSTED), NOW), NOW)
    liar = ProducerIdAndEpoch(7, EPOCH_MAX)
    begun = add(done, liar, partitions=[HERE], is_v2=False, now_ms=NOW)
    assert Rejected(FENCED) == begun
    assert FENCED is verify(done, liar, HERE)
    for is_commit, rising in product((False, True), repeat=2):
        assert Rejected(FENCED) == ended(done, liar, is_commit=is_commit, rising=rising, new_id=9)


@pytest.mark.parametrize("state", list(TxnState))
def test_only_idle_ids_expire(state: TxnState) -> None:
    assert not is_expired(record(state), 100, 999)
    assert state.is_idle == is_expired(record(state), 100, 1_000)


class TransactionMachine(RuleBasedStateMachine):
    """Producers that begin, write, end, repeat themselves and come back from the past."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.record: TxnRecord | None = None
        self.next_id = 100
        self.known: list[ProducerIdAndEpoch] = [ProducerIdAndEpoch(1, 0)]
        self.epochs: dict[int, int] = {}
        """The highest epoch seen of each producer id."""

    def take(self, decision: Decision) -> Decision:
        """Do what the shell does."""
        match decision:
            case StoreRecord(new, producer):
                self.record = new
                self.known.append(producer)
            case AbortFirst(new):
                self.record = new
        return decision

    @rule(index=st.integers(0, 30), is_first=st.booleans())
    def initialise(self, index: int, is_first: bool) -> None:
        expected = NO_PRODUCER if is_first else self.known[index % len(self.known)]
        request = InitProducerId("x", 50, expected)
        decision = initialise(self.record, request, new_producer_id=None, now_ms=self.now_ms)
        if isinstance(decision, NeedProducerId):
            self.next_id += 1
            decision = initialise(
                self.record, request, new_producer_id=self.next_id, now_ms=self.now_ms
            )
        self.take(decision)

    @rule(index=st.integers(0, 30), partition=st.integers(0, 3), rising=st.booleans())
    def add(self, index: int, partition: int, rising: bool) -> None:
        producer = self.known[index % len(self.known)]
        topic_partition = TopicPartition("t", partition)
        before = self.record
        decision = self.take(
            add(self.record, producer, partitions=[topic_partition], is_v2=rising, now_ms=0)
        )
        if isinstance(decision, StoreRecord | Unchanged):
            assert before is not None
            assert producer == (before.producer_id, before.epoch), "an older producer wrote"
            assert ErrorCode.NONE == verify(self.record, producer, topic_partition)

    @rule(index=st.integers(0, 30), is_commit=st.booleans(), rising=st.booleans())
    def end(self, index: int, is_commit: bool, rising: bool) -> None:
        producer = self.known[index % len(self.known)]
        self.next_id += 1
        decision = end(
            self.record,
            producer,
            is_commit=is_commit,
            is_v2=rising,
            new_producer_id=self.next_id,
            now_ms=self.now_ms,
        )
        self.take(decision)

    @rule()
    def complete(self) -> None:
        if self.record is not None and self.record.state.is_prepared:
            self.record = completed(self.record, self.now_ms)

    @rule(by_ms=st.integers(1, 200))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        if self.record is not None and is_timed_out(self.record, self.now_ms):
            self.take(AbortFirst(abort_of(self.record, self.now_ms)))

    @invariant()
    def epochs_are_in_range_and_parts_belong_to_a_transaction(self) -> None:
        one = self.record
        if one is None:
            return
        assert NO_EPOCH <= one.epoch <= EPOCH_MAX
        assert self.epochs.get(one.producer_id, NO_EPOCH) <= one.epoch, "an epoch fell"
        self.epochs[one.producer_id] = one.epoch
        if one.state.is_idle:
            assert (frozenset(), frozenset(), NO_TIME) == (
                one.partitions, one.groups, one.start_ms,
            )  # fmt: skip
        if one.state is TxnState.ONGOING:
            assert one.partitions


TestTransactionMachine = TransactionMachine.TestCase
