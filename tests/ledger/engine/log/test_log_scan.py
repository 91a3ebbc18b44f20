"""The groups that a scan returns, and how it reports the end of the log."""

from pathlib import Path

import pytest

from kledger.ledger.engine.log.entry_log import EntryLog, LogEnd
from kledger.ledger.engine.log.frames import FrameDamaged
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.log_scan import WINDOW_BYTES, LogScan, LogWindow
from kledger.ledger.engine.log.recovery_plan import TailDamage, Watermark
from tests.ledger.engine.words import group_of

NEW = Watermark(1, 0, 0)


def written(
    folder: Path, *sizes: int, file_bytes_max: int = 1 << 28
) -> tuple[LogFiles, list[LogEnd]]:
    """Write groups with data of these sizes; returns the files and where each group ended."""
    files = LogFiles(folder)
    files.create(1)
    log = EntryLog(files, LogEnd(1, 0, 0), file_bytes_max=file_bytes_max)
    ends: list[LogEnd] = []
    for number, size in enumerate(sizes):
        ends.append(log.append(group_of(number, size=size), sync_follows=False).end)
        log.sync_current()
    log.close()
    return files, ends


def scanned(files: LogFiles, watermark: Watermark = NEW) -> tuple[list[int], LogScan]:
    scan = LogScan(files, watermark)
    return [placed.end.group for placed in scan.groups()], scan


def test_all_groups_of_all_files_are_read_in_order(tmp_path: Path) -> None:
    files, ends = written(tmp_path, *[3000] * 7, file_bytes_max=5000)
    found, scan = scanned(files)

    assert 4 == len(files.numbers())
    assert list(range(1, 8)) == found
    assert Watermark(*ends[-1]) == scan.end
    assert scan.damage is None
    assert [] == scan.later_commits


def test_scan_begins_after_the_watermark(tmp_path: Path) -> None:
    files, ends = written(tmp_path, *[3000] * 7, file_bytes_max=5000)
    for end in ends:
        found, scan = scanned(files, Watermark(*end))
        assert list(range(end.group + 1, 8)) == found
        assert scan.damage is None


def test_frames_larger_than_the_window(tmp_path: Path) -> None:
    files, _ = written(tmp_path, 100, 3 * WINDOW_BYTES, WINDOW_BYTES - 90, 100)
    assert [1, 2, 3, 4] == scanned(files)[0]


def test_zeros_after_the_last_group_are_the_end(tmp_path: Path) -> None:
    files, ends = written(tmp_path, 100, 100)
    with files.path(1).open("ab") as file:
        file.write(bytes(2 * WINDOW_BYTES))
    found, scan = scanned(files)
    assert ([1, 2], Watermark(*ends[-1])) == (found, scan.end)
    assert scan.damage is None


def test_anything_after_the_zeros_is_damage(tmp_path: Path) -> None:
    files, ends = written(tmp_path, 100, 100)
    with files.path(1).open("ab") as file:
        file.write(bytes(2 * WINDOW_BYTES) + b"x")
    found, scan = scanned(files)
    assert [1, 2] == found
    assert scan.damage is not None
    assert ends[-1].position == scan.damage.position


def test_later_commits_are_found_after_damage_in_every_file(tmp_path: Path) -> None:
    files, ends = written(tmp_path, *[3000] * 4, 2 * WINDOW_BYTES, 100, file_bytes_max=7000)
    raw = bytearray(files.path(1).read_bytes())
    raw[ends[0].position + 10] ^= 1
    files.path(1).write_bytes(raw)
    found, scan = scanned(files)

    assert [1] == found
    assert TailDamage(1, ends[0].position, "the header fails its CRC") == scan.damage
    assert [(end.file, end.group) for end in ends[1:]] == [
        (commit.file, commit.group) for commit in scan.later_commits
    ]
    assert [1, 2, 3, 4, 5] == [commit.synced_group for commit in scan.later_commits]


def test_bytes_that_only_look_like_a_commit_are_no_commit(tmp_path: Path) -> None:
    """An entry may contain a copy of a log; its positions are other ones."""
    files, ends = written(tmp_path, 100, 100)
    raw = files.path(1).read_bytes()
    files.path(1).write_bytes(raw[: ends[0].position] + b"garbage" + raw)
    found, scan = scanned(files)
    assert [1] == found
    assert [] == scan.later_commits


@pytest.mark.parametrize("missing", [1, 2])
def test_missing_file_is_damage(tmp_path: Path, missing: int) -> None:
    files, _ = written(tmp_path, *[3000] * 7, file_bytes_max=5000)
    files.remove(missing)
    found, scan = scanned(files)
    assert list(range(1, 2 * missing - 1)) == found
    assert scan.damage is not None
    assert "missing" in scan.damage.reason


def test_lost_end_of_a_file_in_the_middle_is_damage(tmp_path: Path) -> None:
    files, ends = written(tmp_path, *[3000] * 7, file_bytes_max=5000)
    with files.path(2).open("ab") as file:
        file.truncate(ends[2].position)
    found, scan = scanned(files)
    assert [1, 2, 3] == found
    assert scan.damage is not None
    assert (3, 0) == (scan.damage.file, scan.damage.position)
    assert [5, 6, 7] == [commit.group for commit in scan.later_commits]


def test_file_that_ends_before_the_watermark_is_damage(tmp_path: Path) -> None:
    files, ends = written(tmp_path, 100, 100)
    with files.path(1).open("ab") as file:
        file.truncate(ends[0].position + 5)
    found, scan = scanned(files, Watermark(*ends[1]))
    assert [] == found
    assert scan.damage is not None
    assert (1, ends[0].position + 5) == (scan.damage.file, scan.damage.position)


def test_window_refuses_to_read_past_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with (tmp_path / "file").open("rb") as file:
        window = LogWindow(file.fileno())
        assert b"bc" == bytes(window.view(1, 2))
        with pytest.raises(FrameDamaged, match="ends at 3"):
            window.view(1, 3)
        assert window.is_zero_from(3)
