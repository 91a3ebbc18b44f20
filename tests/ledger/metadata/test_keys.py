"""Keys: order, ranges, and decoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.metadata import keys

IDS = st.integers(min_value=0, max_value=(1 << 63) - 1)


@given(IDS, IDS, IDS)
def test_order_of_keys_is_order_of_ids(managed: int, one: int, other: int) -> None:
    one_key, other_key = keys.ledger_key(managed, one), keys.ledger_key(managed, other)
    assert (one < other) == (one_key < other_key)
    assert one == keys.ledger_id_in(one_key)


@given(IDS, IDS, IDS)
def test_a_range_holds_the_ledgers_of_one_managed_ledger(a: int, b: int, ledger: int) -> None:
    start, end = keys.ledger_range(a)
    assert (a == b) == (start <= keys.ledger_key(b, ledger) < end)


@given(st.text(min_size=1))
def test_names_are_decoded(name: str) -> None:
    key = keys.managed_ledger_key(name)
    start, end = keys.managed_ledger_range()
    assert name == keys.managed_ledger_name(key)
    assert start <= key < end


@given(st.binary(), st.binary())
def test_a_users_prefix_selects_the_users_keys(prefix: bytes, key: bytes) -> None:
    start, end = keys.user_range(prefix)
    assert key.startswith(prefix) == (start <= keys.user_key(key) < end)
    assert key == keys.user_key_in(keys.user_key(key))


def test_namespaces_do_not_meet() -> None:
    samples = [
        keys.ID_COUNTER,
        keys.managed_ledger_key("a"),
        keys.ledger_key(1, 2),
        keys.user_key(b"a"),
    ]
    assert len(samples) == len({sample[0] for sample in samples})


def test_prefix_of_ones_has_no_successor() -> None:
    assert b"b" == keys.successor(b"a\xff\xff")
    with pytest.raises(AssertionError):
        keys.successor(b"\xff")


def test_keys_of_cursors_lie_in_the_ranges_of_their_managed_ledger() -> None:
    snapshots, progress, changes = keys.cursor_ranges(7)
    for name in ("c", "größe", "a/b\x00"):
        assert snapshots[0] < keys.cursor_key(7, name) < snapshots[1]
        assert progress[0] < keys.cursor_progress_key(7, name) < progress[1]
        assert name == keys.cursor_name_in(keys.cursor_key(7, name))
        assert name == keys.cursor_name_in(keys.cursor_progress_key(7, name))
        for number in (0, 255, 65_535):
            key = keys.cursor_change_key(7, name, number)
            assert changes[0] < key < changes[1]
            assert (name, number) == (keys.cursor_name_in(key), keys.cursor_change_number_in(key))
    for other in (6, 8):
        assert not snapshots[0] <= keys.cursor_key(other, "c") < snapshots[1]
