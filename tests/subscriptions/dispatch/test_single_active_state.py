"""Exclusive and failover: one consumer gets everything, in order."""

import pytest

from kledger.subscriptions.dispatch.dispatch_state import RewindCursor
from kledger.subscriptions.dispatch.single_active_state import (
    UNACKED_COUNTED_MAX,
    SingleActiveState,
)
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.errors import ConsumerBusy
from kledger.subscriptions.model import ALL, RecordMask
from tests.subscriptions.dispatch.builders import at, consumer, entry


def exclusive() -> SingleActiveState:
    """An exclusive consumer that begins."""
    state = SingleActiveState(DispatchOptions(), is_exclusive=True)
    assert (0, RewindCursor()) == state.add(consumer())
    state.rewound()
    return state


def failover(*names: str, partition_index: int = 0) -> SingleActiveState:
    """Consumers whose active one begins."""
    options = DispatchOptions(failover_delay_ms=50, partition_index=partition_index)
    state = SingleActiveState(options, is_exclusive=False)
    for name in names:
        state.add(consumer(name))
    state.rewound()
    return state


def give(state: SingleActiveState, *entry_ids: int) -> list[int]:
    """Offer entries of one record; return which were given to the active one."""
    out, taken = state.dispatch([entry(each) for each in entry_ids], {}, 0)
    given = [each.position.entry_id for deliveries in out.values() for each in deliveries]
    assert given == list(entry_ids[:taken])
    return given


def test_second_exclusive_consumer_is_refused() -> None:
    state = exclusive()
    with pytest.raises(ConsumerBusy, match="other cannot join"):
        state.add(consumer("other"))
    assert state.remove(0) is None
    assert (1, RewindCursor()) == state.add(consumer("other"))


def test_nothing_is_read_before_the_rewind() -> None:
    state = SingleActiveState(DispatchOptions(), is_exclusive=True)
    state.add(consumer())
    state.consumers[0].add_permits(9)
    assert (0, True) == (state.entries_wanted(), state.is_rewind_due)
    assert [] == give(state, 1)
    state.rewound()
    assert (9, False) == (state.entries_wanted(), state.is_rewind_due)


def test_entries_beyond_the_permits_are_not_taken() -> None:
    state = exclusive()
    state.consumers[0].add_permits(3)
    batches = [entry(number, b"a", b"b") for number in range(3)]
    out, taken = state.dispatch(batches, {}, 0)
    assert [at(0), at(1)] == [each.position for each in out[0]]
    assert (2, 4, -1) == (taken, state.unacknowledged, state.consumers[0].permits)
    assert ({}, 0) == state.dispatch(batches[2:], {}, 0)


def test_only_unacknowledged_records_are_delivered() -> None:
    state = exclusive()
    state.consumers[0].add_permits(9)
    batches = [entry(number, b"a", b"b") for number in range(3)]
    out, taken = state.dispatch(batches, {at(0): 0b10, at(1): 0, at(2): 0b11}, 0)
    assert [(at(0), 0b10), (at(2), ALL)] == [(each.position, each.records) for each in out[0]]
    assert (3, 6) == (taken, state.consumers[0].permits)


def test_read_size_follows_the_size_of_batches() -> None:
    state = exclusive()
    state.consumers[0].add_permits(1_000)
    assert 500 == state.entries_wanted()
    for number in range(20):
        state.dispatch([entry(number, *[None] * 100)], {}, 0)
        state.consumers[0].add_permits(100)
    assert 10 == state.entries_wanted()


def test_failover_waits_after_an_active_consumer() -> None:
    state = failover("b", "c")
    state.consumers[0].add_permits(9)
    assert [1] == give(state, 1)
    assert (2, RewindCursor(50)) == state.add(consumer("a"))
    assert [False, False, True] == [state.is_active(number) for number in (0, 1, 2)]
    state.consumers[2].add_permits(9)
    assert [] == give(state, 2)
    state.rewound()
    assert [1, 2] == give(state, 1, 2)


def test_failover_keeps_the_active_consumer() -> None:
    state = failover("a", "b")
    assert (2, None) == state.add(consumer("c"))
    assert state.remove(1) is None
    assert state.remove(0) == RewindCursor(50)
    assert state.is_active(2)


def test_failover_without_a_former_consumer_does_not_wait() -> None:
    state = failover("a", "b")
    assert state.remove(0) == RewindCursor(50)
    assert state.remove(1) is None
    assert (2, RewindCursor()) == state.add(consumer("c"))


def test_partitions_have_different_active_consumers() -> None:
    found = []
    for index in range(4):
        state = failover("a", "b", "c", partition_index=index)
        found.append(next(n for n in range(3) if state.is_active(n)))
    assert [0, 1, 2, 0] == found


def test_redelivery_rewinds_and_counts() -> None:
    state = exclusive()
    state.consumers[0].add_permits(99)
    give(state, 1, 2, 3)
    assert RewindCursor() == state.redeliver(0, [RecordMask(at(2))])
    assert state.redeliver(0, None) is None
    state.rewound()
    out, _ = state.dispatch([entry(1), entry(2)], {}, 0)
    assert [1, 1] == [each.redelivery_count for each in out[0]]
    assert RewindCursor() == state.redeliver(0, None)
    state.rewound()
    out, _ = state.dispatch([entry(each) for each in (1, 2, 3, 4)], {}, 0)
    assert [2, 2, 1, 0] == [each.redelivery_count for each in out[0]]
    assert 5 == state.redelivered
    state.clear()
    out, _ = state.dispatch([entry(1)], {}, 0)
    assert 0 == out[0][0].redelivery_count


def test_redelivery_for_an_inactive_consumer_is_ignored() -> None:
    state = failover("a", "b")
    assert state.redeliver(1, None) is None
    assert state.redeliver(0, []) is None


def test_acknowledged_records_are_not_counted() -> None:
    state = exclusive()
    state.consumers[0].add_permits(99)
    state.dispatch([entry(number, b"a", b"b") for number in range(4)], {}, 0)
    assert not state.acknowledged(
        [RecordMask(at(1), 0b01), RecordMask(at(1), 0b01), RecordMask(at(9))]
    )
    assert 7 == state.unacknowledged
    assert not state.acknowledged_upto(at(2), 0b01)
    assert 3 == state.unacknowledged
    state.acknowledged([RecordMask(at(2)), RecordMask(at(3))])
    assert 0 == state.unacknowledged


def test_number_of_counted_entries_is_limited() -> None:
    """A reader that never acknowledges costs no more and more memory."""
    state = exclusive()
    state.consumers[0].add_permits(10 * UNACKED_COUNTED_MAX)
    one = entry(0)
    for number in range(0, UNACKED_COUNTED_MAX + 1_000, 1_000):
        entries = [one._replace(position=at(number + each)) for each in range(1_000)]
        assert 1_000 == state.dispatch(entries, {}, 0)[1]
    assert UNACKED_COUNTED_MAX == state.unacknowledged


def test_limits_of_unacknowledged_records_do_not_hold() -> None:
    state = SingleActiveState(DispatchOptions(unacked_subscription_max=1), is_exclusive=True)
    state.add(consumer(unacked_max=1))
    state.rewound()
    state.consumers[0].add_permits(9)
    assert [1, 2, 3] == give(state, 1, 2, 3)
