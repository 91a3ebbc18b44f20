"""A whole run with a strategy: what stays is what a table view over the same records keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.batches.record import Record
from kledger.topics.compaction.strategy_rule import StrategyRule, no_strategies
from kledger.topics.errors import StrategyFailed
from tests.topics.compaction.histories import History, histories
from tests.topics.compaction.strategies import STRATEGIES, fold, shown_as
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

strategy_names = st.sampled_from(["largest", "first_one", "newest_one", "erratic"])


@given(histories(), strategy_names, st.integers(1, 5), st.sampled_from([0, 300, 2000, 1 << 20]))
def test_what_stays_is_what_a_fold_keeps(
    history: History, name: str, step: int, memory_bytes_max: int
) -> None:
    """Whatever the memory: with little of it every record goes through the file."""
    limited = rules(aborted=history.aborted, strategy=name, memory_bytes_max=memory_bytes_max)
    done = compact(history.batches, limited, step=step)
    expected = fold(history.live, STRATEGIES[name])
    assert expected == {each.key: each for each in records_of(done.stored)}
    assert len(expected) == len(records_of(done.stored)) == done.counts.records_kept
    assert end_of([Stored(each) for each in history.batches]) == end_of(done.stored)
    counts = done.counts
    assert counts.records_read == counts.records_kept + counts.superseded + counts.skipped + (
        counts.keyless + counts.aborted + counts.markers + counts.tombstones_expired
    )


@given(histories(), strategy_names, st.data())
def test_a_run_over_the_last_result_and_the_tail_keeps_the_same(
    history: History, name: str, data: st.DataObject
) -> None:
    """So does a view over what was compacted: it folds the same records."""
    cut = data.draw(st.integers(1, len(history.batches)), label="cut")
    first = compact(history.batches[:cut], rules(aborted=history.aborted, strategy=name))
    tail = [Stored(each) for each in history.batches[cut:]]
    done = compact(first.stored + tail, rules(aborted=history.aborted, strategy=name))
    raw = fold(history.live, STRATEGIES[name])
    assert raw == fold(records_of(done.stored), STRATEGIES[name])
    once = compact(history.batches, rules(aborted=history.aborted, strategy=name))
    assert raw == fold(records_of(once.stored), STRATEGIES[name])
    visible = records_of(first.stored) + [
        each for each in history.live if each.offset >= end_of(first.stored)
    ]
    assert raw == fold(visible, STRATEGIES[name]), "the beginning compacted, the tail not"


@given(histories(), st.sampled_from(["largest", "newest_one"]), st.data())
def test_tombstones_that_have_gone_change_nothing_if_the_strategy_takes_what_follows(
    history: History, name: str, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(history.batches)), label="cut")
    first = compact(history.batches[:cut], rules(aborted=history.aborted, strategy=name))
    later = rules(aborted=history.aborted, strategy=name, now_ms=NOW_MS + RETENTION_MS)
    expired = compact(first.stored, later)
    tail = [Stored(each) for each in history.batches[cut:]]
    done = compact(expired.stored + tail, later)
    values = {k: each for k, each in fold(history.live, STRATEGIES[name]).items() if each.value}
    assert values == {each.key: each for each in records_of(done.stored) if each.value}


def test_a_strategy_decides_between_what_is_kept_and_the_next() -> None:
    done = compact(
        [
            log_batch(0, ("a", "5"), ("b", "1")),
            log_batch(2, ("a", "3"), ("a", "7")),
            log_batch(4, ("a", "6"), ("b", "0")),
        ],
        rules(strategy="largest"),
    )
    assert [("b", "1"), ("a", "7")] == done.pairs
    assert (3, 1) == (done.counts.skipped, done.counts.superseded)


def test_a_skipped_tombstone_removes_nothing_and_one_that_is_kept_removes() -> None:
    """After a removal there is nothing to compare with, whether the value was null or empty."""
    log = [log_batch(0, ("a", "1"), ("a", None), ("b", ""), ("b", "1"), ("c", None), ("c", "2"))]
    done = compact(log, rules(strategy="largest"))
    assert [("a", "1"), ("b", "1"), ("c", "2")] == done.pairs
    done = compact(log, rules(strategy="first_one"))
    assert [("a", "1"), ("b", ""), ("c", None)] == done.pairs
    assert NOW_MS + RETENTION_MS == done.stored[0].delete_horizon_ms


def test_deleted_records_take_no_part() -> None:
    """A reader does not see them: if one stayed, its key would be lost."""
    log = [log_batch(0, ("a", "9"), ("b", "9"), ("a", "5")), log_batch(3, ("a", "4"), ("b", "1"))]
    done = compact(log, rules(strategy="largest"), first_offset=2)
    assert [("a", "5"), ("b", "1")] == done.pairs


def test_the_first_record_of_a_key_is_not_compared() -> None:
    assert [("a", "x")] == compact([log_batch(0, ("a", "x"))], rules(strategy="only_numbers")).pairs


@pytest.mark.parametrize("memory_bytes_max", [0, 1 << 20])
def test_an_error_of_a_strategy_names_it_and_the_record(memory_bytes_max: int) -> None:
    log = [log_batch(0, ("a", "1"), ("a", "x"))]
    expected = "strategy only_numbers failed for the record at offset 1: ValueError: invalid"
    with pytest.raises(StrategyFailed, match=expected):
        compact(log, rules(strategy="only_numbers", memory_bytes_max=memory_bytes_max))


@pytest.mark.parametrize("raised", [SystemExit(3), OSError("no such file")])
def test_whatever_a_strategy_raises_is_its_failure(raised: BaseException) -> None:
    """Its own classes may not be there where the error arrives."""

    def raising(kept: object, record: object) -> bool:
        raise raised

    ask = StrategyRule("own:Raising", "orders", 0, lambda *_: raising).opened()
    record = shown_as(Record(4, NOW_MS, b"a", b"1"))
    with pytest.raises(StrategyFailed, match=f"own:Raising .* offset 4: {type(raised).__name__}"):
        ask(None, record)


def test_a_cleaner_without_strategies_says_so() -> None:
    with pytest.raises(StrategyFailed, match="own:Any of orders-0"):
        StrategyRule("own:Any", "orders", 0, no_strategies).opened()
