"""The window of five batches, epochs, expiry, and undoing."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.topics.errors import CoordinatorFenced, InvalidProducerEpoch, OutOfOrderSequence
from kledger.topics.partition.producer_state import (
    NO_TRANSACTION,
    SEQUENCE_MASK,
    WINDOW_BATCHES,
    BatchRange,
    ProducerEntry,
    ProducerTable,
    last_sequence,
)
from kledger.topics.partition.transaction_state import TransactionEnd


def table(**limits: int) -> ProducerTable:
    return ProducerTable(**{"expiration_ms": 1000, "count_max": 100, **limits})


def put(producers: ProducerTable, first: int, count: int = 1, *, epoch: int = 0, now_ms: int = 0,
        producer_id: int = 9, base: int | None = None,
        transaction_start: int = NO_TRANSACTION) -> ProducerEntry | None:  # fmt: skip
    base = first if base is None else base
    each = BatchRange(first, last_sequence(first, count), base, base + count, -1)
    return producers.append(producer_id, epoch, each, now_ms, transaction_start)


def test_last_sequence_wraps_after_the_largest() -> None:
    assert [0, 4, SEQUENCE_MASK, 0, 1] == [
        last_sequence(0, 1), last_sequence(0, 5), last_sequence(SEQUENCE_MASK, 1),
        last_sequence(SEQUENCE_MASK, 2), last_sequence(SEQUENCE_MASK - 1, 4),
    ]  # fmt: skip


def test_unknown_producer_may_begin_anywhere() -> None:
    assert table().admit(9, 3, 57, 10, 0) is None


def test_window_remembers_five_batches() -> None:
    producers = table()
    for sequence in range(6):
        put(producers, sequence)
    for sequence in range(1, 6):
        found = producers.admit(9, 0, sequence, 1, 0)
        assert found is not None
        assert sequence == found.base_offset
    with pytest.raises(OutOfOrderSequence, match="base sequence 0, expected 6"):
        producers.admit(9, 0, 0, 1, 0)


@pytest.mark.parametrize(("first", "count"), [(0, 4), (0, 6), (1, 4), (4, 1), (6, 1), (10, 1)])
def test_only_an_exact_repeat_is_a_duplicate(first: int, count: int) -> None:
    producers = table()
    put(producers, 0, 5)
    with pytest.raises(OutOfOrderSequence):
        producers.admit(9, 0, first, count, 0)
    assert producers.admit(9, 0, 5, 3, 0) is None


def test_epochs_go_up_and_begin_at_zero() -> None:
    producers = table()
    put(producers, 0, 5, epoch=1)
    with pytest.raises(InvalidProducerEpoch, match="epoch 0, expected at least 1"):
        producers.admit(9, 0, 5, 1, 0)
    with pytest.raises(OutOfOrderSequence, match="expected 0 in the new epoch 2"):
        producers.admit(9, 2, 5, 1, 0)
    assert producers.admit(9, 2, 0, 1, 0) is None
    put(producers, 0, 1, epoch=2)
    with pytest.raises(OutOfOrderSequence):
        producers.admit(9, 2, 4, 1, 0)


def test_expired_producer_is_unknown_and_its_old_batches_are_forgotten() -> None:
    """A window that mixed batches from before and after would name an offset of long ago."""
    producers = table()
    put(producers, 0, 5, base=100)
    assert producers.admit(9, 0, 0, 5, 1001) is None
    put(producers, 0, 5, base=900, now_ms=1001)
    found = producers.admit(9, 0, 0, 5, 1001)
    assert found is not None
    assert 900 == found.base_offset


def test_expire_forgets_the_idle_only() -> None:
    producers = table()
    put(producers, 0, producer_id=1, now_ms=0)
    put(producers, 0, producer_id=2, now_ms=500)
    put(producers, 0, producer_id=3, now_ms=0, transaction_start=0)
    assert 0 == producers.expire(1000)
    assert 1 == producers.expire(1001)
    assert [2, 3] == [producer_id for producer_id, _ in producers.items()]


def test_a_marker_needs_the_newest_epoch() -> None:
    producers = table()
    producers.admit_end(TransactionEnd(9, 0, is_commit=True))
    put(producers, 0, epoch=4)
    producers.admit_end(TransactionEnd(9, 4, is_commit=True))
    producers.admit_end(TransactionEnd(9, 5, is_commit=True))
    producers.admit_end(TransactionEnd(8, 3, is_commit=True))
    with pytest.raises(InvalidProducerEpoch, match=r"marker of epoch 3, expected at least 4 .* 9"):
        producers.admit_end(TransactionEnd(9, 3, is_commit=True))


def test_a_marker_ends_the_transaction_and_the_sequence_continues() -> None:
    producers = table()
    put(producers, 0, 5, epoch=4, transaction_start=0)
    batch = BatchRange(0, 4, 0, 5, -1)
    during = producers.end_transaction(TransactionEnd(9, 4, is_commit=True), 70)
    assert ProducerEntry(4, (batch,), 0, 0) == during
    assert ProducerEntry(4, (batch,), 70) == producers.get(9)
    assert producers.admit(9, 4, 5, 1, 70) is None
    producers.restore(9, during)
    assert during == producers.get(9)


def test_after_a_marker_of_a_newer_epoch_the_sequence_begins_at_0() -> None:
    producers = table()
    put(producers, 0, 5, epoch=4, transaction_start=0)
    producers.end_transaction(TransactionEnd(9, 5, is_commit=True), 70)
    assert ProducerEntry(5, (), 70) == producers.get(9)
    with pytest.raises(OutOfOrderSequence, match="base sequence 1, expected 0"):
        producers.admit(9, 5, 1, 1, 70)
    assert producers.admit(9, 5, 0, 1, 70) is None


def test_a_marker_of_an_unknown_producer_is_remembered_within_the_limit() -> None:
    producers = table(count_max=2)
    put(producers, 0, producer_id=1, now_ms=1)
    put(producers, 0, producer_id=2, now_ms=2)
    assert producers.end_transaction(TransactionEnd(2, 0, is_commit=True), 3) is not None
    assert [1, 2] == [producer_id for producer_id, _ in producers.items()]
    assert producers.end_transaction(TransactionEnd(3, 0, is_commit=True), 4) is None
    assert [2, 3] == [producer_id for producer_id, _ in producers.items()]


def test_number_of_producers_is_limited_and_the_longest_idle_go() -> None:
    producers = table(count_max=32, expiration_ms=10**9)
    for producer_id in range(100):
        put(producers, 0, producer_id=producer_id, now_ms=producer_id)
        assert len(producers) <= 32
    assert producers.get(99) is not None
    assert producers.get(0) is None


def test_the_longest_idle_goes_whatever_its_number_and_an_open_transaction_stays() -> None:
    producers = table(count_max=3, expiration_ms=10**9)
    put(producers, 0, producer_id=1, now_ms=0, transaction_start=0)
    put(producers, 0, producer_id=2, now_ms=20)
    put(producers, 0, producer_id=3, now_ms=10)
    put(producers, 0, producer_id=4, now_ms=30)
    assert [1, 2, 4] == [producer_id for producer_id, _ in producers.items()]


def test_whether_one_may_be_missing_is_known_before_and_after_one_goes() -> None:
    producers = table(count_max=32, expiration_ms=10**9)
    for producer_id in range(29):
        put(producers, 0, producer_id=producer_id, now_ms=producer_id)
    assert not producers.may_have_evicted
    # As many as are left after an eviction: a start may have found them so.
    put(producers, 0, producer_id=30, now_ms=30)
    assert producers.may_have_evicted
    for producer_id in range(31, 40):
        put(producers, 0, producer_id=producer_id, now_ms=producer_id)
    producers.expire(10**10)
    assert 0 == len(producers)
    assert producers.may_have_evicted


# So that five batches do not go once around: then two of them could begin with one sequence.
COUNTS = st.integers(1, 1 << 28)


@given(st.integers(0, SEQUENCE_MASK), st.lists(COUNTS, min_size=1, max_size=8))
def test_a_run_of_batches_follows_itself_across_the_wrap(first: int, counts: list[int]) -> None:
    producers = table()
    sequence, offset = first, 0
    window: deque[tuple[int, int, int]] = deque(maxlen=WINDOW_BATCHES)
    for count in counts:
        assert producers.admit(9, 0, sequence, count, 0) is None
        put(producers, sequence, count, base=offset)
        window.append((sequence, count, offset))
        sequence = (sequence + count) & SEQUENCE_MASK
        offset += count
    for start, count, base in list(window)[1:]:
        found = producers.admit(9, 0, start, count, 0)
        assert found is None or found.base_offset == base


class Undo(RuleBasedStateMachine):
    """Appends undone in reverse leave no trace, whatever was in between."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = table(count_max=10_000)
        self.undo: list[tuple[int, ProducerEntry | None, dict[int, ProducerEntry]]] = []

    @rule(producer_id=st.integers(0, 2), epoch=st.integers(0, 2), first=st.integers(0, 5))
    def append(self, producer_id: int, epoch: int, first: int) -> None:
        before = dict(self.producers.items())
        previous = put(self.producers, first, 2, epoch=epoch, producer_id=producer_id)
        self.undo.append((producer_id, previous, before))

    @precondition(lambda self: self.undo)
    @rule()
    def restore(self) -> None:
        producer_id, previous, before = self.undo.pop()
        self.producers.restore(producer_id, previous)
        assert before == dict(self.producers.items())

    @invariant()
    def windows_are_bounded(self) -> None:
        assert all(1 <= len(e.batches) <= WINDOW_BATCHES for _, e in self.producers.items())


