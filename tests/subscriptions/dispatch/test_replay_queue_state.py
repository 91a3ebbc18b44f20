"""Queues of records to redeliver."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import Position
from kledger.subscriptions.dispatch.replay_queue_state import (
    INSERTED_SINGLY_MAX,
    KeyHashQueues,
    ReplayQueue,
)
from tests.subscriptions.dispatch.builders import at

CHANGES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 12), st.integers(1, 7), st.integers(1, 5)),
    max_size=60,
)


@given(CHANGES)
def test_queue_equals_a_dictionary(changes: list[tuple[bool, int, int, int]]) -> None:
    queue, expected = ReplayQueue(), dict[Position, int]()
    for is_added, entry_id, mask, count in changes:
        position = at(entry_id)
        if is_added:
            queue.add(position, mask)
            expected[position] = expected.get(position, 0) | mask
        else:
            queue.remove(position, mask)
            expected[position] = expected.get(position, 0) & ~mask
        expected = {each: left for each, left in expected.items() if left}
        assert sorted(expected)[:count] == queue.first(count, 1_000)
        assert expected.get(position, 0) == queue.records_of(position)
        assert (position in expected) == (position in queue)
        assert len(expected) == len(queue)


def test_first_removes_nothing() -> None:
    queue = ReplayQueue()
    queue.add(at(1), 0b11)
    assert [at(1)] == queue.first(9, 9) == queue.first(9, 9)


def test_first_is_limited_by_entries_and_records() -> None:
    queue = ReplayQueue()
    for entry_id in range(5):
        queue.add(at(entry_id), 0b111)
    assert [at(0), at(1)] == queue.first(9, 4)
    assert [at(0)] == queue.first(9, 1)
    assert [at(0), at(1), at(2)] == queue.first(3, 100)


def test_many_new_positions_are_sorted() -> None:
    queue = ReplayQueue()
    for entry_id in range(4 * INSERTED_SINGLY_MAX, 0, -1):
        queue.add(at(entry_id), 1)
    assert [at(1), at(2)] == queue.first(2, 9)
    queue.remove_before(at(50))
    assert [at(50)] == queue.first(1, 9)
    queue.clear()
    assert [] == queue.first(1, 9)


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 5), st.integers(1, 7)),
        max_size=60,
    )
)
def test_key_hash_queues_equal_a_dictionary(changes: list[tuple[bool, int, int, int]]) -> None:
    queue, expected = KeyHashQueues(), dict[tuple[int, Position], int]()
    for is_added, key_hash, entry_id, mask in changes:
        place = key_hash, at(entry_id)
        if is_added:
            queue.add(key_hash, at(entry_id), mask)
            expected[place] = expected.get(place, 0) | mask
        else:
            queue.remove(key_hash, at(entry_id), mask)
            expected[place] = expected.get(place, 0) & ~mask
        expected = {each: left for each, left in expected.items() if left}
        assert len(expected) == queue.mask_count
        assert {key_hash for key_hash, _ in expected} == set(queue.queues)
        for known in (1, 2, 3):
            positions = sorted(position for other, position in expected if other == known)
            assert positions == (queue.queues[known].order if known in queue else [])
            for place_id in map(at, range(6)):
                assert expected.get((known, place_id), 0) == queue.records_of(known, place_id)
                is_first = not positions or positions[0] >= place_id
                assert is_first == queue.is_first(known, place_id)


def test_key_hash_queues_are_cleared() -> None:
    queue = KeyHashQueues()
    queue.add(1, at(1), 1)
    queue.clear()
    assert (0, False) == (queue.mask_count, 1 in queue)
