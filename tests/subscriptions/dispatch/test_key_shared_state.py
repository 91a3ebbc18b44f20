"""Key_shared: every key has one consumer and keeps its order, while consumers come and go."""

import pytest

from kledger.subscriptions.dispatch.key_shared_state import KeySharedState
from kledger.subscriptions.entry_view import key_hash_of
from kledger.subscriptions.errors import ConsumerAssign, ConsumerBusy
from kledger.subscriptions.model import ALL, RecordMask
from tests.subscriptions.dispatch.builders import at, consumer, entry
from tests.subscriptions.dispatch.shared_builders import (
    HIGH,
    LOW,
    MIDDLE,
    again,
    join,
    key_shared,
    read,
    some,
    wanted,
)

KEYS = [b"%d" % number for number in range(100)]
X, Y = [key for key in KEYS if key_hash_of(key) <= MIDDLE][:2]  # of the owner of the lower half
Z = next(key for key in KEYS if key_hash_of(key) > MIDDLE)

LOWER, UPPER = consumer("lower", key_ranges=LOW), consumer("upper", key_ranges=HIGH)


@pytest.fixture
def state() -> KeySharedState:
    """Consumer 0 has the lower half, 1 the upper."""
    return key_shared(LOWER, UPPER)


def hand_over(state: KeySharedState) -> int:
    """The lower half goes to another consumer, while the old one has what it has."""
    state._owners.remove(0)  # type: ignore[union-attr]
    return join(state, consumer("next", key_ranges=LOW))


def test_entry_is_split_by_the_owners_of_its_keys(state: KeySharedState) -> None:
    out, _ = state.dispatch([entry(1, X, Z, Y, X, Z)], {}, 0)
    assert [(at(1), 0b01101)] == [(each.position, each.records) for each in out[0]]
    assert [(at(1), 0b10010)] == [(each.position, each.records) for each in out[1]]
    out, _ = state.dispatch([entry(2, X, Y)], {}, 0)
    assert [ALL] == [each.records for each in out[0]]


def test_key_without_room_is_queued_and_others_continue(state: KeySharedState) -> None:
    state.consumers[0].permits = 1
    entries = [entry(0, X), entry(1, X, Z), entry(2, Y), entry(3, Z)]
    assert {0: ["0.0"], 1: ["1.1", "3.0"]} == read(state, *entries)
    assert [] == wanted(state)
    assert state.entries_wanted() > 0
    state.consumers[0].add_permits(9)
    assert 0 == state.entries_wanted(), "what waits comes first"
    assert {0: ["1.0", "2.0"]} == again(state, *entries)


def test_queued_records_of_a_key_are_not_overtaken(state: KeySharedState) -> None:
    """Room comes back between two reads: what is new of the key goes behind what waits."""
    state.consumers[0].permits = 1
    entries = [entry(number, X) for number in range(4)]
    assert {0: ["0.0"]} == read(state, *entries[:2])
    state.consumers[0].add_permits(9)
    assert {} == read(state, entries[2])
    assert {0: ["1.0", "2.0"]} == again(state, *entries)
    assert {0: ["3.0"]} == read(state, entries[3])


def test_key_hash_that_moves_is_drained_first() -> None:
    """PIP-379: nothing of a key goes to its new owner while the old one has some of it."""
    state = key_shared(LOWER, UPPER)
    entries = [entry(0, X), entry(1, X), entry(2, X), entry(3, Y), entry(4, Z)]
    read(state, *entries[:2])
    new = hand_over(state)
    assert {new: ["3.0"], 1: ["4.0"]} == read(state, *entries[2:])
    assert not state.acknowledged([RecordMask(at(0))])
    assert [] == wanted(state)
    assert state.acknowledged([RecordMask(at(1))])
    assert {new: ["2.0"]} == again(state, *entries)


def test_record_taken_back_waits_for_later_ones() -> None:
    """The old owner gives back a record and keeps a later one of the key."""
    state = key_shared(LOWER, UPPER)
    entries = [entry(0, X), entry(1, X)]
    read(state, *entries)
    new = hand_over(state)
    state.redeliver(0, [RecordMask(at(0))])
    assert [] == wanted(state)
    state.redeliver(0, [RecordMask(at(1))])
    assert {new: ["0.0", "1.0"]} == again(state, *entries)


