"""The read-ahead cache against a model, and the order of eviction."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.ledger.read_ahead_cache import CachedRange, ReadAheadCache


def cached(first: int, *sizes: int, ledger_id: int = 1) -> CachedRange:
    return CachedRange(ledger_id, first, [bytes(size) for size in sizes])


def held(cache: ReadAheadCache, *entries: int) -> list[bool]:
    return [cache.find(1, entry) is not None for entry in entries]


def test_a_range_is_found_by_any_of_its_entries() -> None:
    cache = ReadAheadCache(100)
    cache.put(cached(4, 1, 2, 3), is_used=True)
    assert [False, True, True, True, False] == held(cache, 3, 4, 5, 6, 7)
    assert cache.find(2, 4) is None
    assert 4 == cache.next_first(1, 3) == cache.next_first(1, -1)
    assert cache.next_first(1, 4) > 1 << 40


def test_used_ranges_are_evicted_first_least_recently_touched_first() -> None:
    cache = ReadAheadCache(50)
    cache.put(cached(0, 10), is_used=False)
    for first in (1, 2, 3):
        cache.put(cached(first, 10), is_used=True)
    found = cache.find(1, 1)
    assert found is not None
    cache.touch(found, 2)
    cache.put(cached(4, 20), is_used=True)
    assert [True, True, False, True, True] == held(cache, 0, 1, 2, 3, 4)
    assert cache.reserve(40)
    assert [True, False, False, False, False] == held(cache, 0, 1, 2, 3, 4)
    assert (50, 0) == (cache.expected_bytes, cache.used_bytes)
    assert cache.reserve(10)
    assert [False] == held(cache, 0)
    assert not cache.reserve(10), "reserved room is not evicted"
    cache.put(cached(9, 10), is_used=True)
    assert [False] == held(cache, 9)
    assert not ReadAheadCache(5).reserve(6)


def test_a_range_is_used_when_its_last_entry_was_taken() -> None:
    cache = ReadAheadCache(50)
    cache.put(expected := cached(0, 10, 10), is_used=False)
    cache.touch(expected, 1)
    assert (20, 0) == (cache.expected_bytes, cache.used_bytes)
    cache.touch(expected, 2)
    assert (0, 20) == (cache.expected_bytes, cache.used_bytes)
    cache.put(alone := cached(4, 10, 10), is_used=False)
    cache.touch(alone, 5, is_kept=False)
    assert [True] == held(cache, 4)
    cache.touch(alone, 6, is_kept=False)
    assert [True, False] == held(cache, 0, 4)
    assert (0, 20) == (cache.expected_bytes, cache.used_bytes)


def test_ranges_do_not_overlap() -> None:
    cache = ReadAheadCache(100)
    cache.put(cached(2, 1, 1, 1), is_used=True)
    for first, count in ((0, 3), (2, 1), (4, 3)):
        cache.put(cached(first, *[1] * count), is_used=True)
    assert 3 == cache.used_bytes


class ShelfAgainstModel(RuleBasedStateMachine):
    """The model has every entry ever put; the cache may have fewer, never others."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ReadAheadCache(60)
        self.reserved: list[int] = []

    @rule(
        ledger_id=st.integers(1, 2),
        first=st.integers(0, 20),
        sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
        is_used=st.booleans(),
    )
    def put(self, ledger_id: int, first: int, sizes: list[int], is_used: bool) -> None:
        buffers = [b"%d:%d" % (ledger_id, first + n) + bytes(s) for n, s in enumerate(sizes)]
        self.cache.put(CachedRange(ledger_id, first, buffers), is_used=is_used)

    @rule(ledger_id=st.integers(1, 2), entry_id=st.integers(0, 24), is_kept=st.booleans())
    def take(self, ledger_id: int, entry_id: int, is_kept: bool) -> None:
        found = self.cache.find(ledger_id, entry_id)
        behind = self.cache.next_first(ledger_id, entry_id)
        assert behind > entry_id
        if found is not None:
            assert found.first <= entry_id < found.end <= behind
            buffer = found.buffers[entry_id - found.first]
            assert bytes(buffer).startswith(b"%d:%d" % (ledger_id, entry_id))
            self.cache.touch(found, entry_id + 1, is_kept=is_kept)

    @rule(size=st.integers(1, 70))
    def reserve(self, size: int) -> None:
        if self.cache.reserve(size):
            self.reserved.append(size)

    @rule()
    def release(self) -> None:
        if self.reserved:
            self.cache.release(self.reserved.pop())

    @rule(ledger_id=st.integers(1, 2))
    def drop(self, ledger_id: int) -> None:
        self.cache.drop(ledger_id)
        assert all(self.cache.find(ledger_id, entry) is None for entry in range(25))

    @invariant()
    def sizes_add_up_and_stay_within_the_limit(self) -> None:
        cache = self.cache
        ranges = {
            found.key: found
            for ledger_id in (1, 2)
            for entry in range(25)
            if (found := cache.find(ledger_id, entry)) is not None
        }
        total = sum(each.size for each in ranges.values()) + sum(self.reserved)
        assert total == cache.expected_bytes + cache.used_bytes <= cache.limit
        assert cache.expected_bytes >= sum(self.reserved)


ShelfAgainstModel.TestCase.settings = settings(max_examples=60, deadline=None)
TestShelfAgainstModel = ShelfAgainstModel.TestCase
