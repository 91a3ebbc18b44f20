"""Offsets given out, confirmed and taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.batches.header import BatchHeader, check
from kledger.topics.errors import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from kledger.topics.partition.partition_state import TAIL_ENTRIES_MAX, PartitionState, TailState
from kledger.topics.partition.producer_state import ProducerEntry, ProducerTable
from kledger.topics.partition.transaction_state import AbortedTransaction, TransactionEnd
from tests.batches.words import batch


def state(*, log_start: int = 0, end: int = 0) -> PartitionState:
    producers = ProducerTable(expiration_ms=1000, count_max=100)
    return PartitionState(producers=producers, log_start_offset=log_start, next_offset=end)


def header(count: int = 1, **fields: int) -> BatchHeader:
    return check(batch(*"v" * count, **fields))  # type: ignore[arg-type]


def test_offsets_are_dense_and_visible_once_confirmed() -> None:
    partition = state(end=10)
    assert [10, 13] == [partition.begin(header(count), -1, 0) for count in (3, 2)]
    assert (10, 15) == (partition.high_watermark, partition.next_offset)
    partition.confirm()
    assert (13, 15) == (partition.high_watermark, partition.next_offset)
    assert not partition.is_pending(10)
    assert partition.is_pending(13)


def test_failed_appends_consume_no_offset_and_leave_no_trace_of_producers() -> None:
    partition = state()
    partition.begin(header(2, producer=9, sequence=0), -1, 0)
    partition.confirm()
    before = dict(partition.producers.items())
    partition.begin(header(2, producer=9, sequence=2), -1, 0)
    partition.begin(header(1, producer=8, sequence=0), -1, 0)
    partition.begin(header(1), -1, 0)
    partition.begin(header(1, producer=9, epoch=1, sequence=0), -1, 0)
    assert 4 == partition.fail_from(2)
    assert before == dict(partition.producers.items())
    assert (2, 2, 0) == (partition.high_watermark, partition.next_offset, len(partition.pending))
    assert partition.admit(header(2, producer=9, sequence=2), 0) is None


def test_fail_from_the_middle_keeps_what_began_before() -> None:
    partition = state()
    for _ in range(3):
        partition.begin(header(1), -1, 0)
    assert 1 == partition.fail_from(2)
    assert 2 == partition.next_offset


@pytest.mark.parametrize("producer", [0, 9])
def test_admit_finds_a_pending_batch_as_duplicate(producer: int) -> None:
    partition = state()
    first = header(1, producer=producer, sequence=0)
    partition.begin(first, -1, 0)
    found = partition.admit(first, 0)
    assert found is not None
    assert partition.is_pending(found.base_offset)
    with pytest.raises(OutOfOrderSequence):
        partition.admit(header(1, producer=producer, sequence=5), 0)


def test_transactional_batch_without_a_transaction_is_refused() -> None:
    with pytest.raises(InvalidTransactionState):
        state().admit(transactional(), 0)


def test_confirmed_producers_do_not_know_pending_batches() -> None:
    partition = state()
    partition.begin(header(1, producer=9, sequence=0), -1, 5)
    partition.confirm()
    durable = dict(partition.producers.items())
    partition.begin(header(1, producer=9, sequence=1), -1, 6)
    partition.begin(header(1, producer=9, sequence=2), -1, 7)
    partition.begin(header(1, producer=7, sequence=0), -1, 7)
    partition.begin(header(1), -1, 7)
    assert durable == partition.confirmed_producers()


def test_log_start_only_rises() -> None:
    partition = state(log_start=3, end=10)
    assert [True, False, False] == [partition.raise_log_start(each) for each in (5, 5, 4)]
    assert 5 == partition.log_start_offset
    with pytest.raises(AssertionError):
        partition.raise_log_start(11)


def test_nothing_is_waited_for_that_was_removed() -> None:
    partition = state()
    for each in (header(1, producer=9, transactional=True), header(3)):
        partition.begin(each, -1, 0)
        partition.confirm()
    assert (0, 4) == (partition.last_stable_offset, partition.high_watermark)
    partition.raise_log_start(2)
    assert 2 == partition.last_stable_offset
    partition.raise_log_start(4)
    assert 4 == partition.last_stable_offset


@pytest.mark.parametrize("producer", [0, 9])
def test_replay_takes_what_the_log_says(producer: int) -> None:
    partition = state()
    for sequence in (0, 7, 8):  # a gap: the producer had been forgotten in between
        stored = header(1, producer=producer, sequence=sequence)._replace(base_offset=sequence)
        partition.replay(stored, 0)
    assert (9, 9) == (partition.next_offset, partition.high_watermark)
    assert partition.admit(header(1, producer=producer, sequence=9), 0) is None
    found = partition.admit(header(1, producer=producer, sequence=7), 0)
    assert found is not None
    assert 7 == found.base_offset


def transactional(count: int = 1, *, sequence: int = 0, epoch: int = 4) -> BatchHeader:
    return header(count, producer=9, epoch=epoch, sequence=sequence, transactional=True)


def begun(count: int = 2) -> PartitionState:
    """A partition with the durable batch of an open transaction."""
    partition = state()
    assert partition.admit(transactional(count), 0, is_verified=True) is None
    partition.begin(transactional(count), -1, 0)
    assert partition.confirm() is None
    return partition


def test_a_transaction_is_open_for_the_epoch_that_began_it() -> None:
    partition = begun()
    found = [partition.has_transaction(*each) for each in ((9, 4), (9, 3), (8, 4))]
    assert [True, False, False] == found
    assert partition.admit(transactional(sequence=2), 0) is None
    with pytest.raises(InvalidTransactionState, match="outside of the transaction that producer 9"):
        partition.admit(header(1, producer=9, epoch=4, sequence=2), 0)


def test_a_durable_marker_ends_the_transaction() -> None:
    partition = begun()
    assert 2 == partition.begin_marker(TransactionEnd(9, 4, is_commit=False), 50)
    assert (3, 2, 0) == (
        partition.next_offset, partition.high_watermark, partition.last_stable_offset
    )  # fmt: skip
    assert AbortedTransaction(9, 0, 2, 3) == partition.confirm()
    assert (3, 3) == (partition.high_watermark, partition.last_stable_offset)
    assert not partition.has_transaction(9, 4)
    entry = partition.producers.get(9)
    assert entry is not None
    assert (4, 50, -1) == (entry.epoch, entry.active_ms, entry.transaction_start)


def test_a_marker_that_failed_leaves_the_transaction_open() -> None:
    partition = begun()
    before = dict(partition.producers.items())
    partition.begin_marker(TransactionEnd(9, 5, is_commit=True), 50)
    assert before == partition.confirmed_producers()
    assert 1 == partition.fail_from(2)
    assert (before, 2, True) == (
        dict(partition.producers.items()), partition.next_offset, partition.has_transaction(9, 4)
    )  # fmt: skip


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_terminated_log_ends_a_transaction_without_a_marker(is_commit: bool) -> None:
    partition = begun()
    aborted = partition.end_without_marker(TransactionEnd(9, 5, is_commit=is_commit), 50)
    assert is_commit == (aborted is None)
    assert (2, 2) == (partition.next_offset, partition.last_stable_offset)
    assert {9: ProducerEntry(5, (), 50)} == dict(partition.producers.items())
    with pytest.raises(InvalidProducerEpoch):
        partition.end_without_marker(TransactionEnd(9, 4, is_commit=is_commit), 60)


def test_a_marker_of_an_older_epoch_changes_nothing() -> None:
    partition = begun()
    with pytest.raises(InvalidProducerEpoch, match=r"epoch 3, expected at least 4 \(producer 9\)"):
        partition.begin_marker(TransactionEnd(9, 3, is_commit=True), 50)
    assert (2, True) == (partition.next_offset, partition.has_transaction(9, 4))


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_replayed_transaction_is_as_it_was(is_commit: bool) -> None:
    """The marker's head: its producer and epoch, and the offset where it stands."""
    lived, replayed = begun(), state()
    replayed.replay(transactional(2), 0)
    assert dict(lived.producers.items()) == dict(replayed.producers.items())
    assert lived.has_transaction(9, 4) is replayed.has_transaction(9, 4) is True
    assert 0 == replayed.last_stable_offset
    end = TransactionEnd(9, 4, is_commit=is_commit)
    lived.begin_marker(end, 50)
    marker = transactional()._replace(base_offset=2)
    assert lived.confirm() == replayed.replay_marker(marker, end, 50)
    assert dict(lived.producers.items()) == dict(replayed.producers.items())
    for partition in (lived, replayed):
        assert (3, 3, 3, False) == (
            partition.next_offset, partition.high_watermark, partition.last_stable_offset,
            partition.has_transaction(9, 4),
        )  # fmt: skip


