"""Permits are passed on as memory allows, and all of them in the end."""

from hypothesis import given
from hypothesis import strategies as st

from native.delivery_window_state import RECORD_BYTES_FIRST, DeliveryWindow

MIB = 1 << 20


def test_few_permits_are_passed_on_at_once() -> None:
    window = DeliveryWindow(4 * MIB, permits=10)
    assert 10 == window.take_grant()
    assert 0 == window.take_grant()


def test_many_permits_are_passed_on_as_far_as_large_records_would_fit() -> None:
    window = DeliveryWindow(4 * MIB, permits=1_000)
    assert 4 * MIB // RECORD_BYTES_FIRST == window.take_grant()


def test_small_records_open_the_window() -> None:
    window = DeliveryWindow(4 * MIB, permits=1_000_000)
    for _ in range(12):
        window.take_grant()
        delivered = window.granted
        window.delivered(delivered, 100 * delivered)
        window.written(100 * delivered)
    assert 100 == window.record_bytes
    assert 4 * MIB // 100 == window.take_grant()


def test_slow_reader_is_handed_nothing_more_until_something_was_written() -> None:
    window = DeliveryWindow(4 * MIB, permits=1_000)
    granted = window.take_grant()
    window.delivered(granted, 4 * MIB)
    assert 0 == window.take_grant()
    window.written(MIB)
    assert MIB // RECORD_BYTES_FIRST == window.take_grant()


def test_nothing_is_passed_on_in_dribbles() -> None:
    window = DeliveryWindow(4 * MIB, permits=1_000)
    granted = window.take_grant()
    window.delivered(granted // 4, granted // 4 * RECORD_BYTES_FIRST)
    window.written(granted // 4 * RECORD_BYTES_FIRST)
    assert 0 == window.take_grant(), "three quarters are unused"
    window.delivered(granted // 4, granted // 4 * RECORD_BYTES_FIRST)
    window.written(granted // 4 * RECORD_BYTES_FIRST)
    assert granted // 2 == window.take_grant()


def test_entry_beyond_the_permits_is_counted_against_the_next_ones() -> None:
    """The dispatcher owes as well: it hands out nothing before its own count is above 0."""
    window = DeliveryWindow(4 * MIB, permits=10)
    assert 10 == window.take_grant()
    window.delivered(500, 5_000)
    window.written(5_000)
    window.permits += 600
    assert window.take_grant() > 490
    assert window.granted > 0


def test_what_is_dropped_makes_room_and_gives_its_permits_back() -> None:
    window = DeliveryWindow(4 * MIB, permits=10)
    assert 10 == window.take_grant()
    window.delivered(10, 4 * MIB)
    window.dropped(10, 4 * MIB)
    assert (0, 10) == (window.waiting_bytes, window.permits)
    assert 10 == window.take_grant()


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 2 * MIB)), min_size=1),
    st.integers(1, 5_000),
)
def test_every_permit_is_passed_on_to_a_client_that_reads(
    entries: list[tuple[int, int]], permits: int
) -> None:
    window = DeliveryWindow(4 * MIB, permits=permits)
    passed_on = 0
    while window.permits:
        passed_on += window.take_grant()
        assert window.granted > 0 or not window.permits, "a client that reads gets on"
        records, size = entries[passed_on % len(entries)]
        window.delivered(records, size)
        window.written(size)
    assert permits == passed_on
    assert 0 == window.waiting_bytes
