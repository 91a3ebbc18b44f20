"""Who has which records."""

import pytest

from kledger.subscriptions.model import ALL, Piece
from kledger.subscriptions.pending_state import Held, PendingState
from tests.subscriptions.dispatch_words import at


@pytest.fixture
def state() -> PendingState:
    """Entry 1 is split between two consumers, entry 2 is with one of them."""
    made = PendingState()
    made.add(at(1), 10, 0b0011)
    made.add(at(1), 20, 0b0100)
    made.add(at(1), 10, 0b1000)
    made.add(at(2), 20, 0b1)
    return made


def test_pieces_of_a_consumer_come_in_order(state: PendingState) -> None:
    state.add(at(0), 20, 0b1)
    assert [Piece(at(1), 0b1011)] == state.pieces_of(10)
    assert [Piece(at(0), 1), Piece(at(1), 0b0100), Piece(at(2), 1)] == state.pieces_of(20)
    assert [] == state.pieces_of(30)


def test_acknowledged_records_leave_whoever_has_them(state: PendingState) -> None:
    assert {Held(10, 0b0010), Held(20, 0b0100)} == set(state.remove(at(1), 0b10110))
    assert () == state.remove(at(1), 0b0110)
    assert [Piece(at(1), 0b1001)] == state.pieces_of(10)
    assert (Held(20, 1),) == state.remove(at(2), ALL)
    assert (Held(10, 0b1001),) == state.remove(at(1), ALL)
    assert 0 == len(state)
    assert () == state.remove(at(9), ALL)


def test_only_what_a_consumer_has_is_taken_from_it(state: PendingState) -> None:
    assert 0b0010 == state.remove_of(10, at(1), 0b0110)
    assert 0 == state.remove_of(10, at(1), 0b0110)
    assert 0 == state.remove_of(10, at(2), ALL)
    assert 0b1001 == state.remove_of(10, at(1), ALL)
    assert [Piece(at(1), 0b0100), Piece(at(2), 1)] == state.pieces_of(20)


def test_record_is_with_one_consumer(state: PendingState) -> None:
    with pytest.raises(AssertionError, match="are with 20"):
        state.add(at(1), 10, 0b0100)


def test_positions_before_one(state: PendingState) -> None:
    assert [at(1)] == state.positions_before(at(2))
    assert at(2) in state
    state.clear()
    assert at(2) not in state
