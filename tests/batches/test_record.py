"""Records and varints: round trips, and damage at every byte."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.batches.buffers import Buffer
from kledger.batches.errors import CorruptBatch
from kledger.batches.record import (
    Header,
    Record,
    append_record,
    headers_start,
    locate_fields,
    read_header_values,
    read_rest,
    read_varint,
    write_varint,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64)
def test_varint_round_trip(value: int) -> None:
    out = bytearray(b"\xff")
    write_varint(out, value)
    assert (value, len(out)) == read_varint(out, 1)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804")],
)
def test_varint_known_bytes(value: int, data: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert data == out.hex()


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80" * 9, b"\x80" * 10 + b"\x01"])
def test_varint_that_does_not_end_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varint(data, 0)


HEADERS = st.lists(
    st.tuples(
        st.binary(max_size=5).map(lambda b: b.decode("utf-8", "surrogateescape")),
        st.none() | st.binary(max_size=5),
    ),
    max_size=3,
)
BYTES = st.none() | st.binary(max_size=200)


RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**31),
    timestamp=INT64,
    key=BYTES,
    value=BYTES,
    headers=HEADERS.map(tuple),
    attributes=st.integers(0, 255),
)


def encoded(
    *,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    attributes: int = 0,
) -> bytearray:
    """Return one record."""
    pieces: list[Buffer] = []
    append_record(pieces, key, value, headers, timestamp_delta, offset_delta, attributes)
    return bytearray().join(pieces)


@given(RECORDS)
def test_record_round_trip(record: Record) -> None:
    out = b"head" + encoded(
        timestamp_delta=record.timestamp,
        offset_delta=record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        attributes=record.attributes,
    )
    fields = locate_fields(out, 4)
    assert (record.attributes, record.timestamp, record.offset, len(out)) == (
        fields.attributes, fields.timestamp_delta, fields.offset_delta, fields.end
    )  # fmt: skip
    assert (record.key, record.value, record.headers) == read_rest(out, fields)


def test_record_cut_or_changed_anywhere_is_corrupt_or_another_record() -> None:
    out = encoded(
        timestamp_delta=3, offset_delta=1, key=b"key", value=b"value", headers=[("h", b"1")]
    )
    for size in range(len(out)):
        with pytest.raises(CorruptBatch):
            read_rest(out[:size], locate_fields(out[:size], 0))
    for position in range(len(out)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            damaged = bytearray(out)
            damaged[position] = value
            try:
                read_rest(damaged, locate_fields(damaged, 0))
            except CorruptBatch:
                continue


def test_header_without_a_name_is_corrupt() -> None:
    out = encoded(timestamp_delta=0, offset_delta=0, key=None, value=None, headers=[("", b"")])
    assert (None, None, (("", b""),)) == read_rest(out, locate_fields(out, 0))
    out[-2] = 1
    out[0] -= 2
    with pytest.raises(CorruptBatch):
        read_rest(out[:-1], locate_fields(out[:-1], 0))


def test_values_of_one_header_are_found_among_others() -> None:
    headers = [("h", b"1"), ("other", b"h"), ("h", None), ("", b""), ("h", b""), ("none", None)]
    for key, value in ((None, None), (b"h", b"v" * 300)):
        out = encoded(offset_delta=0, timestamp_delta=0, key=key, value=value, headers=headers)
        fields = locate_fields(out, 0)
        assert len(headers) << 1 == out[headers_start(out, fields)]
        assert [b"1", None, b""] == read_header_values(out, fields, b"h")
        assert [b"1", None, b""] == read_header_values(memoryview(bytes(out)), fields, b"h")
        assert [] == read_header_values(out, fields, b"x")
        with pytest.raises(CorruptBatch):
            read_header_values(out, fields._replace(end=fields.end - 1), b"h")
