"""What a dispatcher sees of stored batches."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import Position
from kledger.subscriptions.entry_view import (
    COST_UNKNOWN,
    DELIVER_AT,
    KEY_HASH_COUNT,
    MASK_BITS_MAX,
    RECORDS_MAX,
    deliver_at_ms,
    key_hash_of,
    key_scan_cost,
    keyless_hash_of,
    mask_of,
    record_count,
    records_by_key_hash,
)
from tests.subscriptions.dispatch.builders import at, data_of

KEYLESS = keyless_hash_of(at(7))
LARGE = b"x" * 5_000


def test_records_are_counted() -> None:
    for count in (1, 2, 300):
        for codec in (0, 1, 4):
            data = data_of((None,) * count, codec=codec)
            assert count == record_count(data) == record_count(memoryview(data))


def test_entry_that_is_no_batch_counts_as_one_record() -> None:
    assert 1 == record_count(b"") == record_count(b"x" * 60) == record_count(bytes(100))


def test_record_count_of_a_header_is_limited() -> None:
    data = bytearray(data_of((None,)))
    data[57:61] = (1 << 30).to_bytes(4, "big")
    assert RECORDS_MAX == record_count(data)
    data[57:61] = b"\xff\xff\xff\xff"
    assert 1 == record_count(data)


@pytest.mark.parametrize("indexes", [set(), {0}, {1, 7, 8}, set(range(100)), {5_000}])
def test_mask_has_a_bit_for_every_index(indexes: set[int]) -> None:
    assert sum(1 << index for index in indexes) == mask_of(indexes)


def test_key_hash_is_never_zero() -> None:
    slots = {key_hash_of(b"%d" % number) for number in range(20_000)}
    assert 0 not in slots
    assert max(slots) < KEY_HASH_COUNT
    assert 0 < key_hash_of(b"")


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_records_are_grouped_by_key_hash(codec: int) -> None:
    data = data_of((b"a", b"b", b"a", b"", b"b"), codec=codec)
    expected = {
        (key_hash_of(b"a"), 0b00101),
        (key_hash_of(b"b"), 0b10010),
        (key_hash_of(b""), 0b01000),
    }
    assert expected == set(records_by_key_hash(memoryview(data), KEYLESS))


def test_records_without_a_key_have_the_hash_of_their_position() -> None:
    data = data_of((None, None))
    slots = {
        records_by_key_hash(data, keyless_hash_of(Position(1, number))) for number in range(100)
    }
    assert len(slots) > 90
    assert {0b11} == {mask for ((_, mask),) in slots}


def test_undecodable_entry_has_one_key_hash() -> None:
    data = data_of((b"a", b"b", b"c"))
    for broken in (data[:-3], data_of((b"a", b"b", b"c"), codec=1)[:-3], data[:61] + b"\x80" * 40):
        ((_, mask),) = records_by_key_hash(broken, KEYLESS)
        assert 0b111 == mask
    ((_, mask),) = records_by_key_hash(b"no batch", KEYLESS)
    assert 1 == mask


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), None),
        (((DELIVER_AT, b"1500"),), 1500),
        (((DELIVER_AT, b"0"),), 0),
        ((("before", b"x"), (DELIVER_AT, b"1500"), ("behind", None)), 1500),
        (((DELIVER_AT, None),), None),
        (((DELIVER_AT, b""),), None),
        (((DELIVER_AT, b"-5"),), None),
        (((DELIVER_AT, b"soon"),), None),
        ((("other", DELIVER_AT.encode()),), None),
    ],
)
def test_delivery_time_is_a_header(
    headers: tuple[tuple[str, bytes | None], ...], expected: int | None
) -> None:
    for value in (b"v", None, LARGE):
        data = build_batch([NewRecord(value, headers=headers)])
        assert expected == deliver_at_ms(data) == deliver_at_ms(memoryview(bytes(data)))


@pytest.mark.parametrize("digits", [16, 5_000])
def test_too_large_number_is_no_delivery_time(digits: int) -> None:
    """The longer one is more than Python's numbers take; every producer can send it."""
    headers = ((DELIVER_AT, b"9" * digits),)
    assert deliver_at_ms(build_batch([NewRecord(b"v", headers=headers)])) is None


def test_delivery_time_needs_an_uncompressed_batch() -> None:
    record = NewRecord(b"v", headers=((DELIVER_AT, b"1500"),))
    assert deliver_at_ms(build_batch([record], codec=1)) is None
    assert deliver_at_ms(DELIVER_AT.encode()) is None
    assert deliver_at_ms(bytes(build_batch([record]))[:-2]) is None


def test_scan_cost_is_the_size_or_unknown() -> None:
    data = data_of((b"a",))
    assert len(data) == key_scan_cost(data)
    assert COST_UNKNOWN == key_scan_cost(data_of((b"a",), codec=1))
    assert 3 == key_scan_cost(b"abc")


def test_too_many_keys_of_one_entry_share_a_hash() -> None:
    """Masks of a million records of 65,535 key hashes would be 8 GiB."""
    data = build_batch([NewRecord(None, b"%d" % number) for number in range(20_000)])
    keys_max = MASK_BITS_MAX // 20_000
    assert keys_max < 20_000
    ((key_hash, mask),) = records_by_key_hash(data, KEYLESS)
    assert (KEYLESS, (1 << 20_000) - 1) == (key_hash, mask)
    few = build_batch([NewRecord(None, b"%d" % (number % 9)) for number in range(20_000)])
    assert 9 == len(records_by_key_hash(few, KEYLESS))