def test_a_checkpoint_brings_back_producers_and_their_open_transactions() -> None:
    kept, partition = begun().confirmed_producers(), state(end=2)
    kept[0] = ProducerEntry(1, (), 7)
    partition.restore(kept.items())
    assert kept == dict(partition.producers.items())
    assert (True, 0) == (partition.has_transaction(9, 4), partition.last_stable_offset)
    partition.begin(header(1, producer=0, epoch=1, sequence=0), -1, 8)
    assert kept == partition.confirmed_producers(), "also of the producer with the id 0"


ENTRIES = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 300)), min_size=1, max_size=20)


def tail_of(entries: list[tuple[int, int]]) -> tuple[TailState, list[tuple[int, int, int]]]:
    """The tail, and per entry: base offset, next offset, size."""
    tail, rows, offset = TailState(), [], 100
    for index, (count, size) in enumerate(entries):
        tail.append(offset, size, index, 7, index)
        rows.append((offset, offset + count, size))
        offset += count
    return tail, rows


@given(ENTRIES, st.integers(95, 210), st.integers(95, 210), st.integers(0, 3000))
def test_tail_equals_a_scan(
    entries: list[tuple[int, int]], offset: int, upto: int, bytes_max: int
) -> None:
    tail, rows = tail_of(entries)
    end = rows[-1][1]
    offset, upto = min(offset, end), min(max(upto, 100), end)
    row = tail.find(offset)
    assert max((i for i, r in enumerate(rows) if r[0] <= offset), default=-1) == row
    if row < 0:
        assert tail.bytes_between(offset, upto) is None
        assert tail.position_of(offset) is None
        return
    assert (7, row) == tail.position_of(offset)
    wanted = [r[2] for r in rows[row:] if r[0] < upto]
    if offset < upto:
        assert sum(wanted) == tail.bytes_between(offset, upto)
        taken, size = 0, 0
        for each in wanted:
            if size + each > bytes_max:
                break
            taken, size = taken + 1, size + each
        assert row + taken == tail.end_row(row, upto, bytes_max)
        assert size == tail.size_of(row, row + taken)


@given(ENTRIES, st.integers(0, 19))
def test_truncate_forgets_the_newest(entries: list[tuple[int, int]], kept: int) -> None:
    tail, rows = tail_of(entries)
    kept = min(kept, len(rows))
    base = rows[kept][0] if kept < len(rows) else rows[-1][1]
    tail.truncate(base)
    assert kept == len(tail)
    assert sum(r[2] for r in rows[:kept]) == tail.size_of(0, kept)
    tail.append(base, 61, 0, 7, kept)
    assert 61 == tail.bytes_between(base, base + 1)


def test_oldest_entries_go_and_sizes_stay_right() -> None:
    tail = TailState()
    for offset in range(3 * TAIL_ENTRIES_MAX):
        tail.append(offset, 100, 0, 1, offset)
        assert len(tail) <= TAIL_ENTRIES_MAX
    end = 3 * TAIL_ENTRIES_MAX
    assert 1000 == tail.bytes_between(end - 10, end)
    assert tail.bytes_between(0, end) is None
    row = tail.find(end - 1)
    assert end - 1 == tail.entry_ids[row]
