"""The log grows by whole groups only, whatever the errors of the disk."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import StorageWriteFailed, SyncFailed
from kledger.ledger.engine.log import entry_log
from kledger.ledger.engine.log.entry_log import EntryLog, LogEnd
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.log_scan import LogScan
from kledger.ledger.engine.log.recovery_plan import Watermark
from tests.ledger.engine.words import group_of, payload


@pytest.fixture
def files(tmp_path: Path) -> Iterator[LogFiles]:
    made = LogFiles(tmp_path)
    made.create(1)
    yield made
    made.close()


@pytest.fixture
def log(files: LogFiles) -> Iterator[EntryLog]:
    made = EntryLog(files, LogEnd(1, 0, 0), file_bytes_max=4096)
    yield made
    made.close()


def groups_in(files: LogFiles) -> list[CommitGroup]:
    """Return all groups that a scan finds; the log must not be damaged."""
    scan = LogScan(files, Watermark(1, 0, 0))
    groups = [
        CommitGroup([(a, b, bytes(c)) for a, b, c in g.entries], g.rows, g.drops)
        for g, *_ in scan.groups()
    ]
    assert scan.damage is None
    return groups


def test_groups_follow_each_other(log: EntryLog, files: LogFiles) -> None:
    groups = [group_of(number, size=100 * number) for number in range(9)]
    ends = [log.append(group, sync_follows=False).end for group in groups]

    assert list(range(1, 10)) == [end.group for end in ends]
    assert ends[-1] == log.end
    assert groups == groups_in(files)


def test_full_file_is_rotated_out_before_the_next_group(log: EntryLog, files: LogFiles) -> None:
    groups = [group_of(number, size=3000) for number in range(5)]
    placed = [log.append(group, sync_follows=True) for group in groups]

    assert [1, 1, 2, 2, 3] == [each.end.file for each in placed]
    assert [True, False, True, False, True] == [each.start == 0 for each in placed]
    assert [1, 2, 3] == files.numbers()
    assert groups == groups_in(files)
    assert placed[1].end.position == files.size(1)


def test_rotation_leaves_both_files_to_the_next_sync(log: EntryLog) -> None:
    for number in range(5):
        log.append(group_of(number, size=3000), sync_follows=True)
    assert LogEnd(1, 0, 0) == log.synced_end
    log.sync_current()
    assert log.end == log.synced_end


def test_synced_end_is_written_into_later_groups(log: EntryLog, files: LogFiles) -> None:
    for number in range(3):
        log.append(group_of(number), sync_follows=True)
        log.sync_current()
    log.append(group_of(3), sync_follows=True)
    raw = files.path(1).read_bytes()
    start = LogScan(files, Watermark(1, 0, 0))
    ends = [placed.end.position for placed in start.groups()]
    synced = [int.from_bytes(raw[end - 20 : end - 12], "little") for end in ends]
    assert [0, 1, 2, 3] == synced


def test_zeros_are_written_ahead_of_small_synced_groups_only(
    log: EntryLog, files: LogFiles
) -> None:
    log.append(group_of(0), sync_follows=False)
    assert log.end.position == files.size(1)
    first = log.append(group_of(1), sync_follows=True)
    ahead = files.size(1)
    assert first.end.position + entry_log.ZERO_AHEAD_BYTES == ahead
    log.append(group_of(2), sync_follows=True)
    assert ahead == files.size(1)
    large = group_of(3, size=ahead)
    log.append(large, sync_follows=True)
    assert log.end.position == files.size(1)
    assert [group_of(0), group_of(1), group_of(2), large] == groups_in(files)


def failing(log: EntryLog, monkeypatch: pytest.MonkeyPatch, *, code: int, after: int) -> None:
    """Let the disk take `after` more bytes, then fail."""
    real = os.pwrite
    left = [after]

    def fail(descriptor: int, content: bytes, position: int) -> int:
        if not left[0]:
            raise OSError(code, os.strerror(code))
        part = bytes(content)[: left[0]]
        left[0] -= len(part)
        return real(descriptor, part, position)

    def fail_many(descriptor: int, contents: list[bytes], position: int) -> int:
        return fail(descriptor, b"".join(contents), position)

    monkeypatch.setattr(os, "pwrite", fail)
    monkeypatch.setattr(os, "pwritev", fail_many)


@pytest.mark.parametrize("after", [0, 1, 100, 5000, 30_000])
@pytest.mark.parametrize("sync_follows", [True, False])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_failed_write_leaves_nothing_and_later_ones_work(
    files: LogFiles,
    monkeypatch: pytest.MonkeyPatch,
    *,
    after: int,
    sync_follows: bool,
    code: int,
) -> None:
    log = EntryLog(files, LogEnd(1, 0, 0))
    log.append(group_of(0), sync_follows=sync_follows)
    before = log.end
    with monkeypatch.context() as patch:
        failing(log, patch, code=code, after=after)
        with pytest.raises(StorageWriteFailed) as failed:
            log.append(group_of(1, size=50_000), sync_follows=sync_follows)
    assert (code == errno.ENOSPC) == failed.value.full
    assert before == log.end
    assert before.position == files.size(1)

    log.append(group_of(1), sync_follows=sync_follows)
    log.sync_current()
    assert [group_of(0), group_of(1)] == groups_in(files)
    log.close()


def test_group_that_fits_without_zeros_is_written_without(
    log: EntryLog, files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last bytes of a disk belong to data."""
    real = os.pwritev

    def no_room_for_zeros(descriptor: int, buffers: list[bytes], position: int) -> int:
        if sum(map(len, buffers)) > 10_000:
            raise OSError(errno.ENOSPC, "full")
        return real(descriptor, buffers, position)

    monkeypatch.setattr(os, "pwritev", no_room_for_zeros)
    log.append(group_of(0, size=5000), sync_follows=True)
    assert [group_of(0, size=5000)] == groups_in(files)


