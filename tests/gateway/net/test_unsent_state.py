"""How much a fetch may add, and which connection is closed."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.gateway.config import MIB
from kledger.gateway.net.unsent_state import (
    FALL_BYTES_MIN,
    FETCH_BYTES_MIN,
    STALLED_MS,
    UnsentState,
)

LIMIT = 64 * MIB


@pytest.fixture
def state() -> UnsentState[str]:
    return UnsentState(LIMIT)


def test_unread_fetches_share_half_of_the_limit(state: UnsentState[str]) -> None:
    """Each of them was allowed 55 MB before, whatever the others held."""
    allowed = []
    for number in range(100):
        allowed.append(state.fetch_bytes_max)
        state.record_unsent(f"slow {number}", state.fetch_bytes_max, 0, 0)
    assert allowed == sorted(allowed, reverse=True)
    assert (8 * MIB, FETCH_BYTES_MIN) == (allowed[0], allowed[-1])
    assert LIMIT // 2 <= state.total < LIMIT // 2 + 100 * FETCH_BYTES_MIN
    assert (True, False) == (state.is_crowded, state.is_full)


def test_bytes_that_were_read_free_the_limit(state: UnsentState[str]) -> None:
    state.record_unsent("a", LIMIT, 0, 0)
    assert state.is_full
    state.record_unsent("a", 10, LIMIT - 10, 1)
    assert (10, ["a"]) == (state.total, state.holders)
    state.record_unsent("a", 0, LIMIT, 2)
    assert (0, []) == (state.total, state.holders)


def test_reserved_bytes_count_until_they_are_returned(state: UnsentState[str]) -> None:
    state.reserve("a", 100)
    state.reserve("a", 70)
    assert 70 == state.total
    state.record_unsent("a", 5, 0, 0)
    state.release("a")
    state.release("a")
    assert 5 == state.total
    state.reserve("a", 70)
    state.forget("a")
    state.forget("a")
    assert 0 == state.total


def test_connection_that_waits_for_storage_has_not_stalled(state: UnsentState[str]) -> None:
    state.reserve("a", LIMIT)
    assert state.stalled(10 * STALLED_MS) is None


def test_the_largest_of_those_that_take_nothing_gives_way(state: UnsentState[str]) -> None:
    state.record_unsent("small", 10, 0, 0)
    state.record_unsent("large", 30, 0, 0)
    state.record_unsent("slow but reading", 90, 0, 0)
    state.record_unsent("slow but reading", 80, 10, 500)
    state.record_unsent("new", 100, 0, 500)
    assert state.stalled(STALLED_MS - 1) is None
    assert "large" == state.stalled(STALLED_MS)
    state.forget("large")
    assert "small" == state.stalled(STALLED_MS)


def test_connection_that_took_everything_unseen_has_not_stalled(state: UnsentState[str]) -> None:
    """A socket without writes is not measured: what it held was taken long ago."""
    state.record_unsent("a", 100, 0, 0)
    state.record_unsent("a", 500, 100, 60_000)
    assert state.stalled(60_000) is None
    assert not state.is_idle("a", 0)
    assert state.is_idle("a", 60_000)
    assert not state.is_idle("unknown", 60_000)


def test_a_fall_is_reported_once(state: UnsentState[str]) -> None:
    state.record_unsent("a", FALL_BYTES_MIN - 1, 0, 0)
    assert not state.has_fallen()
    state.record_unsent("a", 0, 0, 0)
    assert not state.has_fallen()
    state.record_unsent("a", 4 * FALL_BYTES_MIN, 0, 0)
    state.record_unsent("b", FALL_BYTES_MIN, 0, 0)
    assert not state.has_fallen()
    state.record_unsent("a", 2 * FALL_BYTES_MIN, 0, 0)
    assert not state.has_fallen()
    assert state.is_high
    state.forget("a")
    assert state.has_fallen()
    assert not state.has_fallen()


class Machine(RuleBasedStateMachine):
    """Connections write, sockets take, measurements come from time to time."""

    def __init__(self) -> None:
        super().__init__()
        self.state: UnsentState[int] = UnsentState(1_000)
        self.unsent: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.moved: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.now = 0

    connections = st.integers(0, 3)

    @rule(one=connections, size=st.integers(1, 500))
    def write(self, one: int, size: int) -> None:
        self.unsent[one] = self.unsent.get(one, 0) + size

    @precondition(lambda self: any(self.unsent.values()))
    @rule(one=connections, part=st.floats(0, 1))
    def take(self, one: int, part: float) -> None:
        size = int(self.unsent.get(one, 0) * part)
        self.unsent[one] = self.unsent.get(one, 0) - size
        self.taken[one] = self.taken.get(one, 0) + size

    @rule(one=connections)
    def look(self, one: int) -> None:
        size, taken = self.unsent.get(one, 0), self.taken.get(one, 0)
        self.state.record_unsent(one, size, taken, self.now)
        if not size:
            self.seen.pop(one, None)
        elif one not in self.seen or self.seen[one] != taken:
            self.seen[one], self.moved[one] = taken, self.now

    @rule(one=connections, size=st.integers(0, 500))
    def reserve(self, one: int, size: int) -> None:
        self.state.reserve(one, size)
        self.reserved[one] = size

    @rule(one=connections)
    def release(self, one: int) -> None:
        self.state.release(one)
        self.reserved.pop(one, None)

    @rule(one=connections)
    def close(self, one: int) -> None:
        self.state.forget(one)
        for known in (self.unsent, self.taken, self.reserved, self.seen):
            known.pop(one, None)

    @rule(ms=st.integers(0, STALLED_MS))
    def wait(self, ms: int) -> None:
        self.now += ms

    @invariant()
    def closed_connection_was_not_seen_to_take(self) -> None:
        stalled = self.state.stalled(self.now)
        expected = [one for one in self.seen if self.moved[one] <= self.now - STALLED_MS]
        assert (stalled is None) == (not expected)
        assert stalled is None or stalled in expected

    @invariant()
    def after_a_look_at_all_the_sum_is_exact(self) -> None:
        for one in range(4):
            if one in self.seen:
                self.look(one)
        looked = sum(self.unsent[one] for one in self.seen)
        assert looked + sum(self.reserved.values()) == self.state.total
        assert FETCH_BYTES_MIN == self.state.fetch_bytes_max


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
