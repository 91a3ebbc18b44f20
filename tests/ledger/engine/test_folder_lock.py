"""A folder has one owner at a time."""

import os
from pathlib import Path

import pytest

from kledger.ledger.engine.errors import FolderInUse, FolderUnusable
from kledger.ledger.engine.folder_lock import FolderLock


def test_second_lock_of_one_process_is_refused(tmp_path: Path) -> None:
    first = FolderLock(tmp_path / "a" / "b")
    with pytest.raises(FolderInUse, match="a/b is in use"):
        FolderLock(tmp_path / "a" / "b")
    first.release()
    first.release()
    FolderLock(tmp_path / "a" / "b").release()


def test_lock_of_another_process_is_refused_until_it_ends(tmp_path: Path) -> None:
    """The other process is a fork that holds the lock until its pipe closes."""
    locked, signal = os.pipe()
    wait, let_end = os.pipe()
    if (child := os.fork()) == 0:
        os.close(let_end)
        FolderLock(tmp_path)
        os.write(signal, b"x")
        os.read(wait, 1)
        os._exit(0)
    os.close(wait)
    os.read(locked, 1)
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path)
    os.close(let_end)
    os.waitpid(child, 0)
    FolderLock(tmp_path).release()
    os.close(locked)
    os.close(signal)


def test_path_that_is_a_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="cannot be used"):
        FolderLock(tmp_path / "file")
