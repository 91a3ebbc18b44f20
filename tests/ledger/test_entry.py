"""Entries: bytes for users, buffers for callers that avoid copies."""

import pytest

from kledger.ledger.engine.base import Buffer
from kledger.ledger.entry import Entry
from kledger.ledger.position import Position


@pytest.mark.parametrize("buffer", [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
def test_data_is_bytes_whatever_is_kept(buffer: Buffer) -> None:
    entry = Entry(Position(1, 2), buffer)
    assert (b"abc", bytes, 3) == (entry.data, type(entry.data), entry.size)
    assert entry.buffer is buffer


def test_bytes_are_not_copied() -> None:
    data = b"x" * 1000
    assert Entry(Position(1, 2), data).data is data
