"""The engine on disk: restarts, checkpoints, space, a full disk, a locked folder."""

import errno
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, current_thread

import pytest

from kledger.ledger.engine import crash_image, log_rocksdb
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import (
    EntryCorrupt,
    FolderInUse,
    FolderUnusable,
    LogCorrupt,
    StorageError,
    StorageWriteFailed,
    SyncFailed,
)
from kledger.ledger.engine.index import log_index
from kledger.ledger.engine.index.log_index import FRAME_WEIGHT
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from tests.ledger.engine.words import (
    entry_count,
    group_of,
    log_file,
    payload,
    reopened_count,
    store,
)


@pytest.mark.parametrize("sync", [True, False])
def test_clean_restart_loses_nothing(tmp_path: Path, sync: bool) -> None:
    for begun in range(0, 30, 10):
        engine = LogRocksdbEngine(tmp_path)
        assert begun == entry_count(engine)
        store(engine, *map(group_of, range(begun, begun + 10)), sync=sync)
        engine.close()
    assert 30 == reopened_count(tmp_path)


def test_clean_close_leaves_nothing_to_replay(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    store(engine, *map(group_of, range(10)))
    engine.close()
    engine = LogRocksdbEngine(tmp_path)
    assert 0 == engine._frames
    assert engine._log.end.group == engine._index.watermark.group
    engine.close()


def test_second_engine_on_a_folder_is_refused(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    with pytest.raises(FolderInUse):
        LogRocksdbEngine(tmp_path)
    store(engine, group_of(0))
    engine.close()
    assert 1 == reopened_count(tmp_path)


def test_unusable_folder_raises_and_is_released(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(FolderUnusable):
        LogRocksdbEngine(tmp_path)
    (tmp_path / "log").unlink()
    assert 0 == reopened_count(tmp_path)


def test_checkpoint_is_due_after_many_frames(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path, checkpoint_frames=20)
    store(engine, *map(group_of, range(9)), sync=False)
    assert not engine.checkpoint_due()
    store(engine, group_of(9), sync=False)
    assert engine.checkpoint_due()
    engine.checkpoint()
    assert not engine.checkpoint_due()
    engine.close()


def test_checkpoint_is_due_after_a_rotation_and_rotation_loses_nothing(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path, file_bytes_max=1000)
    store(engine, group_of(0), sync=False)
    assert not engine.checkpoint_due()
    store(engine, *map(group_of, range(1, 40)), sync=False)
    assert engine.checkpoint_due()
    assert log_file(tmp_path, 3).exists()
    assert 40 == entry_count(engine)
    engine.checkpoint()
    assert not engine.checkpoint_due()
    engine.close()
    assert 40 == reopened_count(tmp_path)


def test_no_commit_waits_for_the_long_sync_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written during that sync is indexed as usual, however much it is."""
    engine = LogRocksdbEngine(tmp_path)
    store(engine, *map(group_of, range(10)), sync=False)
    fdatasync, was_behind = os.fdatasync, list[bool]()

    def sync_slowly(descriptor: int) -> None:
        if not was_behind:
            for number in range(10, 10 + log_index.STALLED_WEIGHT_MAX // FRAME_WEIGHT):
                if not engine.is_behind:  # the next commit would wait for this sync
                    store(engine, group_of(number), sync=False)
            was_behind.append(engine.is_behind)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync_slowly)
    engine.checkpoint()
    assert [False] == was_behind
    assert engine.synced_end.group >= engine._index.watermark.group
    engine.close()


def test_files_without_anything_alive_are_removed(tmp_path: Path) -> None:
    """Rows in such a file are in the durable index by then."""
    engine = LogRocksdbEngine(tmp_path, file_bytes_max=1000)
    for number in range(60):
        ledger = number // 20
        store(engine, group_of(number, ledger_id=ledger), sync=False)
    files = engine._files.numbers()
    engine.checkpoint()
    assert files == engine._files.numbers()

    store(engine, CommitGroup(drops=[0]), sync=False)
    assert engine.checkpoint_due()
    files = engine._files.numbers()
    assert log_file(tmp_path, 1).exists()
    engine.checkpoint()
    left = engine._files.numbers()
    assert left == files[len(files) - len(left) :]
    assert len(left) < len(files)
    assert not engine.checkpoint_due()
    engine.close()

    engine = LogRocksdbEngine(tmp_path)
    assert [-1, 39, 59] == [engine.last_entry(ledger) for ledger in range(3)]
    assert [payload(number) for number in range(20, 40)] == engine.read(1, 20, 39, 1 << 20)
    assert b"60" == engine.get(b"count")
    store(engine, CommitGroup(drops=[1, 2]))
    engine.checkpoint()
    assert [left[-1]] == engine._files.numbers()
    engine.close()


def test_missing_file_with_live_entries_is_corruption(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path, file_bytes_max=1000)
    store(engine, *map(group_of, range(40)))
    engine.close()
    log_file(tmp_path, 2).unlink()
    with pytest.raises(LogCorrupt, match=r"00000002\.log is damaged at position 0"):
        LogRocksdbEngine(tmp_path)


def test_damaged_entry_below_the_watermark_raises_and_others_are_read(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    store(engine, *map(group_of, range(10)))
    engine.close()
    flip(tmp_path, payload(4))

    engine = LogRocksdbEngine(tmp_path)
    with pytest.raises(EntryCorrupt, match="entry 7:4: the data fails its CRC"):
        engine.read(7, 0, 9, 1 << 20)
    assert [payload(3)] == engine.read(7, 3, 3, 1 << 20)
    assert [payload(5)] == engine.read(7, 5, 5, 1 << 20)
    engine.close()


def flip(folder: Path, data: bytes) -> None:
    """Damage the first byte of an entry."""
    raw = bytearray(log_file(folder).read_bytes())
    raw[raw.index(data)] ^= 1
    log_file(folder).write_bytes(raw)


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on a file system that can read without waiting; one in memory cannot."""
    folder = tmp_path_factory.mktemp("disk")
    with (folder / "probe").open("wb+") as probe:
        probe.write(b"x")
        probe.flush()
        try:
            os.preadv(probe.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except (AttributeError, OSError):
            pytest.skip("no RWF_NOWAIT here")
    (folder / "probe").unlink()
    return folder


def test_python_built_without_the_flag_reads_nothing_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreters that uv installs raise NotImplementedError, which ended the server."""

    def preadv(*_: object) -> int:
        raise NotImplementedError("preadv2: flags unavailable on this platform")

    monkeypatch.setattr(os, "preadv", preadv)
    engine = LogRocksdbEngine(tmp_path)
    store(engine, group_of(0), sync=False)
    engine.read(7, 0, 1, 1 << 20)
    assert engine.read_resident(7, 0, 1, 1 << 20) is None
    engine.close()


def test_resident_read_needs_every_byte_in_memory(disk: Path) -> None:
    """Written bytes are in memory; bytes past the end of a file are not."""
    engine = LogRocksdbEngine(disk, file_bytes_max=10_000)
    store(engine, *(group_of(number, size=4000) for number in range(6)), sync=False)
    engine.checkpoint()
    assert engine.read_resident(7, 0, 5, 1 << 20) is None, "the index is in a file only"
    engine.read(7, 0, 5, 1 << 20)
    assert [payload(number, 4000) for number in range(6)] == engine.read_resident(7, 0, 5, 1 << 20)
    os.truncate(log_file(disk, 1), 6000)
    assert [payload(0, 4000)] == engine.read_resident(7, 0, 0, 1 << 20)
    for first, last in ((0, 1), (1, 1)):
        assert engine.read_resident(7, first, last, 1 << 20) is None
    engine.close()


def test_resident_read_checks_what_it_returns(disk: Path) -> None:
    engine = LogRocksdbEngine(disk)
    store(engine, group_of(0), group_of(1))
    flip(disk, payload(0))
    with pytest.raises(EntryCorrupt, match="entry 7:0: the data fails its CRC"):
        engine.read_resident(7, 0, 1, 100)
    assert [payload(1)] == engine.read_resident(7, 1, 1, 100)
    engine.close()


def test_log_cut_below_the_watermark_is_corruption(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    store(engine, *map(group_of, range(10)))
    engine.close()
    size = log_file(tmp_path).stat().st_size
    os.truncate(log_file(tmp_path), size - 1)
    for _ in range(2):
        with pytest.raises(LogCorrupt, match="durable up to") as refused:
            LogRocksdbEngine(tmp_path)
        assert (str(log_file(tmp_path)), size - 1) == (refused.value.file, refused.value.position)


def test_failed_sync_refuses_every_later_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LogRocksdbEngine(tmp_path)
    store(engine, group_of(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _no_space)
        with pytest.raises(SyncFailed):
            engine.commit(group_of(1), sync=True)
    with pytest.raises(SyncFailed):
        engine.commit(group_of(1), sync=False)
    with pytest.raises(SyncFailed):
        engine.checkpoint()
    assert 1 == entry_count(engine)
    engine.close()


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")


def test_checkpoint_without_space_fails_alone_and_is_not_tried_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LogRocksdbEngine(tmp_path, checkpoint_frames=1)
    store(engine, group_of(0))
    with monkeypatch.context() as patch:
        patch.setattr(log_rocksdb, "FREE_BYTES_MIN", 1 << 62)
        with pytest.raises(StorageWriteFailed) as failed:
            engine.checkpoint()
        assert failed.value.full
        assert not engine.checkpoint_due()
    store(engine, group_of(1))
    assert 2 == entry_count(engine)
    engine.checkpoint()
    engine.close()


def test_close_without_space_leaves_the_rest_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LogRocksdbEngine(tmp_path)
    store(engine, *map(group_of, range(5)), sync=False)
    with monkeypatch.context() as patch:
        patch.setattr(log_rocksdb, "FREE_BYTES_MIN", 1 << 62)
        engine.close()
    assert 5 == reopened_count(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting needs privileges; the injected full disk is tested everywhere")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def stored_or_error(engine: LogRocksdbEngine, group: CommitGroup) -> StorageError | None:
    """Store a group; returns what it failed with."""
    try:
        store(engine, group)
    except StorageError as error:
        return error
    return None


def test_full_disk_fails_appends_serves_reads_and_recovers(small_disk: Path) -> None:
    engine = LogRocksdbEngine(small_disk / "data")
    size, count = 1 << 20, 0
    while count < 100 and (error := stored_or_error(engine, group_of(count, size=size))) is None:
        count += 1
    assert isinstance(error, StorageWriteFailed)
    assert error.full
    assert count > 10
    assert count == entry_count(engine, size=size)

    assert isinstance(stored_or_error(engine, group_of(count, size=size)), StorageWriteFailed)
    assert count == entry_count(engine, size=size)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    store(engine, group_of(count, size=size))
    assert count + 1 == entry_count(engine, size=size)
    engine.close()
    assert count + 1 == reopened_count(small_disk / "data", size=size)


def fill(folder: Path) -> Path:
    """Leave not a single byte; returns what to remove."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_full_disk_with_checkpoints_and_a_restart(small_disk: Path) -> None:
    """RocksDB is never asked for what it cannot do, and loses nothing when the store is closed."""
    engine = LogRocksdbEngine(small_disk / "data", checkpoint_frames=2000)
    count = checkpoints = refused = 0
    while refused < 3:
        if stored_or_error(engine, group_of(count, size=400)) is not None:
            break
        count += 1
        if engine.checkpoint_due():
            try:
                engine.checkpoint()
                checkpoints += 1
            except StorageWriteFailed:
                refused += 1
    assert checkpoints > 1
    filler = fill(small_disk)
    with pytest.raises(StorageWriteFailed, match="no checkpoint"):
        engine.checkpoint()
    assert isinstance(stored_or_error(engine, group_of(count, size=600_000)), StorageWriteFailed)
    assert count == entry_count(engine, size=400)
    fill(small_disk)
    engine.close()
    fill(small_disk)
    with pytest.raises(StorageWriteFailed, match="No space left"):
        LogRocksdbEngine(small_disk / "data")
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    engine = LogRocksdbEngine(small_disk / "data", checkpoint_frames=2000)
    store(engine, group_of(count, size=400))
    engine.checkpoint()
    engine.close()
    assert count + 1 == reopened_count(small_disk / "data", size=400)


@pytest.mark.parametrize("sync", [True, False])
def test_commit_index_read_and_checkpoint_run_beside_each_other(tmp_path: Path, sync: bool) -> None:
    """The helper thread commits, the loop indexes, the pool reads and makes checkpoints."""
    engine = LogRocksdbEngine(tmp_path, file_bytes_max=20_000, checkpoint_frames=100)
    count, has_read, has_checkpointed, stop = 1500, Event(), Event(), Event()
    committed: SimpleQueue[CommitGroup] = SimpleQueue()

    def commit_all() -> None:
        for number in range(count):
            group = group_of(number)
            engine.commit(group, sync=sync)
            committed.put(group)

    def read_on() -> None:
        seen = 0
        while not stop.is_set():
            last = engine.last_entry(7)
            assert last >= seen - 1
            seen = last + 1
            if seen:
                assert [payload(last)] == engine.read(7, last, last, 100)
                has_read.set()

    def checkpoint_on() -> None:
        while not stop.is_set():
            if engine.checkpoint_due():
                engine.checkpoint()
                has_checkpointed.set()

    with ThreadPoolExecutor(3) as pool:
        ends = [pool.submit(call) for call in (commit_all, read_on, checkpoint_on)]
        try:
            for _ in range(count):
                engine.index(committed.get(timeout=60))
            assert has_read.wait(60)
            assert has_checkpointed.wait(60)
        finally:
            stop.set()
        for end in ends:
            end.result()
    assert count == entry_count(engine)
    crash_image.copy_after_kill(engine, tmp_path / "image")
    engine.close()
    assert count == reopened_count(tmp_path)
    assert count == reopened_count(tmp_path / "image")


def test_new_folder_costs_little(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 200_000
    engine.close()


def test_commit_without_a_sync_syncs_only_when_the_engine_was_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With durability "os" an event loop makes all commits but those, and reads rows."""
    monkeypatch.setattr(log_index, "UNFLUSHED_BYTES_MAX", 0)
    monkeypatch.setattr(log_index, "WAITING_WEIGHT_MAX", 10 * FRAME_WEIGHT)
    monkeypatch.setattr(log_index, "STALLED_WEIGHT_MAX", 100 * FRAME_WEIGHT)
    engine = LogRocksdbEngine(tmp_path, durability="os")
    synced_in: list[str] = []

    def fdatasync(_descriptor: int) -> None:
        synced_in.append(current_thread().name)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    groups = [group_of(number) for number in range(300)]
    with ThreadPoolExecutor(1, thread_name_prefix="commits") as commits:
        for group in groups:
            group.rows.append((b"newest", str(id(group)).encode()))
            if engine.is_behind:
                commits.submit(engine.commit, group, sync=False).result(60)
                assert not engine.is_behind
            else:
                engine.commit(group, sync=False)
            engine.index(group)
            assert str(id(group)).encode() == engine.get(b"newest")
    assert {"commits_0"} == set(synced_in)
    assert 300 == entry_count(engine)
    engine.close()
