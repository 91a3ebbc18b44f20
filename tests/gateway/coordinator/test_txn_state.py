"""Which step of a transaction may follow which; rows 110 to 125 of docs/SCENARIOS.md."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.gateway.coordinator.txn_record import NO_EPOCH, NO_TIME, TxnRecord, TxnState
from kledger.gateway.coordinator.txn_state import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    GROUPS_MAX,
    NOBODY,
    AbortsFirst,
    Becomes,
    Decision,
    Identity,
    InitRequest,
    NeedsProducerId,
    Refused,
    Stays,
    add,
    completed,
    end,
    ended_but_in,
    fenced,
    initialise,
    is_expired,
    is_timed_out,
    verify,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import Place

HERE = Place("t", 0)
NOW = 1_000
ME = Identity(7, 4)
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
    current: TxnRecord | None, expected: Identity = NOBODY, new_id: int | None = None
) -> Decision:
    request = InitRequest("x", 100, expected)
    return initialise(current, request, new_producer_id=new_id, now_ms=NOW)


def ended(
    current: TxnRecord | None,
    identity: Identity = ME,
    *,
    is_commit: bool = True,
    rising: bool = False,
    new_id: int | None = None,
) -> Decision:
    return end(
        current,
        identity,
        is_commit=is_commit,
        has_rising_epochs=rising,
        new_producer_id=new_id,
        now_ms=NOW,
    )


def became(decision: Decision) -> TxnRecord:
    assert isinstance(decision, Becomes), decision
    return decision.record


# InitProducerId


def test_the_first_producer_gets_a_new_id_and_epoch_0() -> None:
    assert NeedsProducerId() == init(None)
    decision = init(None, new_id=9)
    assert isinstance(decision, Becomes)
    assert Identity(9, 0) == decision.identity
    assert (TxnState.EMPTY, 100, NOW) == (
        decision.record.state, decision.record.timeout_ms, decision.record.updated_ms,
    )  # fmt: skip


@pytest.mark.parametrize(
    "state", [TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT]
)
def test_another_producer_raises_the_epoch(state: TxnState) -> None:
    decision = init(record(state))
    assert isinstance(decision, Becomes)
    assert Identity(7, 5) == decision.identity
    assert NO_EPOCH == decision.record.last_epoch, "the one before is fenced for good"


def test_row_110_an_open_transaction_is_aborted_first() -> None:
    decision = init(record())
    assert isinstance(decision, AbortsFirst)
    assert (TxnState.PREPARE_ABORT, 5) == (decision.record.state, decision.record.epoch)
    assert Refused(CONCURRENT) == init(decision.record)
    after = completed(decision.record, NOW)
    assert Identity(7, 6) == became_identity(init(after))


def became_identity(decision: Decision) -> Identity:
    assert isinstance(decision, Becomes), decision
    return decision.identity


@pytest.mark.parametrize(
    ("expected", "identity"),
    [
        (Identity(7, 4), Identity(7, 5)),  # KIP-360: it has the epoch
        (Identity(7, 3), Identity(7, 4)),  # its answer was lost: it gets the same one again
    ],
)
def test_a_producer_that_comes_back_goes_on(expected: Identity, identity: Identity) -> None:
    assert identity == became_identity(init(record(TxnState.EMPTY), expected))


@pytest.mark.parametrize("expected", [Identity(7, 2), Identity(7, 5), Identity(8, 4)])
def test_a_producer_that_was_overtaken_is_fenced(expected: Identity) -> None:
    assert Refused(FENCED) == init(record(TxnState.EMPTY), expected)


def test_row_112_used_up_epochs_bring_a_new_producer_id() -> None:
    used_up = record(TxnState.COMPLETE_COMMIT, epoch=EPOCH_EXHAUSTED)
    assert NeedsProducerId() == init(used_up)
    decision = init(used_up, new_id=9)
    assert isinstance(decision, Becomes)
    assert (Identity(9, 0), 7) == (decision.identity, decision.record.previous_producer_id)
    back = init(used_up, Identity(7, EPOCH_EXHAUSTED), new_id=9)
    assert Identity(9, 0) == became_identity(back)
    again = init(became(back), Identity(7, EPOCH_EXHAUSTED))
    assert Identity(9, 0) == became_identity(again), "its answer was lost"


# AddPartitionsToTxn


def added(current: TxnRecord | None, identity: Identity = ME, place: Place = HERE) -> Decision:
    return add(current, identity, partitions=[place], has_rising_epochs=False, now_ms=NOW)


@pytest.mark.parametrize(
    ("current", "identity", "error"),
    [
        (None, ME, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), Identity(8, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), Identity(7, 3), FENCED),
        (record(), Identity(7, 5), FENCED),
        (record(TxnState.PREPARE_COMMIT), ME, CONCURRENT),
        (record(TxnState.PREPARE_ABORT), ME, CONCURRENT),
    ],
)
def test_adding_is_refused(current: TxnRecord | None, identity: Identity, error: ErrorCode) -> None:
    assert Refused(error) == added(current, identity)
    assert error == verify(current, identity, HERE)


@pytest.mark.parametrize("state", [state for state in TxnState if state.is_idle])
def test_the_first_partition_begins_a_transaction(state: TxnState) -> None:
    after = became(added(record(state)))
    assert (TxnState.ONGOING, frozenset({HERE}), NOW) == (
        after.state,
        after.partitions,
        after.start_ms,
    )


def test_further_partitions_join_and_the_same_one_changes_nothing() -> None:
    assert Stays(ME) == added(record())
    after = became(added(record(), place=Place("t", 1)))
    assert (frozenset({HERE, Place("t", 1)}), 900) == (after.partitions, after.start_ms)
    group = add(record(), ME, groups=["g"], has_rising_epochs=True, now_ms=NOW)
    assert (frozenset({"g"}), True) == (became(group).groups, became(group).has_rising_epochs)


def test_row_114_a_partition_that_was_not_added_is_not_verified() -> None:
    assert ErrorCode.NONE == verify(record(), ME, HERE)
    assert ErrorCode.TRANSACTION_ABORTABLE == verify(record(), ME, Place("t", 1))
    assert ErrorCode.TRANSACTION_ABORTABLE == verify(record(TxnState.EMPTY), ME, HERE)


# EndTxn

OLD_ENDS = [
    (TxnState.COMPLETE_COMMIT, True, Stays(ME)),
    (TxnState.COMPLETE_COMMIT, False, Refused(INVALID)),
    (TxnState.COMPLETE_ABORT, True, Refused(INVALID)),
    (TxnState.COMPLETE_ABORT, False, Stays(ME)),
    (TxnState.PREPARE_COMMIT, True, Refused(CONCURRENT)),
    (TxnState.PREPARE_COMMIT, False, Refused(INVALID)),
    (TxnState.PREPARE_ABORT, True, Refused(INVALID)),
    (TxnState.PREPARE_ABORT, False, Refused(CONCURRENT)),
    (TxnState.EMPTY, True, Refused(INVALID)),
    (TxnState.EMPTY, False, Refused(INVALID)),
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
    assert Identity(7, 4 + rising) == became_identity(decision)
    after = completed(prepared, NOW + 1)
    assert is_commit == (after.state is TxnState.COMPLETE_COMMIT)
    assert (frozenset(), NO_TIME, 4 + rising) == (after.partitions, after.start_ms, after.epoch)


@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize(
    ("current", "identity", "error"),
    [
        (None, ME, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), Identity(8, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (record(), Identity(7, 3), FENCED),
        (record(), Identity(7, 5), FENCED),
    ],
)
def test_end_of_somebody_else(
    current: TxnRecord | None, identity: Identity, error: ErrorCode, rising: bool
) -> None:
    assert Refused(error) == ended(current, identity, rising=rising)


def test_row_123_repeated_end_under_rising_epochs() -> None:
    """The answer was lost: the same end brings the same producer, the other one is an error."""
    done = completed(became(ended(record(), rising=True)), NOW)
    assert Stays(Identity(7, 5)) == ended(done, ME, rising=True)
    assert Refused(INVALID) == ended(done, ME, is_commit=False, rising=True)
    prepared = became(ended(record(), is_commit=False, rising=True))
    assert Refused(CONCURRENT) == ended(prepared, ME, is_commit=False, rising=True)
    assert Refused(INVALID) == ended(prepared, ME, rising=True)
    assert Refused(FENCED) == ended(prepared, Identity(7, 5), rising=True)


@pytest.mark.parametrize("state", [state for state in TxnState if state.is_idle])
def test_rising_epochs_allow_an_abort_of_nothing(state: TxnState) -> None:
    after = became(ended(record(state), is_commit=False, rising=True))
    assert (TxnState.PREPARE_ABORT, 5, NOW) == (after.state, after.epoch, after.start_ms)
    assert Refused(INVALID) == ended(record(state), rising=True)


def test_row_112_end_with_the_last_epoch_brings_a_new_producer_id() -> None:
    last = record(epoch=EPOCH_EXHAUSTED)
    me = Identity(7, EPOCH_EXHAUSTED)
    assert NeedsProducerId() == ended(last, me, rising=True)
    decision = ended(last, me, rising=True, new_id=9)
    assert Identity(9, 0) == became_identity(decision)
    prepared = became(decision)
    assert (7, EPOCH_MAX) == (prepared.producer_id, prepared.epoch), "markers are the old one's"
    done = completed(prepared, NOW)
    assert (9, 0, 7) == (done.producer_id, done.epoch, done.previous_producer_id)
    assert Stays(Identity(9, 0)) == ended(done, me, rising=True), "its answer was lost"


def test_a_transaction_takes_so_many_groups() -> None:
    full = replace(record(), groups=frozenset(map(str, range(GROUPS_MAX))))
    for group, expected in (("0", Stays(ME)), ("new", Refused(ErrorCode.POLICY_VIOLATION))):
        assert expected == add(full, ME, groups=[group], has_rising_epochs=False, now_ms=NOW)


def test_what_has_taken_its_marker_is_not_asked_again() -> None:
    prepared = replace(record(TxnState.PREPARE_ABORT), partitions=frozenset({HERE, Place("t", 1)}))
    left = ended_but_in(prepared, [HERE, Place("gone", 0)])
    assert replace(prepared, partitions=frozenset({HERE})) == left
    assert completed(prepared, NOW) == completed(ended_but_in(left, ()), NOW)


# Time


def test_row_125_a_transaction_times_out_and_its_producer_is_fenced() -> None:
    assert not is_timed_out(record(), 1_000)
    assert is_timed_out(record(), 1_001)
    assert not is_timed_out(record(TxnState.PREPARE_COMMIT), 10_000)
    for rising in (False, True):
        aborted = fenced(replace(record(), has_rising_epochs=rising), NOW)
        assert Refused(CONCURRENT) == added(aborted, Identity(7, aborted.epoch))
        done = completed(aborted, NOW)
        goes_on_as = Identity(7, 5)
        assert goes_on_as == became_identity(init(done, ME)), "it may come back (KIP-588)"
        assert (Refused(INVALID) if rising else Refused(FENCED)) == ended(done, ME, rising=rising)
        abort = ended(done, ME, is_commit=False, rising=rising)
        assert (Stays(goes_on_as) if rising else Refused(FENCED)) == abort
        assert Refused(FENCED) == added(done), "nothing of its old epoch enters"
        taken_over = became(init(done))
        assert Refused(FENCED) == init(taken_over, ME), "somebody else has come meanwhile"


def test_the_last_epoch_can_be_fenced() -> None:
    assert EPOCH_MAX == fenced(record(epoch=EPOCH_EXHAUSTED), NOW).epoch
    rising = replace(record(epoch=EPOCH_EXHAUSTED), has_rising_epochs=True)
    done = completed(fenced(rising, NOW), NOW)
    assert EPOCH_MAX == done.epoch
    me = Identity(7, EPOCH_EXHAUSTED)
    assert Refused(FENCED) == init(done, me), "the last epoch is nobody's"
    for is_commit in (False, True):
        assert Refused(FENCED) == ended(done, me, is_commit=is_commit, rising=True)
    assert Identity(9, 0) == became_identity(init(done, new_id=9))


def test_whoever_names_the_last_epoch_is_not_believed() -> None:
    """A transaction begun with it could not be fenced, and no epoch is left for its end."""
    done = completed(fenced(record(epoch=EPOCH_EXHAUSTED), NOW), NOW)
    liar = Identity(7, EPOCH_MAX)
    begun = add(done, liar, partitions=[HERE], has_rising_epochs=False, now_ms=NOW)
    assert Refused(FENCED) == begun
    assert FENCED is verify(done, liar, HERE)
    for is_commit, rising in product((False, True), repeat=2):
        assert Refused(FENCED) == ended(done, liar, is_commit=is_commit, rising=rising, new_id=9)


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
        self.known: list[Identity] = [Identity(1, 0)]
        self.epochs: dict[int, int] = {}
        """The highest epoch seen of each producer id."""

    def take(self, decision: Decision) -> Decision:
        """Do what the shell does."""
        match decision:
            case Becomes(new, identity):
                self.record = new
                self.known.append(identity)
            case AbortsFirst(new):
                self.record = new
        return decision

    @rule(index=st.integers(0, 30), is_first=st.booleans())
    def initialise(self, index: int, is_first: bool) -> None:
        expected = NOBODY if is_first else self.known[index % len(self.known)]
        request = InitRequest("x", 50, expected)
        decision = initialise(self.record, request, new_producer_id=None, now_ms=self.now_ms)
        if isinstance(decision, NeedsProducerId):
            self.next_id += 1
            decision = initialise(
                self.record, request, new_producer_id=self.next_id, now_ms=self.now_ms
            )
        self.take(decision)

    @rule(index=st.integers(0, 30), partition=st.integers(0, 3), rising=st.booleans())
    def add(self, index: int, partition: int, rising: bool) -> None:
        identity = self.known[index % len(self.known)]
        place = Place("t", partition)
        before = self.record
        decision = self.take(
            add(self.record, identity, partitions=[place], has_rising_epochs=rising, now_ms=0)
        )
        if isinstance(decision, Becomes | Stays):
            assert before is not None
            assert identity == (before.producer_id, before.epoch), "an older producer wrote"
            assert ErrorCode.NONE == verify(self.record, identity, place)

    @rule(index=st.integers(0, 30), is_commit=st.booleans(), rising=st.booleans())
    def end(self, index: int, is_commit: bool, rising: bool) -> None:
        identity = self.known[index % len(self.known)]
        self.next_id += 1
        decision = end(
            self.record,
            identity,
            is_commit=is_commit,
            has_rising_epochs=rising,
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
            self.take(AbortsFirst(fenced(self.record, self.now_ms)))

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
