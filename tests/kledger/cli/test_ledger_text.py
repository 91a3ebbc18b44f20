"""Lines: one a thing, aligned, and different bytes shown differently."""

import pytest

from kledger.batches.builder import NewRecord, build_batch, build_control_batch
from kledger.batches.header import read_header
from kledger.batches.reader import iterate_records
from kledger.cli.ledger_text import entry_line, record_line
from kledger.ledger import Entry, Position

AT = Position(5, 120)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", '""'),
        (b"plain", '"plain"'),
        ("départ 航班".encode(), '"départ 航班"'),
        (b'a"b\\c', r'"a\"b\\c"'),
        (b"line\nend\r\x00\x1b[31m", r'"line\x0aend\x0d\x00\x1b[31m"'),
        (b"\xff\xfe", r'"\xff\xfe"'),
        ("\u2028\u202e\x85".encode(), r'"\xe2\x80\xa8\xe2\x80\xae\xc2\x85"'),
    ],
)
def test_bytes_stay_on_their_line(data: bytes, expected: str) -> None:
    assert f"5:120 data[{len(data)}]={expected}" == entry_line(Entry(AT, data))


def test_record() -> None:
    batch = build_batch(
        [NewRecord(b"v", key=b"", timestamp=7, headers=(("a\n", b"1"), ("a\n", None)))],
        base_offset=40,
    )
    [record] = iterate_records(batch)
    assert (
        r'5:120 offset=40 timestamp=7 key[0]="" value[1]="v" header:"a\x0a"[1]="1" '
        r'header:"a\x0a"=null'
    ) == record_line(AT, read_header(batch), record)


def test_marker_of_a_transaction() -> None:
    batch = build_control_batch(
        is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=7
    )
    [record] = iterate_records(batch)
    assert record_line(AT, read_header(batch), record).endswith(" control")
