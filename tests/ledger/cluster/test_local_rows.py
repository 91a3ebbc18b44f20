"""Rows beside an engine: sorted, and gone with it."""

import tempfile
from pathlib import Path

import pytest

from kledger.ledger.cluster.local_rows import LocalRows


def test_rows_are_sorted_and_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = LocalRows()
    rows.apply([(b"rb", b"2"), (b"ra", b"1"), (b"rc", b"3"), (b"ra", b"4"), (b"rc", None)])
    assert [(b"ra", b"4"), (b"rb", b"2")] == rows.scan(b"r", b"s", reverse=False, limit=None)
    assert [(b"rb", b"2")] == rows.scan(b"r", b"s", reverse=True, limit=1)
    assert [b"4", None] == [rows.get(b"ra"), rows.get(b"rc")]
    assert [] != [*tmp_path.iterdir()]
    rows.close()
    rows.close()
    assert [] == [*tmp_path.iterdir()]


def test_rows_that_nobody_closes_go_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB would wait for ever for a flush into a folder that is gone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rows = LocalRows()
    rows.apply([(b"a", b"1")])
    del rows
    assert [] == [*tmp_path.iterdir()]