def test_short_writes_are_continued(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EntryLog(files, LogEnd(1, 0, 0))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:7], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, many, at: real(fd, b"".join(many)[:1000], at))
    groups = [group_of(0), group_of(1, size=20_000), group_of(2)]
    for group in groups:
        log.append(group, sync_follows=False)
    assert groups == groups_in(files)
    log.close()


def test_disk_that_writes_nothing_is_an_error(
    log: EntryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(StorageWriteFailed, match="wrote nothing"):
        log.append(group_of(0), sync_follows=False)


def test_more_buffers_than_one_system_call_takes(log: EntryLog, files: LogFiles) -> None:
    entries = [(1, number, payload(number, 5000)) for number in range(1500)]
    group = CommitGroup(entries=[*entries])
    log.append(group, sync_follows=True)
    assert [group] == groups_in(files)


def test_failed_rotation_fails_the_group_only(
    log: EntryLog, files: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(group_of(0, size=5000), sync_follows=False)
    with monkeypatch.context() as patch:
        patch.setattr(LogFiles, "create", _no_space)
        with pytest.raises(StorageWriteFailed) as failed:
            log.append(group_of(1), sync_follows=False)
    assert failed.value.full
    log.append(group_of(1), sync_follows=False)
    assert 2 == log.end.file
    assert [group_of(0, size=5000), group_of(1)] == groups_in(files)


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("call", ["sync", "sync_current"])
def test_failed_sync_ends_all_writing(
    log: EntryLog, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A second sync could succeed without the data: the state stays unknown for good."""
    log.append(group_of(0), sync_follows=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _no_space)
        with pytest.raises(SyncFailed, match="could not be synced"):
            getattr(log, call)()
    for again in (log.sync, log.sync_current, lambda: log.append(group_of(1), sync_follows=True)):
        with pytest.raises(SyncFailed, match="could not be synced"):
            again()
    assert LogEnd(1, 0, 0) == log.synced_end


def test_failed_cut_ends_all_writing(log: EntryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        failing(log, patch, code=errno.ENOSPC, after=10)
        patch.setattr(os, "ftruncate", _no_space)
        with pytest.raises(SyncFailed, match="undone"):
            log.append(group_of(0), sync_follows=False)
    with pytest.raises(SyncFailed, match="undone"):
        log.append(group_of(0), sync_follows=False)


def test_sync_in_another_thread_does_not_claim_what_came_later(
    log: EntryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint syncs while a group is appended, and even while a file is rotated out."""
    real, started, may_end = os.fdatasync, Event(), Event()

    def slow(descriptor: int) -> None:
        started.set()
        may_end.wait()
        real(descriptor)

    log.append(group_of(0, size=5000), sync_follows=False)
    end = log.end
    monkeypatch.setattr(os, "fdatasync", slow)
    thread = Thread(target=log.sync)
    thread.start()
    started.wait()
    log.append(group_of(1), sync_follows=False)
    may_end.set()
    thread.join()

    assert end == log.synced_end
    assert 2 == log.end.file
    log.sync()
    assert log.end == log.synced_end
