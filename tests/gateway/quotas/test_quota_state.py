"""Quotas: which one holds for a client, and how long it waits."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kledger.gateway.quotas import quota_state
from kledger.gateway.quotas.quota_state import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    THROTTLE_MS_MAX,
    USER,
    Entity,
    QuotaState,
    QuotaWindows,
)

RATE = 100.0
WINDOW_S = QuotaWindows().rate_s
ME, MINE = "me", "mine"
# Kafka's order, the most special entity first.
BY_RANK: tuple[Entity, ...] = (
    ((CLIENT_ID, MINE), (USER, ME)),
    ((CLIENT_ID, None), (USER, ME)),
    ((USER, ME),),
    ((CLIENT_ID, MINE), (USER, None)),
    ((CLIENT_ID, None), (USER, None)),
    ((USER, None),),
    ((CLIENT_ID, MINE),),
    ((CLIENT_ID, None),),
)
EVERY_CLIENT: Entity = ((CLIENT_ID, None),)


def state_of(*entities: Entity, rate: float = RATE) -> QuotaState:
    state = QuotaState()
    for entity in entities:
        state.apply(entity, {PRODUCER_BYTE_RATE: rate})
    return state


def charge(state: QuotaState, amount: float, now_ms: int = 0, client: str = MINE) -> int:
    return state.charge(PRODUCER_BYTE_RATE, ME, client, amount, now_ms)


@pytest.mark.parametrize("rank", range(len(BY_RANK)))
def test_the_most_special_entity_holds(rank: int) -> None:
    state = QuotaState()
    for place, entity in enumerate(BY_RANK[rank:]):
        state.apply(entity, {PRODUCER_BYTE_RATE: 1.0 + place})
    found = state.rate_of(PRODUCER_BYTE_RATE, ME, MINE)
    named = {CLIENT_ID: MINE, USER: ME}
    assert (tuple((kind, named[kind]) for kind, _ in BY_RANK[rank]), 1.0) == found


def test_an_entity_without_this_quota_is_passed_over() -> None:
    state = state_of(EVERY_CLIENT)
    state.apply(((CLIENT_ID, MINE),), {"consumer_byte_rate": 1.0})
    assert (((CLIENT_ID, MINE),), RATE) == state.rate_of(PRODUCER_BYTE_RATE, ME, MINE)


def test_others_are_not_limited() -> None:
    state = state_of(((CLIENT_ID, "other"),), ((USER, "other"),))
    assert state.rate_of(PRODUCER_BYTE_RATE, ME, MINE) is None
    assert 0 == charge(state, 10**9)


def test_what_was_saved_is_free_and_debt_is_waited_for() -> None:
    state = state_of(EVERY_CLIENT)
    assert 0 == charge(state, RATE * WINDOW_S)
    assert 500 == charge(state, RATE / 2)
    assert 1_000 == charge(state, RATE / 2)
    assert 750 == charge(state, RATE / 4, now_ms=500)
    assert 0 == charge(state, 0, now_ms=1_250)
    assert 10 == charge(state, 1, now_ms=1_250)


def test_no_more_is_saved_than_a_window_holds() -> None:
    state = state_of(EVERY_CLIENT)
    charge(state, 0)
    assert 10 == charge(state, RATE * WINDOW_S + 1, now_ms=10**9)


def test_clients_of_a_default_do_not_share_and_those_of_a_user_do() -> None:
    alone, shared = state_of(EVERY_CLIENT), state_of(((USER, None),))
    for state, expected in ((alone, 0), (shared, 1_000)):
        charge(state, RATE * WINDOW_S, client="a")
        assert expected == charge(state, RATE, client="b")


def test_what_is_given_back_is_there_again() -> None:
    state = state_of(EVERY_CLIENT)
    assert 5_000 == charge(state, RATE * (WINDOW_S + 5))
    charge(state, -RATE * (WINDOW_S + 5))
    assert 0 == charge(state, RATE * WINDOW_S)


def test_a_wait_fits_its_field() -> None:
    assert THROTTLE_MS_MAX == charge(state_of(EVERY_CLIENT, rate=1e-9), 10**12)


def test_a_new_rate_counts_from_now_on_and_none_ends_it() -> None:
    state = state_of(EVERY_CLIENT)
    charge(state, RATE * (WINDOW_S + 10))
    state.apply(EVERY_CLIENT, {PRODUCER_BYTE_RATE: RATE * 10})
    assert 1_000 == charge(state, 0)
    state.apply(EVERY_CLIENT, {})
    assert 0 == charge(state, 10**9)
    assert not state.is_limiting
    assert {} == state.quotas


def test_least_recent_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_state, "BUCKETS_MAX", 2)
    state = state_of(EVERY_CLIENT)
    for client in ("a", "b", "a", "c"):
        charge(state, RATE * WINDOW_S, client=client)
    assert 0 == charge(state, RATE, client="b")  # was forgotten, so it has its window again
    assert 1_000 == charge(state, RATE, client="c")


def admit(state: QuotaState, amount: float, now_ms: int = 0) -> int:
    return state.admit(PRODUCER_BYTE_RATE, ME, MINE, amount, now_ms)


def test_what_is_not_admitted_is_not_counted() -> None:
    state = state_of(EVERY_CLIENT)
    assert 0 == admit(state, RATE * (WINDOW_S - 1))
    assert 500 == admit(state, RATE * 1.5)
    assert 500 == admit(state, RATE * 1.5)
    assert 0 == admit(state, RATE)
    assert 0 == admit(state, RATE * 1.5, now_ms=1_500)
    assert 10 == admit(state, 1, now_ms=1_500)


def test_more_than_a_window_is_admitted_when_the_window_is_full() -> None:
    state = state_of(EVERY_CLIENT)
    assert 0 == admit(state, RATE * (WINDOW_S + 3))
    assert 3_010 == admit(state, 1)
    assert 13_000 == admit(state, RATE * WINDOW_S * 2)


def test_windows_have_the_configured_size() -> None:
    state = QuotaState(QuotaWindows(rate_s=2, mutation_s=5))
    quotas = {PRODUCER_BYTE_RATE: RATE, CONTROLLER_MUTATION_RATE: 1.0}
    state.apply(EVERY_CLIENT, quotas)
    assert 2 * RATE == state.window_of(PRODUCER_BYTE_RATE, ME, MINE)
    assert state.window_of("consumer_byte_rate", ME, MINE) is None
    assert 1_000 == charge(state, 3 * RATE)
    assert 1_000 == state.charge(CONTROLLER_MUTATION_RATE, ME, MINE, 6, 0)


ADDRESS, OTHER = "10.0.0.1", "::1"


def of_address(name: str | None, rate: float) -> tuple[Entity, dict[str, float]]:
    return ((IP, name),), {CONNECTION_CREATION_RATE: rate}


def test_connections_of_an_address_are_admitted_at_its_rate() -> None:
    state = QuotaState()
    state.apply(*of_address(ADDRESS, 2))
    waits = [state.admit_connection(ADDRESS, 0) for _ in range(22)]
    assert [0] * 20 + [500, 500] == waits
    assert 0 == state.admit_connection(ADDRESS, 500)
    assert 0 == state.admit_connection(OTHER, 0)


def test_an_address_of_its_own_holds_before_the_default_and_none_shares() -> None:
    state = QuotaState()
    state.apply(*of_address(None, 1))
    state.apply(*of_address(ADDRESS, 3))
    admitted = {
        host: [state.admit_connection(host, 0) for _ in range(40)].count(0)
        for host in (ADDRESS, OTHER, "10.0.0.2")
    }
    assert {ADDRESS: 30, OTHER: 10, "10.0.0.2": 10} == admitted


def test_quotas_of_addresses_do_not_concern_requests() -> None:
    state = QuotaState()
    state.apply(*of_address(None, 1))
    assert not state.is_limiting
    state.apply(EVERY_CLIENT, {PRODUCER_BYTE_RATE: RATE})
    assert state.is_limiting


class Machine(RuleBasedStateMachine):
    """A client that waits as requested never gets more than its rate plus one window."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = self.began_ms = 0
        self.used = self.newest = 0.0

    @initialize(rate=st.floats(0.5, 1e6), began_ms=st.integers(0, 10**6))
    def begin(self, rate: float, began_ms: int) -> None:
        self.rate, self.now_ms, self.began_ms = rate, began_ms, began_ms
        self.state = state_of(EVERY_CLIENT, rate=rate)

    @rule(share=st.floats(0, 20), pause_ms=st.integers(0, 20_000))
    def use_and_wait(self, share: float, pause_ms: int) -> None:
        amount = share * self.rate
        wait_ms = charge(self.state, amount, self.now_ms)
        assert wait_ms <= share * 1_000 + 1
        self.used, self.newest = self.used + amount, amount
        self.now_ms += wait_ms + pause_ms

    @invariant()
    def within_the_rate(self) -> None:
        allowed = self.rate * ((self.now_ms - self.began_ms) / 1_000 + WINDOW_S) if self.used else 0
        assert self.used <= allowed * (1 + 1e-9)


TestMachine = Machine.TestCase
