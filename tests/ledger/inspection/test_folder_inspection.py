"""An inspection reports planted damage of every kind."""

import os
import shutil
from pathlib import Path

import pytest

from kledger.ledger.engine import crash_image
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import FolderInUse, FolderUnusable
from kledger.ledger.engine.log.entry_log import PlacedGroup
from kledger.ledger.engine.log.frames import HEADER_SIZE
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.inspection.folder_inspection import FolderDamage, FolderInspection
from tests.ledger.engine.words import all_groups, group_of, log_file, payload, store

COUNT = 20


class Planted:
    """A folder with a checkpoint in the middle: killed, or stopped in order."""

    def __init__(self, folder: Path, *, is_killed: bool) -> None:
        engine = LogRocksdbEngine(folder / "live", file_bytes_max=1000)
        self.placed: list[PlacedGroup] = all_groups(engine, *groups(0, 10), sync=True)
        engine.checkpoint()
        self.placed += all_groups(engine, *groups(10, COUNT), sync=True)
        if is_killed:
            crash_image.copy_after_kill(engine, folder / "killed")
        engine.close()
        self.folder = folder / ("killed" if is_killed else "live")

    def flip(self, number: int, offset: int) -> tuple[str, int]:
        """Flip a bit of a group; returns file and position of the group."""
        placed = self.placed[number]
        path = log_file(self.folder, placed.end.file)
        raw = bytearray(path.read_bytes())
        raw[placed.start + offset] ^= 4
        path.write_bytes(raw)
        return str(path), placed.start

    def inspected(self) -> FolderInspection:
        found = FolderInspection(self.folder)
        found.close()
        return found


def groups(start: int, end: int) -> list[CommitGroup]:
    return [*map(group_of, range(start, end))]


@pytest.fixture(params=["killed", "stopped"])
def planted(tmp_path: Path, request: pytest.FixtureRequest) -> Planted:
    return Planted(tmp_path, is_killed=request.param == "killed")


def test_whole_folder(planted: Planted) -> None:
    before = {path: path.stat().st_mtime_ns for path in planted.folder.rglob("*")}
    found = FolderInspection(planted.folder)
    assert ([], None) == (found.damages, found.torn_tail)
    assert (COUNT, COUNT) == (found.group_count, found.entry_count)
    assert 1 < found.file_count
    assert [7] == found.ledger_ids()
    assert [*map(payload, range(COUNT))] == [data for _, _, data in found.entries(7)]
    assert b"20" == found.get(b"count")
    assert [(b"count", b"20")] == found.scan(b"c", b"d")
    found.close()
    assert before == {path: path.stat().st_mtime_ns for path in planted.folder.rglob("*")}


@pytest.mark.parametrize("number", [0, 5, 12, 18])
def test_damaged_data(planted: Planted, number: int) -> None:
    """Before and after the watermark: the frame, its ledger and its entry."""
    file, position = planted.flip(number, HEADER_SIZE + 3)
    expected = FolderDamage(file, position, "the body fails its CRC", 7, number)
    assert [expected] == planted.inspected().damages


@pytest.mark.parametrize("number", [0, 5, 12, 18])
def test_damaged_header(planted: Planted, number: int) -> None:
    file, position = planted.flip(number, 20)
    assert [FolderDamage(file, position, "the header fails its CRC")] == planted.inspected().damages


def test_damaged_commit_frame(planted: Planted) -> None:
    placed = planted.placed[3]
    file, _ = planted.flip(3, placed.end.position - placed.start - 10)
    [damage] = planted.inspected().damages
    assert (file, placed.end.position - 44) == (damage.file, damage.position)
    assert "commit frame" in damage.reason


def test_unreadable_entries_are_reported_with_their_position(tmp_path: Path) -> None:
    planted = Planted(tmp_path, is_killed=False)
    file, position = planted.flip(4, HEADER_SIZE + 3)
    found = FolderInspection(planted.folder)
    damages = [data for _, _, data in found.entries(7) if isinstance(data, FolderDamage)]
    found.close()
    assert [FolderDamage(file, position, "the data fails its CRC", 7, 4)] == damages


