"""Which fetch sessions exist, and which requests may continue them."""

import pytest

from kledger.gateway.fetch.session_state import (
    EPOCH_MAX,
    EVICTION_MS,
    CachedPartition,
    FetchSessionCache,
    FetchSessionEntry,
    next_epoch,
)


class Entry(FetchSessionEntry):
    """A session of which only the size matters."""

    def __init__(self, session_id: int, size: int = 1, now_ms: int = 0) -> None:
        super().__init__(session_id, has_topic_ids=True, now_ms=now_ms)
        self.size = size

    @property
    def partition_count(self) -> int:
        return self.size


def table_of(*entries: Entry) -> FetchSessionCache[Entry]:
    table: FetchSessionCache[Entry] = FetchSessionCache(len(entries))
    for entry in entries:
        table.add(entry)
    return table


@pytest.mark.parametrize(("epoch", "expected"), [(0, 1), (1, 2), (EPOCH_MAX, 1)])
def test_epochs_go_round_without_zero(epoch: int, expected: int) -> None:
    assert expected == next_epoch(epoch)


@pytest.mark.parametrize(
    ("epoch", "has_ids", "error"), [(1, True, 0), (2, True, 71), (0, True, 71), (1, False, 106)]
)
def test_a_session_continues_by_its_epoch_and_in_its_form(
    epoch: int, has_ids: bool, error: int
) -> None:
    assert error == Entry(5).continuation_error(epoch, has_topic_ids=has_ids)


def test_one_epoch_continues_once() -> None:
    entry = Entry(5)
    table = table_of(entry)
    table.advance(entry, 10)
    assert 71 == entry.continuation_error(1, has_topic_ids=True)
    assert 0 == entry.continuation_error(2, has_topic_ids=True)


def test_there_are_no_more_than_the_slots() -> None:
    table = table_of(Entry(1), Entry(2))
    assert not table.has_room()
    with pytest.raises(AssertionError, match="none was removed"):
        table.add(Entry(3))
    assert table.remove(1) is not None
    assert table.remove(1) is None
    assert table.has_room()


def test_the_least_recently_used_session_is_evicted_when_idle_too_long() -> None:
    first, second = Entry(1), Entry(2, size=100)
    table = table_of(first, second)
    table.advance(first, 10)
    assert table.eviction_candidate(1, EVICTION_MS) is None, "no session is unused for long enough"
    assert second is table.eviction_candidate(1, EVICTION_MS + 1)
    table.advance(second, 20)
    assert first is table.eviction_candidate(1, EVICTION_MS + 11)


def test_a_larger_session_evicts_a_smaller_one_that_is_not_new() -> None:
    small, large, new = Entry(1, 5), Entry(2, 50), Entry(3, 1, now_ms=EVICTION_MS)
    table = table_of(small, large, new)
    now_ms = EVICTION_MS + 1
    for entry in (small, large, new):
        table.advance(entry, now_ms)
    assert table.eviction_candidate(4, now_ms) is None, "smaller than all that are settled"
    assert small is table.eviction_candidate(5, now_ms)
    assert small is table.eviction_candidate(500, now_ms)


def test_without_slots_no_session_is_evicted() -> None:
    assert table_of().eviction_candidate(1, 0) is None


def test_a_partition_has_changed_until_it_is_sent_and_after_every_error() -> None:
    cached = CachedPartition()
    assert cached.has_changed(0, 0)
    cached.update(0, 5, 1)
    assert not cached.has_changed(5, 1)
    assert cached.has_changed(6, 1)
    assert cached.has_changed(5, 2)
    cached.update(3, 5, 1)
    assert cached.has_changed(5, 1)
