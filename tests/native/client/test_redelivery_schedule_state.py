"""The schedule of redeliveries."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import Position
from kledger.native.client.redelivery_schedule_state import TICK_MAX_MS, RedeliverySchedule
from kledger.subscriptions.model import ALL, RecordMask


def pos(entry_id: int) -> Position:
    return Position(5, entry_id)


def planned(*plans: tuple[int, int, int], delay_ms: int = 1_000) -> RedeliverySchedule:
    """Plan records (entry, mask) at a time."""
    state = RedeliverySchedule()
    for entry_id, records, now_ms in plans:
        state.schedule(pos(entry_id), records, now_ms=now_ms, delay_ms=delay_ms)
    return state


def test_due_records_are_ordered_with_one_mask_per_entry() -> None:
    state = planned((2, 0b01, 0), (1, 0b10, 0), (2, 0b10, 0), (3, ALL, 0))
    assert 1_000 == state.next_ms
    assert [] == state.pop_due(999)
    assert [
        RecordMask(pos(1), 0b10),
        RecordMask(pos(2), 0b11),
        RecordMask(pos(3), ALL),
    ] == state.pop_due(1_000)
    assert state.is_empty
    assert state.next_ms is None


def test_neighbours_in_time_come_together_not_early() -> None:
    state = planned((1, 1, 1), (2, 1, 50), (3, 1, 100), (4, 1, 101))
    assert [RecordMask(pos(each), 1) for each in (1, 2, 3)] == state.pop_due(1_000 + TICK_MAX_MS)
    assert [RecordMask(pos(4), 1)] == state.pop_due(1_000 + 2 * TICK_MAX_MS)


def test_short_delay_is_not_rounded_to_a_long_one() -> None:
    state = planned((1, 1, 3), delay_ms=5)
    assert [RecordMask(pos(1), 1)] == state.pop_due(8)


def test_new_time_replaces_the_old() -> None:
    state = planned((1, 0b1, 0), (1, 0b10, 0))
    state.schedule(pos(1), 0b1, now_ms=0, delay_ms=5_000)
    assert [RecordMask(pos(1), 0b10)] == state.pop_due(1_000)
    assert [RecordMask(pos(1), 0b1)] == state.pop_due(5_000)


def test_acknowledged_records_are_not_due() -> None:
    state = planned((1, 0b1, 0), (1, 0b10, 0), (2, ALL, 0), (3, 0b1, 0))
    state.forget(pos(1), 0b10)
    state.forget(pos(2), ALL)
    state.forget(pos(3), 0b10)
    state.forget(pos(9), ALL)
    assert [RecordMask(pos(1), 0b1), RecordMask(pos(3), 0b1)] == state.pop_due(1_000)


def test_everything_before_a_position_is_removed() -> None:
    state = planned((1, 0b1, 0), (2, 0b1, 0), (2, 0b10, 0), (3, 0b1, 0))
    state.forget_upto(pos(2), 0b1)
    assert [RecordMask(pos(2), 0b10), RecordMask(pos(3), 0b1)] == state.pop_due(1_000)


def test_clear_forgets_all() -> None:
    state = planned((1, 0b1, 0))
    state.clear()
    assert (True, None, []) == (state.is_empty, state.next_ms, state.pop_due(9_999))


steps = st.lists(
    st.tuples(
        st.sampled_from(["plan", "forget", "pop"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 300),
    )
)


@given(steps)
def test_every_record_is_due_once_at_its_last_time(steps: list[tuple[str, int, int, int]]) -> None:
    """Against a plain table of times."""
    state, table, now_ms = RedeliverySchedule(), dict[tuple[int, int], int](), 0
    for step, entry_id, index, ms in steps:
        match step:
            case "plan":
                state.schedule(pos(entry_id), 1 << index, now_ms=now_ms, delay_ms=ms)
                table[entry_id, index] = now_ms + ms
            case "forget":
                state.forget(pos(entry_id), 1 << index)
                table.pop((entry_id, index), None)
            case _:
                now_ms += ms
                came = {
                    (mask.position.entry_id, index)
                    for mask in state.pop_due(now_ms)
                    for index in range(3)
                    if mask.records >> index & 1
                }
                surely = {each for each, due_ms in table.items() if due_ms + 30 <= now_ms}
                perhaps = {each for each, due_ms in table.items() if due_ms <= now_ms}
                assert surely <= came <= perhaps
                for each in came:
                    del table[each]
    assert state.is_empty == (not table)
