"""Tables, and values of any bytes."""

import pytest

from kledger.cli.plain_text import part, quoted, table


def test_table() -> None:
    rows = [["a", 1, None], ["long\tname", 1000, "x"]]
    assert [
        "NAME          COUNT  REST",
        "a                 1  -",
        r"long\x09name   1000  x",
    ] == list(table(["NAME", "COUNT", "REST"], rows))


def test_table_without_rows() -> None:
    assert ["NAME  COUNT"] == list(table(["NAME", "COUNT"], []))


@pytest.mark.parametrize(
    ("data", "expected"), [(None, "key=null"), (b"", 'key[0]=""'), (b"a\n", r'key[2]="a\x0a"')]
)
def test_part(data: bytes | None, expected: str) -> None:
    assert expected == part("key", data)


def test_bytes_that_are_no_text_are_escaped() -> None:
    assert r'"a\xff\x0a"' == quoted("a\udcff\n")
