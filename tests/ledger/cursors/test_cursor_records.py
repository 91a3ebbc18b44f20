"""What a cursor keeps, as bytes."""

import pytest

from kledger.ledger import Corrupt
from kledger.ledger.cursors.cursor_records import CursorRecord, decode_cursor, encode_cursor
from tests.ledger.words import pos

RECORDS = [
    CursorRecord(mark_delete_position=pos("5:-1"), generation=3),
    CursorRecord(
        mark_delete_position=pos("5:120"),
        properties={"time": -3, "größe": 1 << 40},
        deleted=((5, b"bitmap"), (9, b"")),
        batches=((pos("5:122"), b"x"), (pos("9:0"), b"yz")),
    ),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_survives(record: CursorRecord) -> None:
    assert record == decode_cursor(encode_cursor(record))


def test_a_record_has_this_layout() -> None:
    row = encode_cursor(RECORDS[0])
    assert 41 == len(row)
    assert 2 == row[0]
    assert (3).to_bytes(8, "big") + (5).to_bytes(8, "big") + b"\xff" * 8 + bytes(12) == row[5:]


def test_a_row_of_another_version_says_so() -> None:
    row = encode_cursor(RECORDS[0])
    with pytest.raises(Corrupt, match="expected version 2, got 1"):
        decode_cursor(b"\x01" + row[1:])


@pytest.mark.parametrize("record", RECORDS)
def test_every_damaged_byte_every_cut_and_every_byte_too_many_is_seen(record: CursorRecord) -> None:
    row = encode_cursor(record)
    damaged = [row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :] for at in range(len(row))]
    damaged += [row[:length] for length in range(len(row))]
    for each in (*damaged, row + b"\0"):
        with pytest.raises(Corrupt, match="cursor row"):
            decode_cursor(each)
