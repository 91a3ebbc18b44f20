"""Permits are passed on as memory allows, and all of them in the end."""

from hypothesis import given
from hypothesis import strategies as st

from kledger.native.broker import PERMITS_PER_CALL_MAX
from kledger.native.rpc.delivery_window_state import (
    PART_BYTES_MIN,
    RECORD_BYTES_FIRST,
    DeliveryTotal,
    DeliveryWindow,
)

MIB = 1 << 20


def window_of(*, permits: int, total: DeliveryTotal | None = None) -> DeliveryWindow:
    return DeliveryWindow(4 * MIB, total or DeliveryTotal(1 << 40), permits=permits)


def test_few_permits_are_passed_on_at_once() -> None:
    window = window_of(permits=10)
    assert 10 == window.take_grant()
    assert 0 == window.take_grant()


def test_many_permits_are_passed_on_as_far_as_large_records_would_fit() -> None:
    window = window_of(permits=1_000)
    assert 4 * MIB // RECORD_BYTES_FIRST == window.take_grant()


def test_small_records_open_the_window() -> None:
    window = window_of(permits=1_000_000)
    for _ in range(12):
        window.take_grant()
        delivered = window.granted
        window.delivered(delivered, 100 * delivered)
        window.written(100 * delivered)
    assert 100 == window.record_bytes
    assert 4 * MIB // 100 == window.take_grant()


def test_grant_is_never_more_than_one_call_may_add() -> None:
    """Regression: a compressed record can take less than a byte, and the link failed."""
    window = window_of(permits=3 * PERMITS_PER_CALL_MAX)
    window.record_bytes = 1
    grants = []
    while count := window.take_grant():
        grants.append(count)
        window.delivered(count, 0)
    assert [PERMITS_PER_CALL_MAX] * 3 == grants


def test_slow_reader_gets_no_permits_until_a_delivery_is_written() -> None:
    window = window_of(permits=1_000)
    granted = window.take_grant()
    window.delivered(granted, 4 * MIB)
    assert 0 == window.take_grant()
    window.written(MIB)
    assert MIB // RECORD_BYTES_FIRST == window.take_grant()


def test_permits_are_not_granted_in_small_steps() -> None:
    window = window_of(permits=1_000)
    granted = window.take_grant()
    window.delivered(granted // 4, granted // 4 * RECORD_BYTES_FIRST)
    window.written(granted // 4 * RECORD_BYTES_FIRST)
    assert 0 == window.take_grant(), "three quarters are unused"
    window.delivered(granted // 4, granted // 4 * RECORD_BYTES_FIRST)
    window.written(granted // 4 * RECORD_BYTES_FIRST)
    assert granted // 2 == window.take_grant()


def test_entry_beyond_the_permits_is_counted_against_the_next_ones() -> None:
    """The dispatcher also counts below 0: it delivers nothing before its permits are positive."""
    window = window_of(permits=10)
    assert 10 == window.take_grant()
    window.delivered(500, 5_000)
    window.written(5_000)
    window.permits += 600
    assert window.take_grant() > 490
    assert window.granted > 0


def test_dropped_deliveries_free_the_window_and_return_permits() -> None:
    window = window_of(permits=10)
    assert 10 == window.take_grant()
    window.delivered(10, 4 * MIB)
    window.dropped(10, 4 * MIB)
    assert (0, 10) == (window.waiting_bytes, window.permits)
    assert 10 == window.take_grant()
    window.permits = 3
    window.delivered(2, 10)
    window.dropped(2, 10)
    assert 5 == window.permits, "beside those that were not passed on yet"


def test_grant_adds_to_unused_permits() -> None:
    window = window_of(permits=10)
    window.take_grant()
    window.permits = 5
    assert (5, 15) == (window.take_grant(), window.granted)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 2 * MIB)), min_size=1),
    st.integers(1, 5_000),
)
def test_every_permit_is_passed_on_to_a_client_that_reads(
    entries: list[tuple[int, int]], permits: int
) -> None:
    window = window_of(permits=permits)
    passed_on = 0
    while window.permits:
        passed_on += window.take_grant()
        assert window.granted > 0 or not window.permits, "a client that reads gets on"
        records, size = entries[passed_on % len(entries)]
        window.delivered(records, size)
        window.written(size)
    assert permits == passed_on
    assert 0 == window.waiting_bytes


def test_consumers_that_do_not_read_hold_the_total_and_little_more() -> None:
    """100 of them, each of which alone would get 4 MiB."""
    total = DeliveryTotal(8 * MIB)
    for _ in range(100):
        window = window_of(permits=10_000, total=total)
        while count := window.take_grant():
            window.delivered(count, count * RECORD_BYTES_FIRST)
    assert 8 * MIB <= total.waiting_bytes <= 8 * MIB + 100 * RECORD_BYTES_FIRST


def test_reading_consumer_proceeds_when_the_total_is_reached() -> None:
    total = DeliveryTotal(4 * MIB)
    slow = window_of(permits=10_000, total=total)
    slow.delivered(slow.take_grant(), 5 * MIB)
    window = window_of(permits=5, total=total)
    for _ in range(5):
        assert 1 == window.take_grant()
        assert 0 == window.take_grant(), "one is under way"
        window.delivered(1, 100)
        assert 0 == window.take_grant(), "it is not written yet"
        window.written(100)
    assert 0 == window.take_grant()


def test_more_is_passed_on_when_something_was_written() -> None:
    total = DeliveryTotal(4 * MIB)
    slow, window = window_of(permits=10_000, total=total), window_of(permits=100, total=total)
    slow.delivered(slow.take_grant(), 5 * MIB)
    assert 1 == window.take_grant()
    slow.written(2 * MIB)
    assert 2 * MIB // RECORD_BYTES_FIRST - 1 == window.take_grant()


def test_idle_consumer_holds_at_most_its_part() -> None:
    total = DeliveryTotal(MIB)
    windows = [window_of(permits=10_000, total=total) for _ in range(4)]
    assert [MIB // 4 // RECORD_BYTES_FIRST] * 4 == [each.take_grant() for each in windows]
    windows += [window_of(permits=10_000, total=total) for _ in range(1_000)]
    assert PART_BYTES_MIN // RECORD_BYTES_FIRST == windows[-1].take_grant()


def test_closed_consumer_leaves_nothing_in_the_total() -> None:
    total = DeliveryTotal(4 * MIB)
    window = window_of(permits=10, total=total)
    window.delivered(window.take_grant(), 5 * MIB)
    window.close()
    window.close()
    window.delivered(1, MIB)
    window.written(5 * MIB)
    assert DeliveryTotal(4 * MIB) == total


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("gdwx"), st.integers(1, 2 * MIB))))
def test_no_consumer_ever_waits_for_another(steps: list[tuple[int, str, int]]) -> None:
    """Each has used up its permits, or has an unwritten delivery that will trigger a grant."""
    total = DeliveryTotal(2 * MIB)
    windows = [window_of(permits=200, total=total) for _ in range(4)]
    for number, step, size in steps:
        window = windows[number]
        match step:
            case "d" if window.granted > 0:
                window.delivered(min(3, window.granted), size)
            case "w" if window.waiting_bytes:
                window.written(min(size, window.waiting_bytes))
            case "x" if window.waiting_bytes:
                window.dropped(1, window.waiting_bytes)
        window.take_grant()
        assert not window.permits or window.granted > 0 or window.waiting_bytes
        assert total.waiting_bytes == sum(each.waiting_bytes for each in windows)
