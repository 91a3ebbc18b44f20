"""A whole run: what stays of any log, twice, in parts, with little memory."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.batches.builder import BatchProducer, build_control_batch
from kledger.batches.header import read_header
from kledger.batches.pacing import no_pause
from kledger.batches.reader import iterate_records
from kledger.topics.compaction.compaction_calls import begin_run, rebuild_batches
from kledger.topics.compaction.compaction_rules import BatchOutcome, CompactionCounts
from tests.batches.words import cleaned
from tests.topics.compaction.histories import History, histories
from tests.topics.compaction.words import (
    NOW_MS,
    RETENTION_MS,
    Stored,
    compact,
    end_of,
    log_batch,
    records_of,
    rules,
)


def marker(base_offset: int, producer_id: int = 7, *, is_commit: bool = True) -> bytes:
    return bytes(
        build_control_batch(
            is_commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0,
            timestamp_ms=NOW_MS, base_offset=base_offset,
        )
    )  # fmt: skip


# Any log


@given(histories(), st.integers(1, 5))
def test_what_stays_is_the_newest_record_of_each_key(history: History, step: int) -> None:
    """Offset, timestamp, value and headers are those of the log."""
    done = compact(history.batches, rules(aborted=history.aborted), step=step)
    expected = sorted(history.newest().values(), key=lambda record: record.offset)
    assert expected == records_of(done.stored)
    assert end_of([Stored(each) for each in history.batches]) == end_of(done.stored)
    assert len(expected) == done.counts.records_kept


@given(histories())
def test_batches_stand_for_what_they_stood_for_before(history: History) -> None:
    done = compact(history.batches, rules(aborted=history.aborted))
    for old, new in zip(history.batches, done.rebuilt, strict=True):
        if new.outcome is not BatchOutcome.REBUILT:
            assert b"" == new.data
            continue
        before, after = read_header(old), read_header(new.data)
        count = sum(1 for _ in iterate_records(new.data))
        times = [each.timestamp for each in iterate_records(new.data)]
        assert (
            before._replace(
                batch_length=len(new.data) - 12,
                crc=after.crc,
                record_count=count,
                max_timestamp=max(times, default=before.max_timestamp),
                attributes=before.attributes if count else before.attributes & ~0x27,
            )
            == after
        )


@given(histories())
def test_a_second_run_changes_nothing(history: History) -> None:
    once = compact(history.batches, rules(aborted=history.aborted))
    twice = compact(once.stored, rules(aborted=history.aborted))
    assert "U" * len(once.stored) == twice.outcomes
    assert once.stored == twice.stored


@given(histories(), st.data())
def test_a_run_over_the_last_result_and_the_tail_makes_the_same_table(
    history: History, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(history.batches)), label="cut")
    first = compact(history.batches[:cut], rules(aborted=history.aborted))
    tail = [Stored(each) for each in history.batches[cut:]]
    later = NOW_MS + data.draw(st.sampled_from([0, 1, RETENTION_MS]), label="later")
    done = compact(first.stored + tail, rules(aborted=history.aborted, now_ms=later))
    expected = {key: each for key, each in history.newest().items() if each.value is not None}
    assert expected == {
        each.key: each for each in records_of(done.stored) if each.value is not None
    }
    tombstones = [each for each in records_of(done.stored) if each.value is None]
    assert all(history.newest()[each.key or b""] == each for each in tombstones)


@given(histories())
def test_tombstones_go_at_their_horizon(history: History) -> None:
    first = compact(history.batches, rules(aborted=history.aborted))
    tombstones = [each for each in history.newest().values() if each.value is None]
    horizons = {each.delete_horizon_ms for each in first.stored} - {0}
    assert horizons == ({NOW_MS + RETENTION_MS} if tombstones else set())
    before = compact(first.stored, rules(now_ms=NOW_MS + RETENTION_MS - 1))
    assert first.stored == before.stored
    after = compact(first.stored, rules(now_ms=NOW_MS + RETENTION_MS))
    assert all(each.value is not None for each in records_of(after.stored))
    assert len(tombstones) == after.counts.tombstones_expired
    assert {0} == {each.delete_horizon_ms for each in after.stored}
    assert end_of(first.stored) == end_of(after.stored)


@given(histories(), st.integers(1, 4000))
def test_little_memory_changes_nothing(history: History, memory_bytes_max: int) -> None:
    expected = compact(history.batches, rules(aborted=history.aborted))
    limited = rules(aborted=history.aborted, memory_bytes_max=memory_bytes_max)
    done = compact(history.batches, limited)
    assert (expected.stored, expected.outcomes) == (done.stored, done.outcomes)


@given(histories())
def test_every_record_is_counted_once(history: History) -> None:
    done = compact(history.batches, rules(aborted=history.aborted))
    counts = done.counts
    assert len(records_of([Stored(each) for each in history.batches])) == counts.records_read
    assert counts.records_read == counts.records_kept + counts.superseded + counts.keyless + (
        counts.aborted + counts.markers + counts.tombstones_expired
    )
    assert sum(map(len, history.batches)) == counts.bytes_read
    assert sum(len(each.batch) for each in done.stored) == counts.bytes_kept


# Each rule


def test_batches_with_all_no_or_some_of_their_records() -> None:
    done = compact(
        [
            log_batch(0, ("a", "1"), ("b", "1")),
            log_batch(2, ("c", "1"), ("d", "1")),
            log_batch(4, ("a", "2"), ("e", "1"), ("b", "2"), ("f", "1")),
            log_batch(8, ("e", "2")),
        ]
    )
    assert "DURU" == done.outcomes
    assert [("c", "1"), ("d", "1"), ("a", "2"), ("b", "2"), ("f", "1"), ("e", "2")] == done.pairs
    size = len(log_batch(0, ("a", "1"), ("b", "1")))
    assert done.counts._replace(bytes_kept=0, bytes_read=0) == CompactionCounts(
        records_read=9, records_kept=6, superseded=3,
        batches_read=4, batches_rebuilt=1, batches_dropped=1,
    )  # fmt: skip
    assert size < done.counts.bytes_kept < done.counts.bytes_read


def test_records_without_keys_go() -> None:
    done = compact([log_batch(0, (None, "x"), ("a", "1"), (None, None)), log_batch(3, ("b", "1"))])
    assert [("a", "1"), ("b", "1")] == done.pairs
    assert (2, 0) == (done.counts.keyless, done.counts.superseded)


def test_an_empty_value_is_no_tombstone() -> None:
    done = compact([log_batch(0, ("a", ""))])
    assert ([("a", "")], 0) == (done.pairs, done.stored[0].delete_horizon_ms)


def test_a_superseded_tombstone_has_no_horizon() -> None:
    done = compact([log_batch(0, ("a", None), ("b", "1")), log_batch(2, ("a", "1"))])
    assert ([("b", "1"), ("a", "1")], [0, 0]) == (
        done.pairs,
        [each.delete_horizon_ms for each in done.stored],
    )


def test_a_horizon_stays_while_a_tombstone_does() -> None:
    """The other tombstone of the batch was superseded since; the time does not begin again."""
    old = Stored(log_batch(0, ("a", None), ("b", None)), NOW_MS + 1)
    done = compact([old, log_batch(2, ("a", "2"))])
    assert ("RU", NOW_MS + 1) == (done.outcomes, done.stored[0].delete_horizon_ms)
    done = compact([old, log_batch(2, ("a", "2"), ("b", "2"))])
    assert "DU" == done.outcomes


def test_tombstones_stay_for_a_run_even_without_retention() -> None:
    """As in Kafka: the run that first keeps them sets the horizon, the next one removes them."""
    done = compact([log_batch(0, ("a", None))], rules(delete_retention_ms=0))
    assert ([("a", None)], NOW_MS) == (done.pairs, done.stored[0].delete_horizon_ms)


def test_an_endless_retention_stays_within_the_numbers() -> None:
    done = compact([log_batch(0, ("a", None))], rules(delete_retention_ms=(1 << 63) - 1))
    assert (1 << 63) - 1 == done.stored[0].delete_horizon_ms


def test_records_of_an_aborted_transaction_go_and_others_of_its_producer_stay() -> None:
    transactional = BatchProducer(7, 0, 0, is_transactional=True)
    other = BatchProducer(8, 0, 0, is_transactional=True)
    log = [
        log_batch(0, ("a", "1"), producer=transactional),  # committed before
        marker(1),
        log_batch(2, ("a", "2"), producer=transactional),  # aborted
        log_batch(3, ("b", "3"), producer=other),
        log_batch(4, ("c", "4"), producer=BatchProducer(7, 0, 1)),  # in no transaction
        marker(5, is_commit=False),
        log_batch(6, ("d", "6"), producer=transactional),
    ]
    done = compact(log, rules(aborted=[(7, 2, 5)]))
    assert [("a", "1"), ("b", "3"), ("c", "4"), ("d", "6")] == done.pairs
    assert (1, 2) == (done.counts.aborted, done.counts.markers)


def test_a_marker_at_the_end_leaves_an_empty_batch_that_is_none() -> None:
    """A client that sees a marker reads its record."""
    done = compact([log_batch(0, ("a", "1")), marker(1)])
    header = read_header(done.stored[-1].batch)
    assert "UR" == done.outcomes
    assert (1, 0, False, 61) == (
        header.last_offset, header.record_count, header.is_control, header.size,
    )  # fmt: skip


def test_an_empty_batch_goes_when_another_leads_to_its_end() -> None:
    empty = cleaned(1, 3, is_empty=True)
    assert "UU" == compact([log_batch(0, ("a", "1")), empty]).outcomes
    assert "UDU" == compact([log_batch(0, ("a", "1")), empty, log_batch(4, ("b", "1"))]).outcomes


@pytest.mark.parametrize("codec", range(5))
def test_a_rebuilt_batch_has_the_codec_of_before(codec: int) -> None:
    log = [log_batch(0, ("a", "1" * 1000), ("b", "2" * 1000), codec=codec), log_batch(2, ("a", ""))]
    done = compact(log)
    assert ("RU", codec) == (done.outcomes, read_header(done.stored[0].batch).codec)
    assert [("b", "2" * 1000), ("a", "")] == done.pairs


def test_long_batches_and_long_fields_are_walked_right() -> None:
    """Varints of one, two and three bytes; more records than are walked at a time."""
    pairs = [(f"{number % 2500}", "v" * (number % 300 * 70)) for number in range(5000)]
    done = compact([log_batch(0, *pairs), log_batch(5000, ("x", "y" * 100_000), ("x", ""))])
    assert [*pairs[2500:], ("x", "")] == done.pairs


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path) -> None:
    log = [log_batch(n, *[(f"k{n + i}", "v") for i in range(50)]) for n in range(0, 500, 50)]
    done = compact(log, rules(memory_bytes_max=4096, folder=tmp_path))
    assert (500, "U" * 10) == (done.counts.keys_spilled, done.outcomes)
    assert [] == list(tmp_path.iterdir())


def test_phase_two_takes_no_more_batches_than_phase_one() -> None:
    batch = log_batch(0, ("a", "1"))
    with pytest.raises(AssertionError, match="fewer"):
        rebuild_batches(begin_run(rules()), memoryview(batch), [len(batch)], [0], True, no_pause)