TestUndo = Undo.TestCase


def test_a_marker_needs_the_newest_coordinator_of_its_producer() -> None:
    producers = table()
    put(producers, 0, epoch=4, transaction_start=0)
    producers.end_transaction(TransactionEnd(9, 4, True, 5), 1)
    for epoch in (5, 6):
        producers.admit_end(TransactionEnd(9, 4, True, epoch))
    for epoch in (4, 0, -1):
        with pytest.raises(
            CoordinatorFenced, match=rf"coordinator epoch {epoch}, expected at least 5 .*producer 9"
        ):
            producers.admit_end(TransactionEnd(9, 4, True, epoch))
    producers.admit_end(TransactionEnd(8, 0, True, 0))
    with pytest.raises(InvalidProducerEpoch):
        producers.admit_end(TransactionEnd(9, 3, True, 0))


def test_a_coordinator_stays_replaced_when_its_marker_fails() -> None:
    producers = table()
    put(producers, 0, epoch=4, transaction_start=0)
    previous = producers.end_transaction(TransactionEnd(9, 4, True, 5), 1)
    producers.restore(9, previous)
    with pytest.raises(CoordinatorFenced):
        producers.admit_end(TransactionEnd(9, 4, True, 4))


def test_coordinators_are_forgotten_with_their_producers() -> None:
    """The first one at the limit, the second by its age, the third with its failed marker."""
    producers = table(count_max=2)
    for producer_id in (1, 2, 3):
        producers.end_transaction(TransactionEnd(producer_id, 0, True, 5), producer_id)
    assert producers.coordinator_epochs.keys() == {2, 3}
    producers.expire(1003)
    assert producers.coordinator_epochs.keys() == {3}
    producers.restore(3, None)
    assert not producers.coordinator_epochs


def test_a_server_that_nobody_took_over_keeps_no_coordinators() -> None:
    producers = table()
    producers.end_transaction(TransactionEnd(9, 4, True, 0), 1)
    producers.end_transaction(TransactionEnd(8, 4, True, -1), 1)
    assert not producers.coordinator_epochs
