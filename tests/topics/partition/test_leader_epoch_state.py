"""Leader epochs: which offsets were written under which one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.topics.partition.leader_epoch_state import (
    EPOCHS_MAX,
    EpochStart,
    LeaderEpochHistory,
)


def history(*starts: tuple[int, int]) -> LeaderEpochHistory:
    """Begin epochs, each a pair of epoch and offset."""
    made = LeaderEpochHistory()
    for epoch, offset in starts:
        made.begin(epoch, offset)
    return made


def test_log_without_history_was_written_under_epoch_0() -> None:
    epochs = history()
    assert (epochs.latest, epochs.kept(0), epochs.epoch_of(7)) == (0, (), 0)
    assert epochs.end_of(0, log_start_offset=3, end_offset=9) == (0, 9)
    assert epochs.end_of(1, log_start_offset=3, end_offset=9) is None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1, (-1, 0)),
        (0, (0, 10)),
        (1, (0, 10)),
        (2, (2, 20)),
        (4, (2, 20)),
        (5, (5, 30)),
        (6, None),
    ],
)
def test_epoch_ends_where_the_next_one_begins(asked: int, expected: tuple[int, int] | None) -> None:
    epochs = history((2, 10), (5, 20))
    assert epochs.end_of(asked, log_start_offset=0, end_offset=30) == expected


@pytest.mark.parametrize(
    ("asked", "expected"), [(0, (0, 12)), (1, (1, 12)), (2, (2, 20)), (5, (5, 30))]
)
def test_epochs_before_the_log_start_end_there(asked: int, expected: tuple[int, int]) -> None:
    epochs = history((2, 10), (5, 20))
    assert epochs.end_of(asked, log_start_offset=12, end_offset=30) == expected


def test_epoch_without_records_is_forgotten() -> None:
    epochs = history((1, 10), (2, 10), (3, 10))
    assert epochs.kept(0) == (EpochStart(3, 10),)
    assert epochs.end_of(2, log_start_offset=0, end_offset=30) == (0, 10)


def test_older_and_equal_epochs_begin_nothing() -> None:
    epochs = history((3, 10), (3, 12), (1, 15))
    assert epochs.kept(0) == (EpochStart(3, 10),)
    assert epochs.latest == 3


def test_epoch_of_an_offset() -> None:
    epochs = history((2, 10), (5, 20))
    found = [epochs.epoch_of(each) for each in (0, 9, 10, 19, 20, 99)]
    assert found == [0, 0, 2, 2, 5, 5]


def test_what_is_stored_is_cut_at_the_log_start() -> None:
    epochs = history((2, 10), (5, 20), (6, 30))
    assert epochs.kept(9) == (EpochStart(2, 10), EpochStart(5, 20), EpochStart(6, 30))
    assert epochs.kept(20) == (EpochStart(5, 20), EpochStart(6, 30))
    assert epochs.kept(1_000) == (EpochStart(6, 30),)


def test_oldest_epochs_are_forgotten_at_the_limit() -> None:
    epochs = history(*((epoch, epoch * 10) for epoch in range(1, EPOCHS_MAX + 3)))
    kept = epochs.kept(0)
    assert (len(kept), kept[0], kept[-1].epoch) == (
        EPOCHS_MAX, EpochStart(3, 30), EPOCHS_MAX + 2,
    )  # fmt: skip


lengths = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=12)


@given(lengths=lengths, log_start=st.integers(0, 50), data=st.data())
def test_history_says_what_a_list_of_records_says(
    lengths: list[tuple[int, int]], log_start: int, data: st.DataObject
) -> None:
    """Against one epoch for each offset, also after being stored and loaded again."""
    epochs, written, latest = LeaderEpochHistory(), list[int](), 0
    for step, count in lengths:
        latest += step
        epochs.begin(latest, len(written))
        written += [latest] * count
    log_start = min(log_start, len(written))
    loaded = LeaderEpochHistory(epochs.kept(log_start))
    kept = written[log_start:]
    for each in (epochs, loaded):
        assert [each.epoch_of(log_start + at) for at in range(len(kept))] == kept
    asked = data.draw(st.integers(0, latest + 2))
    found = loaded.end_of(asked, log_start_offset=log_start, end_offset=len(written))
    if asked > latest:
        assert found is None
        return
    known = [each for each in kept if each <= asked]
    if asked == latest or not known:
        assert found == (asked, log_start + len(known))
    else:
        assert found == (known[-1], log_start + len(known))
    assert found == epochs.end_of(asked, log_start_offset=log_start, end_offset=len(written))
