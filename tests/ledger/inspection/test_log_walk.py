"""Every damage is reported once, at its frame, and the walk continues after it."""

from pathlib import Path

import pytest

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log.entry_log import EntryLog, LogEnd
from kledger.ledger.engine.log.frames import COMMIT_SIZE, HEADER_SIZE
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.inspection.log_walk import FrameFault, WalkedFile, walk_file

GROUP = CommitGroup(entries=[(7, 0, b"a" * 10), (8, 0, b"b" * 20)], rows=[(b"k", b"v")], drops=[9])
FIRST, SECOND = 0, HEADER_SIZE + 10
ROWS = SECOND + HEADER_SIZE + 20
DROP = ROWS + HEADER_SIZE + 10
COMMIT = DROP + HEADER_SIZE + 8
SIZE = COMMIT + COMMIT_SIZE


def written(folder: Path, count: int) -> Path:
    """Write so many times the same group."""
    files = LogFiles(folder)
    files.create(1)
    log = EntryLog(files, LogEnd(1, 0, 0))
    for _ in range(count):
        log.append(GROUP, sync_follows=False)
    log.close()
    files.close()
    assert count * SIZE == files.size(1)
    return files.path(1)


def walked(path: Path, group_before: int | None = 0) -> WalkedFile:
    with path.open("rb") as file:
        return walk_file(file.fileno(), 1, group_before)


def change(path: Path, position: int, data: bytes | None = None) -> None:
    raw = bytearray(path.read_bytes())
    data = bytes([raw[position] ^ 1]) if data is None else data
    raw[position : position + len(data)] = data
    path.write_bytes(raw)


def test_whole_file(tmp_path: Path) -> None:
    found = walked(written(tmp_path, 3))
    live = {7: 3 * (HEADER_SIZE + 10), 8: 3 * (HEADER_SIZE + 20)}
    assert WalkedFile(3, 6, 3, [], live) == found


def test_empty_file_and_zeros_at_the_end(tmp_path: Path) -> None:
    assert WalkedFile(last_group=0) == walked(written(tmp_path, 0))
    path = tmp_path / "00000001.log"
    path.write_bytes(bytes(5000))
    assert WalkedFile(last_group=0) == walked(path)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (FIRST + HEADER_SIZE, FrameFault(SIZE, "the body fails its CRC", 7, 0)),
        (SECOND + HEADER_SIZE, FrameFault(SIZE + SECOND, "the body fails its CRC", 8, 0)),
        (ROWS + HEADER_SIZE, FrameFault(SIZE + ROWS, "the body fails its CRC")),
        (DROP + HEADER_SIZE, FrameFault(SIZE + DROP, "the body fails its CRC")),
        (FIRST + 20, FrameFault(SIZE, "the header fails its CRC")),
        (SECOND + 12, FrameFault(SIZE + SECOND, "the header fails its CRC")),
        (COMMIT + 30, FrameFault(SIZE + COMMIT, "the commit frame fails its CRC")),
    ],
)
def test_one_damaged_byte_in_the_second_of_four_groups(
    tmp_path: Path, at: int, expected: FrameFault
) -> None:
    path = written(tmp_path, 4)
    change(path, SIZE + at)
    found = walked(path)
    assert [expected] == found.faults
    # After an unreadable commit frame the walk continues at the next one.
    assert (2 if at > COMMIT else 3) == found.group_count


def test_every_damaged_byte_is_reported_once(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    raw = path.read_bytes()
    for at in range(SIZE):
        path.write_bytes(raw)
        change(path, SIZE + at)
        assert 1 == len(walked(path).faults), at


def test_several_damages_are_all_reported(tmp_path: Path) -> None:
    path = written(tmp_path, 6)
    for group, at in ((1, FIRST + HEADER_SIZE), (1, SECOND + HEADER_SIZE), (4, SECOND + 3)):
        change(path, group * SIZE + at)
    positions = [SIZE + FIRST, SIZE + SECOND, 4 * SIZE + SECOND]
    assert positions == [fault.position for fault in walked(path).faults]


@pytest.mark.parametrize("cut", [1, COMMIT_SIZE, SIZE - SECOND - 5])
def test_cut_file(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, 2)
    path.write_bytes(path.read_bytes()[:-cut])
    found = walked(path)
    assert (1, 1) == (found.group_count, len(found.faults))
    assert "ends at" in found.faults[0].reason


def test_group_that_is_missing_between_two_others(tmp_path: Path) -> None:
    """A whole group overwritten with an older state of the file is detected."""
    path = written(tmp_path, 2)
    assert 0 == len(walked(path, None).faults)
    found = walked(path, 4)
    assert [COMMIT] == [fault.position for fault in found.faults]
    assert "group=5" in found.faults[0].reason
