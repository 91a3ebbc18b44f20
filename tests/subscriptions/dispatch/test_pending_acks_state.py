"""Which consumer has which records."""

import pytest

from kledger.subscriptions.dispatch.pending_acks_state import PendingAcks, PendingRecords
from kledger.subscriptions.model import ALL, RecordMask
from tests.subscriptions.dispatch.builders import at


@pytest.fixture
def state() -> PendingAcks:
    """Entry 1 is split between two consumers, entry 2 is with one of them."""
    made = PendingAcks()
    made.add(at(1), 10, 0b0011)
    made.add(at(1), 20, 0b0100)
    made.add(at(1), 10, 0b1000)
    made.add(at(2), 20, 0b1)
    return made


def test_records_of_a_consumer_are_in_order(state: PendingAcks) -> None:
    state.add(at(0), 20, 0b1)
    assert [RecordMask(at(1), 0b1011)] == state.masks_of(10)
    assert [
        RecordMask(at(0), 1),
        RecordMask(at(1), 0b0100),
        RecordMask(at(2), 1),
    ] == state.masks_of(20)
    assert [] == state.masks_of(30)


def test_acknowledged_records_are_removed_from_any_consumer(state: PendingAcks) -> None:
    assert {PendingRecords(10, 0b0010), PendingRecords(20, 0b0100)} == set(
        state.remove(at(1), 0b10110)
    )
    assert () == state.remove(at(1), 0b0110)
    assert [RecordMask(at(1), 0b1001)] == state.masks_of(10)
    assert (PendingRecords(20, 1),) == state.remove(at(2), ALL)
    assert (PendingRecords(10, 0b1001),) == state.remove(at(1), ALL)
    assert 0 == len(state)
    assert () == state.remove(at(9), ALL)


def test_only_records_of_the_consumer_are_removed(state: PendingAcks) -> None:
    assert 0b0010 == state.remove_of(10, at(1), 0b0110)
    assert 0 == state.remove_of(10, at(1), 0b0110)
    assert 0 == state.remove_of(10, at(2), ALL)
    assert 0b1001 == state.remove_of(10, at(1), ALL)
    assert [RecordMask(at(1), 0b0100), RecordMask(at(2), 1)] == state.masks_of(20)


def test_record_has_one_consumer(state: PendingAcks) -> None:
    with pytest.raises(AssertionError, match="consumer 20 has records"):
        state.add(at(1), 10, 0b0100)


def test_positions_before_one(state: PendingAcks) -> None:
    assert [at(1)] == state.positions_before(at(2))
    assert at(2) in state
    state.clear()
    assert at(2) not in state
