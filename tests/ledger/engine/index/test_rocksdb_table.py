"""The facts about rocksdict that the engine relies on; and the table that hides them.

When one of these fails after an upgrade, docs/decisions/0003-rocksdict.md says what depends on it.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from rocksdict import Options, Rdict, ReadOptions, WriteBatch

from kledger.ledger.engine.errors import FolderUnusable, IndexCorrupt
from kledger.ledger.engine.index.rocksdb_table import (
    RocksdbTable,
    TableFailed,
    new_batch,
    write_options,
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[RocksdbTable]:
    made = RocksdbTable(tmp_path / "index")
    yield made
    made.close()


def test_a_key_is_resident_when_it_takes_no_disk(table: RocksdbTable) -> None:
    put(table, *((b"%04d" % number, b"v" * 100) for number in range(0, 2000, 2)))
    assert table.is_resident(b"0100")
    table.flush()
    assert not table.is_resident(b"0100")
    assert not table.is_resident(b"0101")
    table.load(b"0100")
    assert table.is_resident(b"0100")
    assert table.is_resident(b"0101"), "its absence is known from memory"
    assert not table.is_resident(b"1900"), "another block"


def put(table: RocksdbTable, *rows: tuple[bytes, bytes]) -> None:
    batch = new_batch()
    for key, value in rows:
        batch.put(key, value)
    assert table.write(batch, wait=False)


def copied(folder: Path) -> Path:
    """Copy a live database as it is on disk: what a killed process leaves."""
    target = folder.with_name("copy")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("LOCK"))
    return target


def keys_in(folder: Path) -> list[bytes]:
    table = RocksdbTable(folder)
    found = [key for key, _ in table.rows(b"", b"\xff" * 9)]
    table.close()
    return found


# The table


def test_rows_are_bounded_and_ordered(table: RocksdbTable) -> None:
    put(table, *((bytes([each]), b"v") for each in b"badce"))
    assert [b"b", b"c"] == [key for key, _ in table.rows(b"b", b"d")]
    assert [b"c", b"b"] == [key for key, _ in table.rows(b"b", b"d", reverse=True)]
    assert [] == list(table.rows(b"f", b"z")) == list(table.rows(b"f", b"z", reverse=True))


def test_closed_table_fails_and_closes_again(table: RocksdbTable) -> None:
    table.close()
    table.close()
    for call in (lambda: table.get(b"a"), lambda: list(table.rows(b"", b"z")), table.flush):
        with pytest.raises(TableFailed):
            call()
    with pytest.raises(TableFailed):
        put(table, (b"a", b"b"))


def test_folder_that_cannot_be_opened_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file")
    with pytest.raises(FolderUnusable):
        RocksdbTable(tmp_path / "index")


def test_flush_empties_what_is_unflushed(table: RocksdbTable) -> None:
    empty = table.unflushed_bytes()
    put(table, (b"a", bytes(100_000)))
    assert table.unflushed_bytes() > empty + 90_000
    table.flush()
    assert table.unflushed_bytes() < 90_000


# The facts


def test_only_a_flush_makes_rows_durable_and_all_before_it(tmp_path: Path) -> None:
    """No log of its own; a flushed state is a prefix of what was written."""
    table = RocksdbTable(tmp_path / "index")
    put(table, (b"a", b"1"))
    assert [] == keys_in(copied(tmp_path / "index"))
    put(table, (b"b", b"2"))
    table.flush()
    put(table, (b"c", b"3"))
    assert [b"a", b"b"] == keys_in(copied(tmp_path / "index"))
    table.close()
    assert [b"a", b"b", b"c"] == keys_in(tmp_path / "index")


def test_write_that_would_stall_is_refused_as_a_whole_and_consumes_the_batch(
    tmp_path: Path,
) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(64 << 10)
    options.set_disable_auto_compactions(True)
    options.set_level_zero_slowdown_writes_trigger(1)
    options.set_level_zero_stop_writes_trigger(2)
    database = Rdict(str(tmp_path), options=options)
    refuse = write_options(no_slowdown=True)
    numbers = count()
    number, batch = 0, new_batch()

    def write_until_refused() -> None:
        nonlocal number, batch
        for number in numbers:
            batch = new_batch()
            batch.put(b"first %d" % number, bytes(10_000))
            batch.put(b"second %d" % number, b"")
            database.write(batch, refuse)

    with pytest.raises(Exception, match="ncomplete"):
        write_until_refused()
    assert database.get(b"first %d" % number) is None
    assert database.get(b"second %d" % number) is None
    with pytest.raises(Exception, match="consumed"):
        database.write(batch, refuse)
    database.close()


def corrupted(folder: Path) -> Path:
    """Return a database with a flipped bit in the middle of its only table file."""
    table = RocksdbTable(folder)
    put(table, *((b"%05d" % number, b"%099d" % (number * 7919)) for number in range(5000)))
    table.flush()
    table.close()
    (file,) = folder.glob("*.sst")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 3] ^= 1
    file.write_bytes(raw)
    return folder


def test_plain_iteration_ends_early_on_damage_and_the_table_does_not(tmp_path: Path) -> None:
    folder = corrupted(tmp_path / "index")
    database = Rdict(str(folder), options=Options(raw_mode=True))
    assert len(list(database.items())) < 5000
    database.close()

    table = RocksdbTable(folder)
    with pytest.raises(IndexCorrupt, match=r"scanned: Corruption"):
        list(table.rows(b"", b"\xff"))
    table.close()


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_folder_with_a_missing_file_is_a_damaged_index(tmp_path: Path, pattern: str) -> None:
    """RocksDB reports these three in three ways; without CURRENT it would create an empty index."""
    folder = tmp_path / "index"
    table = RocksdbTable(folder)
    put(table, (b"a", b"b"))
    table.flush()
    table.close()
    for file in folder.glob(pattern):
        file.unlink()
    with pytest.raises(IndexCorrupt, match=f"index {folder} cannot be opened: "):
        RocksdbTable(folder)


def test_lower_bound_of_read_options_acts_as_an_upper_one(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path), options=Options(raw_mode=True))
    for key in (b"a", b"b", b"c"):
        database.put(key, key)
    options = ReadOptions()
    options.set_iterate_lower_bound(b"b")
    iterator = database.iter(options)
    iterator.seek_to_first()
    assert b"a" == iterator.key()
    del iterator
    database.close()


def test_raw_mode_takes_bytes_only() -> None:
    for value in (bytearray(b"x"), memoryview(b"x"), "x"):
        with pytest.raises((KeyError, ValueError)):
            WriteBatch(raw_mode=True).put(b"key", value)


def test_iterator_pins_the_database(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path), options=Options(raw_mode=True))
    iterator = database.iter()
    database.close()
    with pytest.raises(Exception, match="lock"):
        Rdict(str(tmp_path), options=Options(raw_mode=True))
    del iterator
    Rdict(str(tmp_path), options=Options(raw_mode=True)).close()


def test_range_deletion_spares_later_writes(table: RocksdbTable) -> None:
    batch = new_batch()
    batch.put(b"a", b"old")
    batch.put(b"b", b"old")
    batch.delete_range(b"a", b"b")
    batch.put(b"a1", b"new")
    assert table.write(batch, wait=True)
    assert [(b"a1", b"new"), (b"b", b"old")] == list(table.rows(b"", b"z"))


FLUSH_INTO_A_PIPE = """
import os, re, sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from kledger.ledger.engine.index.rocksdb_table import RocksdbTable, TableFailed, new_batch

def flush():
    with suppress(TableFailed):  # a pipe takes all that is written and cannot be synced
        table.flush()

folder = Path(sys.argv[1])
table = RocksdbTable(folder)
batch = new_batch()
for number in range(1000):
    batch.put(b"%05d" % number, os.urandom(1000))
table.write(batch, wait=True)
numbers = [int(number) for name in os.listdir(folder) for number in re.findall("[0-9]{6}", name)]
pipe = folder / f"{max(numbers) + 1:06d}.sst"
os.mkfifo(pipe)
flushing = Thread(target=flush)
flushing.start()
with pipe.open("rb") as end:
    print(flushing.is_alive(), len(end.read()) >= 1_000_000)
flushing.join()
"""


def test_flush_lets_other_threads_run(tmp_path: Path) -> None:
    """The flush runs in a pool while the loop continues.

    Its table file is a pipe, much smaller than the rows: only what another thread reads meanwhile
    lets the flush end. The limit of time is for a flush that kept the interpreter to itself.
    """
    program = [sys.executable, "-c", FLUSH_INTO_A_PIPE, str(tmp_path / "index")]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert ("True True\n", "") == (done.stdout, done.stderr)
