"""What shared and key_shared have in common: limits, redelivery counts, delays, leaving."""

import pytest

from kledger.subscriptions.dispatch.multiple_consumers_state import MultipleConsumersState
from kledger.subscriptions.model import ALL, RecordMask
from tests.subscriptions.dispatch.builders import at, entry
from tests.subscriptions.dispatch.shared_builders import (
    again,
    counts,
    join,
    key_shared,
    read,
    shared,
    shown,
    some,
    wanted,
)

MAKERS = pytest.mark.parametrize("make", [shared, key_shared])
ENTRIES = [entry(number, b"a") for number in range(20)]
BATCH = entry(1, b"a", b"a", b"a", b"a")


def make_one(make: object, **options: int) -> MultipleConsumersState:
    """A state with one consumer, whose limit is `unacked_max`."""
    unacked_max = options.pop("unacked_max", 0)
    permits = options.pop("permits", 99)
    state: MultipleConsumersState = make(  # type: ignore[operator]
        *some(1, unacked_max=unacked_max), permits=permits, **options
    )
    return state


@MAKERS
def test_consumer_at_its_limit_gets_nothing_until_half(make: object) -> None:
    state = make_one(make, unacked_max=4)
    assert 4 == state.entries_wanted()
    assert {0: ["0.0", "1.0", "2.0", "3.0"]} == read(state, *ENTRIES[:6])
    assert ([], 0) == (wanted(state), state.entries_wanted())
    assert not state.acknowledged([RecordMask(at(0))])
    assert [] == wanted(state)
    assert state.acknowledged([RecordMask(at(1))])
    assert {0: ["4.0", "5.0"]} == again(state, *ENTRIES)


@MAKERS
def test_consumers_at_the_shared_limit_get_nothing_until_below_half(make: object) -> None:
    state = make_one(make, unacked_subscription_max=4)
    assert {0: ["0.0", "1.0", "2.0", "3.0"]} == read(state, *ENTRIES[:6])
    assert not state.acknowledged([RecordMask(at(0)), RecordMask(at(1))])
    assert ([], 0) == (wanted(state), state.entries_wanted())
    assert state.acknowledged([RecordMask(at(2))])
    assert {0: ["4.0", "5.0"]} == again(state, *ENTRIES)


@MAKERS
def test_records_acknowledged_before_are_not_delivered(make: object) -> None:
    state = make_one(make)
    out, taken = state.dispatch([BATCH, ENTRIES[2]], {at(1): 0b1010}, 0)
    assert ({0: ["1.1", "1.3", "2.0"]}, 2) == (shown(out), taken)
    assert 3 == state.consumers[0].unacked.count


@MAKERS
def test_acknowledging_queued_records_resumes_reading(make: object) -> None:
    """No consumer has records then, so no later acknowledgement would resume reading."""
    state = make_one(make)
    read(state, *ENTRIES[:2])
    state.redeliver(0, None)
    assert 0 == state.entries_wanted()
    assert not state.acknowledged([RecordMask(at(0))])
    assert state.acknowledged([RecordMask(at(1))])
    assert 0 < state.entries_wanted()


@MAKERS
def test_last_delivery_may_exceed_the_permits(make: object) -> None:
    state = make_one(make, permits=1)
    assert {0: ["1.0", "1.1", "1.2", "1.3"]} == read(state, BATCH, entry(2, b"a"))
    state.consumers[0].add_permits(3)
    assert [] == wanted(state)
    state.consumers[0].add_permits(1)
    assert [2] == wanted(state)


@MAKERS
def test_records_of_a_batch_are_redelivered_with_their_counts(make: object) -> None:
    state = make_one(make)
    read(state, BATCH)
    state.redeliver(0, [RecordMask(at(1), 0b0110), RecordMask(at(9))])
    assert 2 == state.unacknowledged
    out = state.dispatch_replayed([BATCH], {}, ())
    assert [(at(1), 0b0110, 1)] == counts(out, 0)
    state.redeliver(0, None)
    out = state.dispatch_replayed([BATCH], {}, ())
    assert [(at(1), 0b0001, 1), (at(1), 0b0110, 2), (at(1), 0b1000, 1)] == counts(out, 0)
    assert 6 == state.redelivered


