"""What can be read when the index is lost, or the log is damaged after its watermark."""

import os
import shutil
from pathlib import Path

import pytest

from kledger.ledger.engine import crash_image
from kledger.ledger.engine.base import CommitGroup, Move
from kledger.ledger.engine.log.entry_log import PlacedGroup
from kledger.ledger.engine.log.frames import COMMIT_SIZE, HEADER_SIZE
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.inspection.folder_inspection import FolderDamage, FolderInspection
from tests.ledger.engine.words import all_groups, group_of, log_file, payload

COUNT = 20


class Folder:
    """A folder with a checkpoint in the middle and several log files."""

    def __init__(self, folder: Path, *more: CommitGroup, is_killed: bool = True) -> None:
        engine = LogRocksdbEngine(folder / "live", file_bytes_max=1000)
        self.placed = all_groups(engine, *map(group_of, range(10)), sync=True)
        engine.checkpoint()
        groups = [*map(group_of, range(10, COUNT)), *more]
        self.placed += all_groups(engine, *groups, sync=True)
        if is_killed:
            crash_image.copy_after_kill(engine, folder / "killed")
        engine.close()
        self.path = folder / ("killed" if is_killed else "live")

    def lose_index(self) -> None:
        for path in (self.path / "index").glob("CURRENT"):
            path.write_bytes(b"")

    def flip(self, placed: PlacedGroup, offset: int) -> None:
        path = log_file(self.path, placed.end.file)
        raw = bytearray(path.read_bytes())
        raw[placed.start + offset] ^= 4
        path.write_bytes(raw)

    def read(self) -> "Read":
        before = {path: path.read_bytes() for path in self.path.rglob("*") if path.is_file()}
        found = Read(self.path)
        after = {path: path.read_bytes() for path in self.path.rglob("*") if path.is_file()}
        assert before == after
        return found


class Read:
    """What a reader gets."""

    def __init__(self, folder: Path) -> None:
        found = FolderInspection(folder, is_for_reading=True)
        self.ledger_ids = found.ledger_ids()
        entries = [(location.entry_id, data) for location, _, data in found.entries(7)]
        self.whole = [number for number, data in entries if data == payload(number)]
        self.damaged = [number for number, data in entries if isinstance(data, FolderDamage)]
        self.count = found.get(b"count")
        found.close()
        self.damages = found.damages
        self.torn_tail = found.torn_tail


def numbers(*but: int) -> list[int]:
    return [number for number in range(COUNT) if number not in but]


