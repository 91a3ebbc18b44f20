"""The image shows what a start would have, and leaves the folder as it was."""

import shutil
from pathlib import Path

import pytest

from kledger.ledger.engine import crash_image
from kledger.ledger.engine.errors import IndexCorrupt
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.log_scan import LogScan
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.inspection.index_image import IndexImage
from tests.ledger.engine.words import group_of, store


def killed(folder: Path) -> Path:
    """Return a folder whose index covers four of seven groups, of two ledgers."""
    engine = LogRocksdbEngine(folder / "live")
    store(engine, *map(group_of, range(2)), *(group_of(n, ledger_id=3) for n in range(2)))
    engine.checkpoint()
    store(engine, *map(group_of, range(2, 5)))
    crash_image.copy_after_kill(engine, folder / "killed")
    engine.close()
    return folder / "killed"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_image_replays_and_the_folder_stays_as_it_is(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    before = contents(folder)
    image = IndexImage(folder / "index")
    files = LogFiles(folder / "log", is_read_only=True)
    assert [3, 7] == image.ledger_ids()
    assert [0, 1] == [location.entry_id for location in image.locations(7, 0, 100)]
    image.replay(LogScan(files, image.index.watermark))
    assert [0, 1, 2, 3, 4] == [location.entry_id for location in image.locations(7, 0, 100)]
    assert [2, 3] == [location.entry_id for location in image.locations(7, 2, 2)]
    assert b"5" == image.index.get(b"count")
    image.close()
    files.close()
    assert before == contents(folder)


def test_no_index_at_all_is_an_empty_one(tmp_path: Path) -> None:
    image = IndexImage(tmp_path / "index")
    assert 0 == image.index.watermark.group
    assert [] == image.ledger_ids()
    image.close()


@pytest.mark.parametrize("part", ["*.sst", "CURRENT"])
def test_damaged_index_is_reported_with_its_path(tmp_path: Path, part: str) -> None:
    folder = killed(tmp_path)
    for path in (folder / "index").glob(part):
        raw = path.read_bytes()
        path.write_bytes(bytes(len(raw)))
    with pytest.raises(IndexCorrupt, match=str(folder / "index")):
        IndexImage(folder / "index")


def test_lost_table_is_damage(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    for path in (folder / "index").glob("*.sst"):
        path.unlink()
    with pytest.raises(IndexCorrupt):
        IndexImage(folder / "index")
    shutil.rmtree(folder)
