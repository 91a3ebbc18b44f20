"""Processes that share a file see each other's rows once, in order, and write on no old ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kledger.ledger import StorageFailed, StoreUnusable
from kledger.ledger import shared_file as module
from kledger.ledger.shared_file import SharedFile


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[SharedFile, SharedFile]]:
    first, second = SharedFile(tmp_path), SharedFile(tmp_path)
    yield first, second
    first.close()
    second.close()


def test_changes_are_the_rows_of_others_in_the_order_of_their_last_write(
    two: tuple[SharedFile, SharedFile],
) -> None:
    first, second = two
    first.write([(b"b", b"1"), (b"a", b"1")])
    first.write([(b"b", b"2"), (b"c", None)])
    assert second.changes() == [(b"a", b"1"), (b"b", b"2"), (b"c", None)]
    assert second.changes() == []
    assert first.changes() == []


def test_a_process_reads_its_own_rows_and_those_of_others(
    two: tuple[SharedFile, SharedFile],
) -> None:
    first, second = two
    first.write([(b"a/1", b"x"), (b"a/2", b"y"), (b"b/1", b"z"), (b"a/1", None)])
    assert second.scan(b"a/") == [(b"a/2", b"y")]
    assert second.scan(b"b/1") == [(b"b/1", b"z")]
    assert second.scan(b"a/1") == []


def test_a_process_that_has_not_seen_everything_writes_nothing(
    two: tuple[SharedFile, SharedFile],
) -> None:
    first, second = two
    first.write([(b"a", b"1")])
    with pytest.raises(StorageFailed, match="expected that row 0 is the newest, got 1"):
        second.write([(b"a", b"2")])
    assert first.scan(b"a") == [(b"a", b"1")]
    second.changes()
    second.write([(b"a", b"2")])
    assert first.changes() == [(b"a", b"2")]


def test_rows_outlive_the_process(tmp_path: Path) -> None:
    first = SharedFile(tmp_path)
    first.write([(b"a", b"1")])
    first.close()
    again = SharedFile(tmp_path)
    assert again.scan(b"a") == [(b"a", b"1")]
    assert again.changes() == []
    again.write([(b"b", b"2")])
    again.close()


def test_deletions_are_forgotten_but_not_in_silence(
    two: tuple[SharedFile, SharedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELETIONS_MAX", 3)
    first, second = two
    first.write([(b"a", b"1"), (b"a", None)])
    for number in range(4):
        first.write([(b"b", b"%d" % number)])
    with pytest.raises(StoreUnusable, match="restart the server"):
        second.changes()


def test_the_file_of_another_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SharedFile(tmp_path).close()
    monkeypatch.setattr(module, "FORMAT", 2)
    with pytest.raises(StoreUnusable, match="expected format 2, got 1"):
        SharedFile(tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / module.FILE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StoreUnusable, match=module.FILE_NAME):
        SharedFile(tmp_path)
