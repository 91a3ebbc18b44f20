"""Which folders are data folders, and the errors of unusable ones."""

import errno
from pathlib import Path

import pytest

from kledger.ledger.engine import data_folder
from kledger.ledger.engine.errors import FolderUnusable, StorageError, StorageWriteFailed
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from tests.ledger.engine.words import group_of, reopened_count, store

LOGS = ["00000001.log"]


@pytest.mark.parametrize(
    ("names", "log_names", "expected"),
    [
        ([], [], None),
        (["lock"], [], None),
        (["lock", "log", "index"], LOGS, None),
        (["log", "index"], LOGS, None),
        (["lost+found", ".gitkeep"], [], None),
        (["lock", "log", "index", "notes.txt"], LOGS, None),
        (["lock", "log", "index", "crash-image"], [], None),
        (["x.py", "notes.txt"], [], "notes.txt"),
        (["lock", "notes.txt"], [], "notes.txt"),
        (["log"], ["syslog"], "log/syslog"),
        (["log", "index"], ["1.log"], "log/1.log"),
    ],
)
def test_strange_name(names: list[str], log_names: list[str], expected: str | None) -> None:
    assert expected == data_folder.foreign_name(names, log_names)


def test_folder_of_something_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FolderUnusable, match=r"something else, such as notes\.txt; a new data"):
        LogRocksdbEngine(tmp_path)
    assert ["notes.txt"] == [path.name for path in tmp_path.iterdir()]


def test_folder_of_workers_is_refused_and_names_theirs(tmp_path: Path) -> None:
    for name in ("worker-1", "worker-0", "workers.json", "lock"):
        (tmp_path / name).touch()
    with pytest.raises(FolderUnusable) as refused:
        LogRocksdbEngine(tmp_path)
    assert (
        f"data folder {tmp_path} is that of a server with workers, which have their own: "
        f"{tmp_path}/worker-0, {tmp_path}/worker-1"
    ) == str(refused.value)


def test_files_that_a_user_adds_do_no_harm(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    store(engine, group_of(0))
    engine.close()
    (tmp_path / "README").write_text("whose this is")
    assert 1 == reopened_count(tmp_path)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (PermissionError(errno.EACCES, "denied", "/data"), FolderUnusable, "used: denied"),
        (PermissionError(errno.EACCES, "denied", "/data/log"), FolderUnusable, "denied: /data/log"),
        (OSError(errno.ENOSPC, "full"), StorageWriteFailed, "used: full"),
        (OSError(errno.EIO, "broken"), StorageError, "used: broken"),
    ],
)
def test_as_storage_error(error: OSError, kind: type[StorageError], text: str) -> None:
    translated = data_folder.as_storage_error(Path("/data"), error)
    assert kind is type(translated)
    assert str(translated).endswith(text)
