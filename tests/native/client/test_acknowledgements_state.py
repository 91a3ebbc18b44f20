"""Groups of acknowledgements in the making."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import Position
from kledger.native.client.acknowledgements_state import AcknowledgementsState
from kledger.subscriptions.model import ALL, Acknowledgement


def ack(entry_id: int, records: int, batch_size: int = 4) -> Acknowledgement:
    return Acknowledgement(Position(5, entry_id), records, batch_size)


def test_records_of_one_entry_become_one() -> None:
    state = AcknowledgementsState()
    for each in (ack(2, 0b0001), ack(1, 0b0010), ack(2, 0b0100), ack(2, 0b0100)):
        state.add(each)
    assert (None, [ack(1, 0b0010), ack(2, 0b0101)]) == state.take()
    assert state.is_empty


def test_fully_acknowledged_entry_becomes_a_whole_one() -> None:
    state = AcknowledgementsState()
    state.add(ack(1, 0b0111))
    state.add(ack(1, 0b1000))
    state.add(ack(2, ALL))
    state.add(ack(2, 0b0001))
    assert (None, [ack(1, ALL), ack(2, ALL)]) == state.take()


def test_largest_cumulative_position_is_kept() -> None:
    state = AcknowledgementsState()
    for each in (ack(2, 0b0011), ack(1, ALL), ack(2, 0b0001)):
        state.add_upto(each)
    assert not state.is_empty
    assert (ack(2, 0b0011), []) == state.take()
    state.add_upto(ack(1, 0b0001))
    state.add_upto(ack(3, ALL))
    assert (ack(3, ALL), []) == state.take()
    assert (None, []) == state.take()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_a_group_contains_what_was_added(records: list[tuple[int, int]]) -> None:
    state = AcknowledgementsState()
    for entry_id, index in records:
        state.add(ack(entry_id, 1 << index))
    _, group = state.take()
    expected = {
        (each.position.entry_id, index)
        for each in group
        for index in range(4)
        if each.records >> index & 1
    }
    assert set(records) == expected
    assert sorted(group) == group