def test_torn_tail_of_a_killed_folder_is_no_damage(tmp_path: Path) -> None:
    planted = Planted(tmp_path, is_killed=True)
    last = planted.placed[-1]
    path = log_file(planted.folder, last.end.file)
    os.truncate(path, last.end.position - 3)
    found = planted.inspected()
    assert [] == found.damages
    assert found.torn_tail is not None
    assert f"{path} from position {last.start} on" in found.torn_tail


def test_log_that_ends_before_the_watermark_is_damage(tmp_path: Path) -> None:
    planted = Planted(tmp_path, is_killed=False)
    last = planted.placed[-1]
    path = log_file(planted.folder, last.end.file)
    os.truncate(path, last.end.position - 3)
    damages = planted.inspected().damages
    assert (str(path), last.end.position - 3) in [each[:2] for each in damages]


def test_lost_log_file(planted: Planted) -> None:
    log_file(planted.folder, 2).unlink()
    damages = planted.inspected().damages
    assert FolderDamage(str(log_file(planted.folder, 2)), 0, "the file is missing") in damages


def test_lost_log(planted: Planted) -> None:
    shutil.rmtree(planted.folder / "log")
    expected = FolderDamage(str(planted.folder / "log"), -1, "the folder is missing")
    assert [expected] == planted.inspected().damages


def test_damaged_index_with_a_whole_log_can_be_rebuilt(planted: Planted) -> None:
    for path in (planted.folder / "index").glob("*.sst"):
        path.write_bytes(path.read_bytes()[:-9])
    found = planted.inspected()
    [damage] = found.damages
    assert not found.has_index
    assert str(planted.folder / "index") == damage.file
    assert damage.reason.endswith("a start without this folder makes it anew")
    planted.flip(3, 20)
    assert 2 == len(planted.inspected().damages)
    assert "anew" not in planted.inspected().damages[0].reason


def test_file_of_another_state_does_not_match_the_index(tmp_path: Path) -> None:
    """A user restored an older backup of one log file: every frame of it is right."""
    planted = Planted(tmp_path, is_killed=False)
    other = LogRocksdbEngine(tmp_path / "other")
    all_groups(other, *[group_of(number, ledger_id=8) for number in range(4)], sync=True)
    other.close()
    shutil.copy(log_file(tmp_path / "other"), log_file(planted.folder))
    found = FolderInspection(planted.folder)
    unreadable = [data for _, _, data in found.entries(7) if isinstance(data, FolderDamage)]
    found.close()
    first = str(log_file(planted.folder))
    assert FolderDamage(first, -1, "0 bytes of entries, the index has 480", 7) in found.damages
    assert {first} == {damage.file for damage in unreadable}


def test_wrong_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    for name, text in (
        ("empty", "holds no store"), ("missing", "holds no store"), ("file", "Not a directory"),
        ("other", "something else"),
    ):  # fmt: skip
        with pytest.raises(FolderUnusable, match=text):
            FolderInspection(tmp_path / name)
    assert not (tmp_path / "missing").exists()


def test_folder_in_use_and_folder_without_a_lock(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    with pytest.raises(FolderInUse):
        FolderInspection(tmp_path)
    engine.close()
    (tmp_path / "lock").unlink()
    found = FolderInspection(tmp_path)
    found.close()
    found.close()
    assert [] == found.damages
    assert not (tmp_path / "lock").exists()


def test_space_that_does_not_add_up_is_damage(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    store(engine, *map(group_of, range(3)))
    engine._index.space.ledgers_in(1)[7] -= 5
    engine._index.space.ledgers_in(1)[9] = 3
    store(engine, group_of(3), CommitGroup(entries=[(9, 0, b"x")]))
    engine.close()
    found = FolderInspection(tmp_path)
    found.close()
    path = str(log_file(tmp_path))
    assert [
        FolderDamage(path, -1, "320 bytes of entries are listed, 315 are counted", 7),
        FolderDamage(path, -1, "41 bytes of entries are listed, 44 are counted", 9),
        FolderDamage(path, -1, "41 bytes of entries, the index has 44", 9),
    ] == found.damages