@MAKERS
def test_records_acknowledged_meanwhile_are_not_redelivered(make: object) -> None:
    state = make_one(make)
    read(state, BATCH, entry(2, b"a"))
    state.redeliver(0, None)
    state.acknowledged([RecordMask(at(1), 0b0001)])
    assert [1, 2] == wanted(state)
    out = state.dispatch_replayed([BATCH], {at(1): 0b1010}, {at(2)})
    assert [(at(1), 0b1010, 1)] == counts(out, 0)
    assert [] == wanted(state)
    assert 2 == state.unacknowledged


@MAKERS
def test_records_of_a_removed_consumer_go_to_others(make: object) -> None:
    state = make_one(make)
    read(state, BATCH, entry(2, b"a"))
    other = join(state, some(2)[1])
    state.acknowledged([RecordMask(at(2))])
    state.remove(0)
    out = state.dispatch_replayed([BATCH], {}, ())
    assert [(at(1), ALL, 1)] == counts(out, other)


@MAKERS
def test_last_consumer_leaves_only_redelivery_counts(make: object) -> None:
    state = make_one(make)
    read(state, BATCH, entry(2, b"b", due_ms=50))
    state.remove(0)
    assert (0, 0, [], 0) == (
        state.unacknowledged,
        state.delayed,
        wanted(state),
        state.entries_wanted(),
    )
    assert {} == read(state, entry(3, b"c")), "a read that comes too late"
    number = join(state, some(1)[0])
    out, _ = state.dispatch([BATCH, entry(3, b"c")], {}, 0)
    assert [(at(1), ALL, 1), (at(3), ALL, 0)] == counts(out, number)


@MAKERS
def test_reset_forgets_counts_too(make: object) -> None:
    state = make_one(make)
    read(state, BATCH)
    state.remove(0)
    state.clear()
    number = join(state, some(1)[0])
    out, _ = state.dispatch([BATCH], {}, 0)
    assert [(at(1), ALL, 0)] == counts(out, number)


@MAKERS
def test_clear_keeps_consumers_and_their_permits(make: object) -> None:
    state = make_one(make, unacked_max=4)
    read(state, BATCH)
    state.clear()
    assert (0, 95) == (state.unacknowledged, state.consumers[0].permits)
    assert 2 == state.entries_wanted()


@MAKERS
def test_delayed_records_do_not_hold_up_others(make: object) -> None:
    state = make_one(make)
    late, soon, now = entry(1, b"a", due_ms=90), entry(2, b"a", due_ms=50), entry(3, b"a")
    assert {0: ["3.0"]} == read(state, late, soon, now, now_ms=20)
    assert (2, 50, 98) == (state.delayed, state.next_due_ms, state.consumers[0].permits)
    state.release_due(49)
    assert [] == wanted(state)
    state.release_due(50)
    assert {0: ["2.0"]} == again(state, soon)
    state.release_due(1_000)
    assert {0: ["1.0"]} == again(state, late)
    assert (0, None, 3) == (state.delayed, state.next_due_ms, state.unacknowledged)


@MAKERS
def test_delayed_record_that_is_due_is_delivered_at_once(make: object) -> None:
    state = make_one(make)
    assert {0: ["1.0"]} == read(state, entry(1, b"a", due_ms=20), now_ms=20)


@MAKERS
def test_too_many_delayed_records_hold_up_reading(make: object) -> None:
    state = make_one(make, delayed_max=2)
    read(state, *(entry(number, b"a", due_ms=50) for number in range(2)))
    assert 0 == state.entries_wanted()
    state.release_due(50)
    again(state, *ENTRIES)
    assert state.entries_wanted() > 0


@MAKERS
def test_acknowledged_upto_forgets_pending_queued_and_delayed(make: object) -> None:
    state = make_one(make)
    read(state, *ENTRIES[:3], entry(3, b"a", due_ms=50), entry(4, b"a", b"a"), ENTRIES[5])
    state.redeliver(0, [RecordMask(at(1))])
    state.acknowledged_upto(at(4), 0b01)
    assert (2, 0, []) == (state.unacknowledged, state.delayed, wanted(state))


@MAKERS
def test_unknown_records_are_ignored(make: object) -> None:
    state = make_one(make)
    read(state, BATCH)
    for _ in range(2):
        state.acknowledged([RecordMask(at(1)), RecordMask(at(77))])
    state.redeliver(0, [RecordMask(at(1))])
    assert (0, []) == (state.unacknowledged, wanted(state))