@pytest.fixture(params=["killed", "stopped"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Folder:
    return Folder(tmp_path, is_killed=request.param == "killed")


def test_whole_folder_needs_none(folder: Folder) -> None:
    found = folder.read()
    assert ([], None) == (found.damages, found.torn_tail)
    assert (numbers(), [], b"20") == (found.whole, found.damaged, found.count)


def test_lost_index_is_rebuilt_from_the_log(folder: Folder) -> None:
    folder.lose_index()
    found = folder.read()
    assert (numbers(), [], b"20") == (found.whole, found.damaged, found.count)
    [damage] = found.damages
    assert damage.reason.endswith("; a start without this folder makes it anew")


def test_lost_index_and_lost_log_files(folder: Folder) -> None:
    folder.lose_index()
    log_file(folder.path, 1).unlink()
    log_file(folder.path, 3).unlink()
    lost = [n for n, placed in enumerate(folder.placed) if placed.end.file in {1, 3}]
    found = folder.read()
    assert (numbers(*lost), b"20") == (found.whole, found.count)
    assert "anew" not in found.damages[0].reason


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_damaged_data_costs_one_entry(tmp_path: Path, *, is_index_lost: bool) -> None:
    folder = Folder(tmp_path)
    folder.flip(folder.placed[15], HEADER_SIZE + 3)
    if is_index_lost:
        folder.lose_index()
    found = folder.read()
    assert (numbers(15), [15], b"20") == (found.whole, found.damaged, found.count)
    assert "the body fails its CRC" in [damage.reason for damage in found.damages]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_damaged_header_costs_the_rest_of_its_group(tmp_path: Path, *, is_index_lost: bool) -> None:
    folder = Folder(tmp_path)
    folder.flip(folder.placed[15], 20)
    if is_index_lost:
        folder.lose_index()
    found = folder.read()
    assert (numbers(15), [], b"20") == (found.whole, found.damaged, found.count)
    assert "the header fails its CRC" in [damage.reason for damage in found.damages]


def test_entries_before_a_damaged_header_are_read(tmp_path: Path) -> None:
    both = CommitGroup(entries=[(7, 20, payload(20)), (7, 21, payload(21))])
    folder = Folder(tmp_path, both, group_of(22))
    folder.flip(folder.placed[20], HEADER_SIZE + 40 + 20)
    assert [*numbers(), 20, 22] == folder.read().whole


def test_lost_file_after_the_watermark(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    file = folder.placed[15].end.file
    lost = [n for n, placed in enumerate(folder.placed) if placed.end.file == file]
    assert min(lost) > 10
    log_file(folder.path, file).unlink()
    assert numbers(*lost) == folder.read().whole


def test_lost_log(folder: Folder) -> None:
    shutil.rmtree(folder.path / "log")
    found = folder.read()
    assert [] == found.whole
    assert found.damaged
    assert [FolderDamage(str(folder.path / "log"), -1, "the folder is missing")] == found.damages


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_torn_tail_never_happened(tmp_path: Path, *, is_index_lost: bool) -> None:
    folder = Folder(tmp_path)
    last = folder.placed[-1]
    path = log_file(folder.path, last.end.file)
    os.truncate(path, last.end.position - 3)
    if is_index_lost:
        folder.lose_index()
    found = folder.read()
    assert (numbers(19), b"19") == (found.whole, found.count)
    assert found.torn_tail is not None
    assert f"{path} from position {last.start} on" in found.torn_tail
    assert int(is_index_lost) == len(found.damages)


def moved(ledger_id: int, number: int, old: PlacedGroup) -> CommitGroup:
    """Return the group that moves an entry which stood first in another group."""
    move = Move(ledger_id, number, old.end.file, old.start)
    return CommitGroup(entries=[(ledger_id, number, payload(number))], moves=[move])


@pytest.mark.parametrize("is_source_lost", [False, True])
def test_moved_entries_without_an_index(tmp_path: Path, *, is_source_lost: bool) -> None:
    """Their old locations are lost, but they are read."""
    folder = Folder(tmp_path)
    placed = folder.placed
    folder = Folder(tmp_path / "moved", *(moved(7, number, placed[number]) for number in range(4)))
    folder.lose_index()
    lost = []
    if is_source_lost:
        log_file(folder.path, 1).unlink()
        lost = [n for n in range(4, COUNT) if folder.placed[n].end.file == 1]
    assert numbers(*lost) == folder.read().whole


def test_dropped_ledgers_stay_dropped(tmp_path: Path) -> None:
    """A copy of an entry after the drop of its ledger does not restore it."""
    entries = [CommitGroup(entries=[(each, 0, payload(0))]) for each in (8, 9)]
    places = Folder(tmp_path, *entries).placed[-2:]
    copies = [moved(8, 0, places[0]), moved(9, 0, places[1])]
    folder = Folder(tmp_path / "moved", *entries, CommitGroup(drops=[8]), *copies)
    assert [7, 9] == folder.read().ledger_ids
    folder.lose_index()
    assert [7, 9] == folder.read().ledger_ids


def test_damaged_commit_frame(tmp_path: Path) -> None:
    """The walk continues at the next commit frame: the group between is lost."""
    folder = Folder(tmp_path)
    placed = folder.placed[12]
    folder.flip(placed, placed.end.position - placed.start - COMMIT_SIZE + 20)
    found = folder.read()
    assert {12, *range(14, COUNT)} <= set(found.whole)
