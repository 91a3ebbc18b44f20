"""The write tail: rollover by entries, bytes and age, marks, and rewinding."""

import pytest

from kledger.ledger.config import ManagedLedgerConfig
from kledger.ledger.handle.write_tail_state import MARK_BYTES, MARK_ENTRIES, TailDue, WriteTailState
from kledger.ledger.metadata.records import LedgerRecord
from tests.ledger.words import UNLIMITED, pos, with_limits


def tail(now_ms: int = 0, **limits: int) -> WriteTailState:
    state = WriteTailState(with_limits(UNLIMITED, **limits))
    state.open_ledger(5, before=pos("4:9"), now_ms=now_ms)
    return state


def append(state: WriteTailState, size: int = 10, now_ms: int = 0) -> TailDue:
    """Do what an append does: count, and ask only when a check is reached."""
    entry_id = state.next_entry
    state.next_entry += 1
    state.size += size
    if entry_id >= state.check_entry or state.size >= state.check_size or now_ms >= state.check_ms:
        return state.due(now_ms)
    return TailDue.NOTHING


def dues(state: WriteTailState, count: int, size: int = 10, now_ms: int = 0) -> list[TailDue]:
    return [append(state, size, now_ms) for _ in range(count)]


NOTHING, MARK, ROLL = TailDue.NOTHING, TailDue.MARK, TailDue.ROLL


def test_the_entry_that_reaches_the_limit_is_still_in_the_old_ledger() -> None:
    assert [NOTHING, NOTHING, ROLL] == dues(tail(max_entries_per_ledger=3), 3)
    assert [NOTHING, NOTHING, ROLL] == dues(tail(max_bytes_per_ledger=25), 3)
    assert [ROLL] == dues(tail(max_entries_per_ledger=1), 1)
    assert [ROLL] == dues(tail(max_bytes_per_ledger=10), 1)


def test_age_is_checked_after_an_append() -> None:
    state = tail(now_ms=1000, max_rollover_ms=50)
    assert NOTHING is append(state, now_ms=1000)
    assert NOTHING is append(state, now_ms=1049)
    assert ROLL is append(state, now_ms=1050)


def test_an_old_empty_ledger_rolls_after_its_first_entry() -> None:
    assert ROLL is append(tail(now_ms=0, max_rollover_ms=50), now_ms=900)


def test_a_minimum_age_holds_a_full_ledger_open() -> None:
    state = tail(max_entries_per_ledger=2, min_rollover_ms=100)
    assert [NOTHING] * 5 == dues(state, 5, now_ms=100)
    assert ROLL is append(state, now_ms=101)
    state = tail(max_entries_per_ledger=1, min_rollover_ms=1)
    assert [NOTHING, ROLL] == [append(state, now_ms=1), append(state, now_ms=2)]


def test_without_limits_nothing_rolls() -> None:
    assert {NOTHING, MARK} == set(dues(tail(), 2000, size=1 << 16, now_ms=1 << 50))


def test_a_mark_is_due_every_so_many_entries_or_bytes() -> None:
    by_count = dues(tail(), 3 * MARK_ENTRIES, size=1)
    assert [MARK_ENTRIES - 1, 2 * MARK_ENTRIES - 1, 3 * MARK_ENTRIES - 1] == [
        index for index, due in enumerate(by_count) if due is MARK
    ]
    by_size = dues(tail(), 9, size=MARK_BYTES // 3 + 1)
    assert [2, 5, 8] == [index for index, due in enumerate(by_size) if due is MARK]
    assert [MARK] == dues(tail(), 1, size=MARK_BYTES)


def test_last_position_is_the_one_before_while_the_ledger_is_empty() -> None:
    state = tail()
    assert pos("4:9") == state.last_position
    append(state)
    assert pos("5:0") == state.last_position


def test_rewind_goes_back_to_what_is_confirmed() -> None:
    state = tail(max_entries_per_ledger=4)
    dues(state, 4)
    state.open_ledger(6, before=pos("5:3"), now_ms=10)
    dues(state, 2)
    state.rewind(5, entries=1, size=10, lac=pos("5:0"), opened_ms=3)
    assert (5, 1, 10, pos("5:0"), 3) == (
        state.ledger_id,
        state.next_entry,
        state.size,
        state.last_position,
        state.opened_ms,
    )
    assert [NOTHING, NOTHING, ROLL] == dues(state, 3)


def test_rewind_to_an_empty_ledger() -> None:
    state = tail()
    append(state)
    state.rewind(5, entries=0, size=0, lac=pos("4:9"), opened_ms=0)
    assert pos("4:9") == state.last_position


def test_record_is_a_mark_or_an_end() -> None:
    state = tail()
    state.max_timestamp_ms = 77
    dues(state, 2)
    expected = LedgerRecord(ledger_id=5, entries=2, size=20, max_timestamp_ms=77)
    assert expected == state.record()
    assert 9 == state.record(closed_ms=9).closed_ms
    state.open_ledger(6, before=pos("5:1"), now_ms=0)
    assert LedgerRecord(ledger_id=6) == state.record(), "no time stamp of the one before"


def test_new_limits_hold_from_the_next_append_on() -> None:
    state = tail()
    dues(state, 10)
    state.configure(ManagedLedgerConfig(max_entries_per_ledger=3))
    assert ROLL is append(state)


@pytest.mark.parametrize("ledger_id", range(1, 2000, 97))
def test_the_timer_is_spread_by_up_to_five_percent(ledger_id: int) -> None:
    state = tail(max_rollover_ms=1000)
    state.open_ledger(ledger_id, before=pos("1:0"), now_ms=500)
    deadline_ms = state.roll_deadline_ms
    assert deadline_ms is not None
    assert 1500 <= deadline_ms <= 1550


def test_the_spread_differs_between_ledgers() -> None:
    state = tail(max_rollover_ms=1_000_000)
    deadlines = set()
    for ledger_id in range(100):
        state.open_ledger(ledger_id, before=pos("1:0"), now_ms=0)
        deadlines.add(state.roll_deadline_ms)
    assert 90 < len(deadlines)


def test_no_age_limit_needs_no_timer() -> None:
    assert None is tail().roll_deadline_ms


def test_an_inactive_ledger_is_due_before_it_is_old() -> None:
    state = tail(now_ms=100, max_rollover_ms=1000, inactive_rollover_ms=50, min_rollover_ms=900)
    assert 150 == state.roll_deadline_ms
    state.active_ms = 400
    assert 450 == state.roll_deadline_ms
    state.active_ms = 1090
    deadline_ms = state.roll_deadline_ms
    assert deadline_ms is not None
    assert 1100 <= deadline_ms < 1140, "its age comes first now"
    assert 300 == tail(now_ms=200, inactive_rollover_ms=100).roll_deadline_ms
