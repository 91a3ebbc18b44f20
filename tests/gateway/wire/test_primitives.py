"""Varints, tagged fields and UUIDs."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.wire.primitives import (
    UVARLONG_BYTES_MAX,
    DecodeError,
    encode_uvarint,
    read_tag,
    read_uvarint,
    skip_tags,
    uuid_from_bytes,
    wrong_count,
    wrong_length,
)

EDGES = [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**32 - 1]


@pytest.mark.parametrize("value", EDGES)
def test_varint_edges(value: int) -> None:
    written = encode_uvarint(value)
    assert max(1, -(-value.bit_length() // 7)) == len(written)
    assert (value, 1 + len(written)) == read_uvarint(b"." + written + b"\xff", 1)


@given(st.integers(0, 2**64 - 1))
def test_long_varint_round_trip(value: int) -> None:
    written = encode_uvarint(value)
    assert (value, len(written)) == read_uvarint(written, 0, UVARLONG_BYTES_MAX)


def test_negative_varint_is_not_written() -> None:
    with pytest.raises(ValueError, match="-1 as an unsigned varint"):
        encode_uvarint(-1)


@pytest.mark.parametrize(
    ("data", "bytes_max", "got"),
    [
        (b"\x80\x80\x80\x80\x80\x01", 5, "more than 5 bytes"),
        (b"\x80\x80\x80\x80\x10", 5, "more than 32 bits"),
        (b"\x80" * 10 + b"\x01", 10, "more than 10 bytes"),
        (b"\xff" * 9 + b"\x02", 10, "more than 64 bits"),
    ],
)
def test_varint_that_is_too_long_is_refused(data: bytes, bytes_max: int, got: str) -> None:
    with pytest.raises(DecodeError, match=got):
        read_uvarint(data, 0, bytes_max)


def test_varint_cut_short() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80\x80", 0)


def test_tags_are_stepped_over() -> None:
    # Behind the count: tag 0 with two bytes, tag 300 with none, then what follows.
    section = b"\x02" + b"\x00\x02ab" + b"\xac\x02\x00" + b"next"
    assert 8 == skip_tags(section, 1, len(section), section[0])
    assert 1 == skip_tags(b"\x00next", 1, 5, 0)


def test_tag_count_of_two_bytes() -> None:
    section = encode_uvarint(200) + b"".join(encode_uvarint(tag) + b"\x00" for tag in range(200))
    assert len(section) == skip_tags(section, 1, len(section), section[0])


@pytest.mark.parametrize("section", [b"\x01\x00\x03ab", b"\x02\x00\x00", b"\x7f\x00\x00\x00"])
def test_tags_beyond_the_end_are_refused(section: bytes) -> None:
    with pytest.raises((DecodeError, IndexError)):
        skip_tags(section, 1, len(section), section[0])


def test_head_of_a_tag() -> None:
    assert (5, 2, 4) == read_tag(b"\x05\x02ab", 0, 4)


@given(st.binary(min_size=16, max_size=16))
def test_uuid_is_that_of_the_constructor(raw: bytes) -> None:
    made = uuid_from_bytes(raw)
    assert UUID(bytes=raw) == made
    assert (raw, str(UUID(bytes=raw))) == (made.bytes, str(made))
    assert hash(UUID(bytes=raw)) == hash(made)
    assert UUID(bytes=raw).is_safe is made.is_safe


def test_refusals_say_what_was_there() -> None:
    assert "null" == wrong_length(-1, 9).got
    assert "a length of 12 with 9 bytes left" == wrong_length(12, 9).got
    assert "null" == wrong_count(-1, 9).got
    assert "a count of 12 with 9 bytes left" == wrong_count(12, 9).got
