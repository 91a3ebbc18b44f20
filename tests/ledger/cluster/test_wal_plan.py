"""What goes inline, when PUTs begin, are repeated and get a second one."""

import pytest

from kledger.ledger.cluster.wal_plan import (
    LATENCIES_KEPT,
    LATENCIES_MIN,
    USUAL_P95_MS,
    BeginPut,
    GiveUp,
    InlineBudget,
    PutLatencies,
    PutPace,
    PutState,
    WaitForPuts,
    WalLimits,
)

LIMITS = WalLimits(
    puts_per_second=8,
    inline_group_bytes_max=100,
    inline_bytes_per_second=250,
    inline_alive_bytes_max=1000,
    backoff_ms=(50, 100),
    give_up_ms=1000,
)


@pytest.mark.parametrize(
    ("size", "alive", "expected"),
    [(0, 0, True), (100, 0, True), (101, 0, False), (100, 900, True), (100, 901, False)],
)
def test_small_groups_go_inline(size: int, alive: int, expected: bool) -> None:
    assert expected == InlineBudget(LIMITS, 0).take(size, alive, 0)


def test_inline_budget_fills_up_again() -> None:
    budget = InlineBudget(LIMITS, 0)
    assert [True, True, False, True] == [budget.take(size, 0, 0) for size in (100, 100, 100, 50)]
    assert not budget.take(26, 0, 100)
    assert budget.take(25, 0, 100)
    assert [True, True, False] == [budget.take(100, 0, 10**6) for _ in range(3)]


def test_asking_takes_nothing_from_the_inline_budget() -> None:
    budget = InlineBudget(LIMITS, 0)
    assert [True] * 5 == [budget.would_take(100, 0) for _ in range(5)]
    assert not budget.would_take(101, 0)
    assert [True, True, False] == [budget.take(100, 0, 0) for _ in range(3)]
    assert not budget.would_take(100, 0)
    assert budget.would_take(100, 1_000)


def state(*, hedge_ms: int = 300, begins_ms: int = 0) -> PutState:
    return PutState(LIMITS, 0, begins_ms, hedge_ms)


def test_first_put_begins_at_its_time() -> None:
    put = state(begins_ms=40)
    assert WaitForPuts(40) == put.next_step(0)
    assert BeginPut(0) == put.next_step(40)
    assert WaitForPuts(340) == put.next_step(40)
    assert 15 == put.succeeded(0, 55)
    assert [0] == put.attempts_begun


def test_failed_put_is_repeated_under_its_key_after_a_pause() -> None:
    put = state()
    assert BeginPut(0) == put.next_step(0)
    for now_ms, next_ms in ((10, 60), (70, 170), (180, 280)):
        put.failed(0, "503", now_ms)
        assert WaitForPuts(next_ms) == put.next_step(now_ms)
        assert BeginPut(0) == put.next_step(next_ms)
    assert [0] == put.attempts_begun


def test_slow_put_gets_a_second_one_once() -> None:
    put = state()
    assert BeginPut(0) == put.next_step(0)
    assert BeginPut(1) == put.next_step(300)
    assert WaitForPuts(1000) == put.next_step(300)
    put.failed(1, "503", 400)
    assert WaitForPuts(450) == put.next_step(400)
    assert BeginPut(1) == put.next_step(450)
    assert [0, 1] == put.attempts_begun
    assert 50 == put.succeeded(1, 500)


def test_without_a_hedge_there_is_one_put() -> None:
    put = state(hedge_ms=0)
    assert BeginPut(0) == put.next_step(0)
    assert WaitForPuts(1000) == put.next_step(999)


def test_object_that_is_never_stored_is_given_up() -> None:
    put = state(begins_ms=40)
    put.next_step(40)
    put.failed(0, "503", 50)
    assert WaitForPuts(100) == put.next_step(50)
    assert GiveUp("not stored within 1000 ms: 503") == put.next_step(1040)


def test_puts_of_groups_are_spaced() -> None:
    pace = PutPace(LIMITS)
    assert 7 == pace.next_at_ms(7)
    pace.began(7)
    assert 132 == pace.next_at_ms(8)
    assert 500 == pace.next_at_ms(500)


def test_failures_halve_the_budget_and_successes_give_it_back() -> None:
    pace = PutPace(LIMITS)
    pace.began(0)
    found = []
    for note in [pace.failed] * 6 + [pace.succeeded] * 40:
        note()
        found.append(pace.next_at_ms(0))
    assert [250, 500, 1000, 2000, 2000, 2000] == found[:6]
    assert sorted(found[6:], reverse=True) == found[6:]
    assert 125 == found[-1]


def test_usual_latency_is_that_of_the_newest_puts() -> None:
    latencies = PutLatencies()
    for _ in range(LATENCIES_MIN - 1):
        latencies.add(7)
    assert USUAL_P95_MS == latencies.p95_ms
    for ms in range(LATENCIES_KEPT):
        latencies.add(1000 + ms)
    assert 1190 == latencies.p95_ms
