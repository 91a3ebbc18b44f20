"""Texts, byte strings and numbers of rows."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.coordinator.row_bytes import RowReader, put_bytes, put_text


@given(st.lists(st.none() | st.text() | st.binary()))
def test_what_is_put_is_read(values: list[str | bytes | None]) -> None:
    parts: list[bytes] = []
    for value in values:
        if isinstance(value, bytes):
            put_bytes(parts, value)
        else:
            put_text(parts, value)
    row = RowReader(b"head" + b"".join(parts), 4)
    read = [row.content() if isinstance(value, bytes) else row.text() for value in values]
    assert values == read


def test_numbers_and_raw_bytes_follow_each_other() -> None:
    row = RowReader(bytes(range(8)), 1)
    assert (0x0102,) == row.take(struct.Struct(">H"))
    assert b"\x03\x04" == row.raw(2)
    assert (5, 6) == row.take(struct.Struct("BB"))
