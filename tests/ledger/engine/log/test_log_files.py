"""Files by number, and descriptors that stay open exactly while they are used."""

import os
from pathlib import Path

import pytest

from kledger.ledger.engine.log.log_files import OPEN_FILES_MAX, LogFiles


def open_count(folder: Path) -> int:
    """Return how many descriptors of this process lead into a folder."""
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and str(folder) in os.readlink(link) for link in links)


def test_file_numbers_are_read_from_names(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    for number in (3, 1, 12345678):
        files.create(number)
    for other in ("1.log", "00000002.txt", "x00000002.log", "00000002.log.bak"):
        (tmp_path / other).write_text("")
    assert [1, 3, 12345678] == files.numbers()
    with pytest.raises(FileExistsError):
        files.create(3)


def test_descriptor_is_shared_and_kept(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    files.create(1)
    with files.use(1) as first, files.use(1) as second:
        assert first == second
    assert 1 == open_count(tmp_path)
    files.close()
    assert 0 == open_count(tmp_path)


def test_idle_descriptors_are_bounded(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    for number in range(1, OPEN_FILES_MAX + 20):
        files.create(number)
    kept = files.borrow(1)
    for number in range(2, OPEN_FILES_MAX + 20):
        with files.use(number):
            assert open_count(tmp_path) <= OPEN_FILES_MAX + 1
    os.fstat(kept)
    files.give_back(1)
    files.close()
    assert 0 == open_count(tmp_path)


def test_removed_file_is_readable_while_it_is_borrowed(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    files.create(1)
    files.path(1).write_bytes(b"abc")
    with files.use(1) as descriptor:
        files.remove(1)
        assert b"abc" == os.pread(descriptor, 10, 0)
        assert [] == files.numbers()
    assert 0 == open_count(tmp_path)
    files.remove(1)
    with pytest.raises(FileNotFoundError):
        files.borrow(1)


def test_size_and_folder(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    files.create(7)
    files.path(7).write_bytes(bytes(10))
    files.sync_folder()
    assert 10 == files.size(7)
    assert tmp_path / "00000007.log" == files.path(7)
