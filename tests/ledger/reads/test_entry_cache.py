"""The tail cache against a model: one list of everything in order of arrival."""

import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.ledger.reads.entry_cache import OBJECT_BYTES, VIEW_BYTES, EntryCache


def limit_for(*sizes: int) -> int:
    """Return the limit under which entries of these sizes just fit."""
    return sum(sizes) + len(sizes) * OBJECT_BYTES


def filled(limit: int, *sizes: int) -> EntryCache:
    cache = EntryCache(limit)
    run = cache.add_ledger(1)
    for size in sizes:
        run.append(bytes(size))
    return cache


def test_buffers_are_kept_without_a_copy() -> None:
    cache = EntryCache(10_000)
    run = cache.add_ledger(1)
    owner, frame = bytearray(b"abc"), bytearray(b"head abc")
    view = memoryview(frame)[5:]
    run.append(memoryview(owner))
    run.append(view)
    kept = run.slice(0, 2, -1)
    assert kept is not None
    assert kept[0] is owner
    assert kept[1] is view


def test_entries_count_with_their_objects_and_not_their_bytes_alone() -> None:
    """A million batches of one record took 548 MB of a cache of 64 MiB."""
    cache = EntryCache(1 << 20)
    run = cache.add_ledger(1)
    for _ in range(100_000):
        run.append(memoryview(bytearray(70)))
    assert (1 << 20) // (70 + OBJECT_BYTES) == len(cache)
    tracemalloc.start()
    for _ in range(2 * len(cache)):
        run.append(memoryview(bytearray(70)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # What malloc rounds up to and keeps for itself is not traced.
    assert 0.6 * cache.limit < taken < cache.limit


def test_a_view_counts_the_whole_buffer_that_it_keeps_alive_once() -> None:
    cache = EntryCache(1_000_000)
    run = cache.add_ledger(1)
    for _ in range(2):
        frame = memoryview(bytearray(100_000))
        for start in (10, 50_000):
            run.append(frame[start : start + 40_000])
    assert 2 * 100_000 + 4 * VIEW_BYTES == cache.size
    cache.limit = 100_000 + 3 * VIEW_BYTES
    cache.evict()
    assert (2, 100_000 + 2 * VIEW_BYTES) == (len(cache), cache.size)
    cache.drop(1)
    assert (0, {}) == (cache.size, cache._owners)


def test_the_oldest_entry_of_any_ledger_is_evicted_first() -> None:
    cache = EntryCache(limit_for(10, 10, 10))
    one, other = cache.add_ledger(1), cache.add_ledger(2)
    one.append(bytes(10))
    other.append(bytes(10))
    one.append(bytes(10))
    other.append(bytes(10))
    assert (1, 0, cache.limit, 3) == (one.first_entry, other.first_entry, cache.size, len(cache))


def test_an_entry_above_the_limit_leaves_nothing() -> None:
    cache = filled(limit_for(30), 10, 31)
    run = cache.find_ledger(1)
    assert run is not None
    assert (0, 0, 2) == (cache.size, len(run), run.first_entry)


def test_limit_zero_keeps_nothing() -> None:
    assert (0, 0) == (filled(0, 1, 2, 3).size, len(filled(0, 1)))


@pytest.mark.parametrize(
    ("first", "count", "bytes_max", "expected"),
    [
        (0, 4, -1, [1, 2, 3, 4]),
        (1, 2, -1, [2, 3]),
        (3, 9, -1, [4]),
        (0, 4, 6, [1, 2, 3]),
        (0, 4, 5, [1, 2]),
        (2, 4, 1, [3]),
        (2, 4, 0, [3]),
        (4, 1, -1, None),
        (-1, 1, -1, None),
    ],
)
def test_slices(first: int, count: int, bytes_max: int, expected: list[int] | None) -> None:
    run = filled(10_000, 1, 2, 3, 4).find_ledger(1)
    assert run is not None
    found = run.slice(first, count, bytes_max)
    assert expected == (None if found is None else [len(buffer) for buffer in found])


def test_cached_entries_can_begin_after_entry_zero() -> None:
    cache = EntryCache(10_000)
    run = cache.add_ledger(1, next_entry=7)
    run.append(b"x")
    assert ([b"x"], None) == (run.slice(7, 5, -1), run.slice(6, 5, -1))


def test_a_dropped_run_takes_nothing_more() -> None:
    cache = filled(10_000, 10, 10)
    run = cache.find_ledger(1)
    assert run is not None
    cache.drop(1)
    run.append(bytes(5))
    assert (0, 0, None) == (cache.size, len(cache), cache.find_ledger(1))
    assert None is run.slice(0, 1, -1)


def test_a_closed_run_is_forgotten_when_it_is_empty() -> None:
    cache = filled(limit_for(10, 10), 10, 10)
    cache.close_ledger(1)
    assert cache.find_ledger(1) is not None
    cache.add_ledger(2).append(bytes(15 + OBJECT_BYTES))
    assert None is cache.find_ledger(1)
    cache.close_ledger(3)
    cache.add_ledger(4)
    cache.close_ledger(4)
    assert None is cache.find_ledger(4)


def test_the_order_of_eviction_does_not_grow_with_what_was_dropped() -> None:
    cache = EntryCache(1 << 30)
    for ledger_id in range(100):
        run = cache.add_ledger(ledger_id)
        for _ in range(100):
            run.append(b"x")
        cache.drop(ledger_id)
    assert 3000 > len(cache.order)
    assert (0, 0) == (len(cache), cache.size)


def test_nothing_is_left_of_runs_when_all_were_dropped() -> None:
    cache = EntryCache(1 << 30)
    for ledger_id in range(3):
        cache.add_ledger(ledger_id).append(b"x")
    for ledger_id in range(3):
        cache.drop(ledger_id)
    assert not cache.order
    cache.add_ledger(7).append(b"y")
    assert 1 == len(cache)


def test_what_was_evicted_does_not_pile_up() -> None:
    cache = EntryCache(limit_for(*[10] * 100))
    run = cache.add_ledger(1)
    for _ in range(50_000):
        run.append(bytes(10))
    assert (100, 49_900) == (len(run), run.first_entry)
    assert 5000 > len(run._buffers)


LIMIT = limit_for(25, 25)


class CacheMachine(RuleBasedStateMachine):
    """Everything that arrived and was not dropped, newest first, as long as it fits."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = EntryCache(LIMIT)
        self.next_entry: dict[int, int] = {}
        self.arrived: list[tuple[int, int, bytes]] = []

    @rule(ledger_id=st.integers(0, 3), first=st.integers(0, 5))
    def open_ledger(self, ledger_id: int, first: int) -> None:
        self.drop_ledger(ledger_id)
        self.cache.add_ledger(ledger_id, first)
        self.next_entry[ledger_id] = first

    @precondition(lambda self: self.next_entry)
    @rule(data=st.data(), size=st.integers(0, 30), count=st.integers(1, 4))
    def append(self, data: st.DataObject, size: int, count: int) -> None:
        ledger_id = data.draw(st.sampled_from(sorted(self.next_entry)))
        run = self.cache.find_ledger(ledger_id)
        assert run is not None
        for _ in range(count):
            entry_id = self.next_entry[ledger_id]
            content = b"%d" % entry_id + bytes(size)
            run.append(content)
            self.arrived.append((ledger_id, entry_id, content))
            self.next_entry[ledger_id] += 1
            while self.size > LIMIT:
                del self.arrived[0]

    @rule(ledger_id=st.integers(0, 3))
    def drop_ledger(self, ledger_id: int) -> None:
        self.cache.drop(ledger_id)
        self.next_entry.pop(ledger_id, None)
        self.arrived = [each for each in self.arrived if each[0] != ledger_id]

    @property
    def size(self) -> int:
        return limit_for(*(len(content) for _, _, content in self.arrived))

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert self.size == self.cache.size
        assert len(self.arrived) == len(self.cache)
        for ledger_id, next_entry in self.next_entry.items():
            run = self.cache.find_ledger(ledger_id)
            assert run is not None
            held = [content for id_, _, content in self.arrived if id_ == ledger_id]
            assert next_entry - len(held) == run.first_entry
            assert held == (run.slice(run.first_entry, 99, -1) or [])


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_eviction_continues_when_the_order_is_rebuilt() -> None:
    """Regression: it continued in the old order, and evicted a later entry twice, or never."""
    limit = limit_for(*[1] * 3000)
    cache = EntryCache(limit)
    closed, dropped, newest = cache.add_ledger(1), cache.add_ledger(2), cache.add_ledger(3)
    for run, count in ((closed, 1300), (dropped, 1100), (newest, 3)):
        for _ in range(count):
            run.append(b"x")
    cache.close_ledger(1)
    cache.drop(2)
    newest.append(bytes(limit - 1 - 2 * OBJECT_BYTES))
    assert (2, limit, 2) == (len(cache), cache.size, len(newest))
    newest.append(bytes(limit - OBJECT_BYTES))
    assert (1, limit, 1) == (len(cache), cache.size, len(newest))
