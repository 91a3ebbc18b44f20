"""Records that wait for their time."""

from kledger.subscriptions.dispatch.delayed_state import DelayedState
from tests.subscriptions.dispatch.builders import at


def waiting(*due: int) -> DelayedState:
    state = DelayedState()
    for entry_id, due_ms in enumerate(due):
        state.add(due_ms, at(entry_id), ((entry_id + 1, 1),))
    return state


def test_entries_become_due_in_the_order_of_times() -> None:
    state = waiting(30, 10, 20, 10)
    assert 10 == state.next_due_ms
    assert [] == state.pop_due(9)
    assert [at(1), at(3), at(2)] == [position for position, _ in state.pop_due(20)]
    assert (1, 30) == (len(state), state.next_due_ms)
    assert [(at(0), ((1, 1),))] == state.pop_due(99)
    assert state.next_due_ms is None


def test_acknowledged_entries_are_forgotten() -> None:
    state = waiting(30, 10, 20, 40)
    state.forget_before(at(2))
    assert [at(2), at(3)] == [position for position, _ in state.pop_due(99)]
    state = waiting(1)
    state.clear()
    assert 0 == len(state)