def test_record_taken_back_from_its_owner_does_not_wait(state: KeySharedState) -> None:
    entries = [entry(0, X), entry(1, X)]
    read(state, *entries)
    state.redeliver(0, [RecordMask(at(0))])
    assert {0: ["0.0"]} == again(state, *entries)


def test_keys_of_a_removed_consumer_stay_in_order() -> None:
    state = key_shared(*some(2))
    entries = [entry(number, b"k%d" % (number % 5)) for number in range(20)]
    before = read(state, *entries)
    assert {0, 1} == set(before)
    state.remove(0)
    assert {1: before[0]} == again(state, *entries)


def test_earlier_record_taken_back_during_a_read_is_first(state: KeySharedState) -> None:
    entries = [entry(0, X), entry(1, X)]
    read(state, *entries)
    state.redeliver(0, [RecordMask(at(1))])
    assert [1] == wanted(state)
    state.redeliver(0, [RecordMask(at(0))])
    assert {} == state.dispatch_replayed(entries[1:], {}, ()), "0 has come in between"
    assert {0: ["0.0", "1.0"]} == again(state, *entries)


def test_acknowledged_part_of_an_entry_does_not_hold_up_the_key(state: KeySharedState) -> None:
    """An entry of which one part is given and the other one is found acknowledged."""
    state.consumers[0].permits = 0
    state.consumers[1].permits = 0
    batch = entry(1, X, Z)
    assert {} == read(state, batch)
    state.consumers[1].add_permits(1)
    out = state.dispatch_replayed([batch], {at(1): 0b10}, ())
    assert [0b10] == [each.records for each in out[1]]
    assert [] == wanted(state)
    state.consumers[0].add_permits(1)
    assert {0: ["2.0"]} == read(state, entry(2, X))
    state.acknowledged([RecordMask(at(1)), RecordMask(at(2))])
    assert ({}, 0) == (state._key_hashes, len(state._holders))


def test_key_hashes_without_owner_are_queued() -> None:
    state = key_shared(LOWER)
    entries = [entry(0, Z), entry(1, X)]
    assert {0: ["1.0"]} == read(state, *entries)
    assert [] == wanted(state)
    join(state, UPPER)
    assert {1: ["0.0"]} == again(state, *entries)


@pytest.mark.parametrize(("consumer_max", "total_max"), [(3, 100), (100, 6)])
def test_look_ahead_is_limited(consumer_max: int, total_max: int) -> None:
    state = key_shared(LOWER, UPPER, look_ahead_consumer_max=consumer_max, look_ahead_max=total_max)
    state.consumers[0].permits = 0
    read(state, *(entry(number, X) for number in range(5)))
    assert state.entries_wanted() > 0
    read(state, entry(5, Y))
    assert 0 == state.entries_wanted()
    state.acknowledged([RecordMask(at(5))])
    assert state.entries_wanted() > 0


def test_delayed_record_keeps_its_key() -> None:
    state = key_shared(LOWER, UPPER)
    late = entry(0, X, due_ms=50)
    assert {0: ["1.0"]} == read(state, late, entry(1, X))
    new = hand_over(state)
    state.release_due(50)
    assert [] == wanted(state), "1 is pending with the old owner"
    state.acknowledged([RecordMask(at(1))])
    assert {new: ["0.0"]} == again(state, late)


def test_ranges_are_checked_where_consumers_join(state: KeySharedState) -> None:
    with pytest.raises(ConsumerAssign, match="overlaps"):
        state.add(consumer("third", key_ranges=((5, 6),)))
    with pytest.raises(ConsumerBusy, match="name ranges"):
        state.add(consumer("third"))
    assert {0: ["1.0"]} == read(state, entry(1, X))


def test_kind_of_selector_is_that_of_first_consumer(state: KeySharedState) -> None:
    state.remove(0)
    state.remove(1)
    number = join(state, consumer("third"))
    assert {number: ["1.0", "2.0"]} == read(state, entry(1, X), entry(2, Z))


def test_nothing_is_left_when_everything_is_acknowledged(state: KeySharedState) -> None:
    entries = [entry(number, X, Z, None) for number in range(9)]
    read(state, *entries)
    state.redeliver(0, None)
    again(state, *entries)
    state.acknowledged([RecordMask(each.position) for each in entries])
    assert ({}, 0, 0) == (state._key_hashes, len(state._holders), state._queue.mask_count)
