"""Shared: entries are delivered to consumers in rotation."""

import pytest

from kledger.subscriptions.model import RecordMask
from tests.subscriptions.dispatch.builders import at, consumer, entry
from tests.subscriptions.dispatch.shared_builders import again, read, shared, some, wanted

ENTRIES = [entry(number, None) for number in range(20)]


def test_rotation_gives_several_entries_in_a_row() -> None:
    state = shared(*some(3), round_robin_entries_max=2)
    assert {0: ["0.0", "1.0"], 1: ["2.0", "3.0"], 2: ["4.0"]} == read(state, *ENTRIES[:5])
    assert {0: ["5.0"]} == read(state, ENTRIES[5])
    assert {1: ["6.0"]} == read(state, ENTRIES[6])


def test_rotation_moves_on_without_permits() -> None:
    state = shared(*some(2), permits=1)
    assert {0: ["0.0"], 1: ["1.0"]} == read(state, *ENTRIES[:4])
    assert ([], 0) == (wanted(state), state.entries_wanted())
    state.consumers[1].add_permits(5)
    assert 0 == state.entries_wanted(), "what was read comes first"
    assert {1: ["2.0", "3.0"]} == again(state, *ENTRIES)
    assert 3 == state.entries_wanted()


def test_lower_priority_gets_what_the_higher_has_no_room_for() -> None:
    consumers = [consumer("low", priority_level=1), consumer("high"), consumer("other")]
    state = shared(*consumers, permits=2, round_robin_entries_max=9)
    assert {1: ["0.0", "1.0"], 2: ["2.0", "3.0"], 0: ["4.0"]} == read(state, *ENTRIES[:5])
    state.consumers[2].add_permits(1)
    assert {2: ["5.0"]} == read(state, ENTRIES[5])


def test_rotation_skips_a_removed_consumer() -> None:
    state = shared(*some(2))
    assert {0: ["0.0"]} == read(state, ENTRIES[0])
    state.remove(0)
    assert {1: ["1.0"]} == read(state, ENTRIES[1])


@pytest.mark.parametrize("order", [(3, 1, 2), (1, 2, 3)])
def test_redelivery_begins_with_the_lowest_position(order: tuple[int, ...]) -> None:
    state = shared(*some(1), permits=6)
    read(state, *ENTRIES[:4])
    for entry_id in order:
        state.redeliver(0, [RecordMask(at(entry_id))])
    assert [1, 2] == wanted(state), "as far as there is room"
    assert {0: ["1.0", "2.0"]} == again(state, *ENTRIES)
    state.consumers[0].add_permits(1)
    assert {0: ["3.0"]} == again(state, *ENTRIES)


def test_room_is_that_of_all_consumers() -> None:
    state = shared(*some(3, unacked_max=5), permits=9, unacked_subscription_max=12)
    assert 12 == state.entries_wanted()
    read(state, *ENTRIES[:4])
    assert 8 == state.entries_wanted()
