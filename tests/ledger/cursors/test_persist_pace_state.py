"""How often a cursor writes."""

from kledger.ledger.cursors.persist_pace_state import DELAY_MS_MAX, PersistPaceState


def test_without_a_limit_everything_is_written_at_once() -> None:
    pace = PersistPaceState(None)
    assert all(pace.try_take(0) for _ in range(5))


def test_writes_are_spaced_evenly() -> None:
    pace = PersistPaceState(4)
    taken = [now_ms for now_ms in range(0, 1000, 10) if pace.try_take(now_ms)]
    assert [0, 250, 500, 750] == taken


def test_what_waits_is_written_when_the_pace_allows() -> None:
    pace = PersistPaceState(2)
    pace.try_take(100)
    assert 100 + 501 == pace.due_ms(100)
    assert 301 + 300 == pace.due_ms(300)
    assert pace.try_take(601)


def test_nothing_waits_longer_than_a_minute() -> None:
    pace = PersistPaceState(0.001)
    pace.try_take(0)
    assert DELAY_MS_MAX == pace.due_ms(0)
