"""Crash image: a copy of an open data folder as a crash at this moment would leave it.

Rule: only files count. Table files of RocksDB never change once they exist, and its memory is not
copied; of the log, everything written survives a kill, and everything synced a power cut.
Must not know: the content of files. Used by tests and by the faulty engine, never by a server.
"""

import os
import shutil
from pathlib import Path
from typing import Protocol

from kledger.ledger.engine.log.entry_log import LogEnd

ATTEMPTS_MAX = 50


class OpenFolder(Protocol):
    """The engine whose folder is copied."""

    path: Path

    @property
    def synced_end(self) -> LogEnd:
        """How far the log is durable."""
        ...


def copy_after_kill(engine: OpenFolder, target: Path) -> None:
    """Copy what survives the death of the process: everything written, synced or not."""
    shutil.rmtree(target, ignore_errors=True)
    _copy_index(engine.path / "index", target / "index")
    shutil.copytree(engine.path / "log", target / "log")


def copy_after_power_cut(engine: OpenFolder, target: Path) -> None:
    """Copy what survives a power cut: everything that a sync covered."""
    end = engine.synced_end
    copy_after_kill(engine, target)
    for name in sorted(os.listdir(target / "log")):
        number = int(name.partition(".")[0])
        if number > end.file:
            (target / "log" / name).unlink()
        elif number == end.file:
            os.truncate(target / "log" / name, end.position)


def replace_files(image: Path, folder: Path) -> None:
    """Replace log and index of a closed folder."""
    for part in ("log", "index"):
        shutil.rmtree(folder / part)
        (image / part).rename(folder / part)
    image.rmdir()


def _copy_index(source: Path, target: Path) -> None:
    """Copy a live RocksDB folder; start again if a compaction removes a file meanwhile."""
    for _ in range(ATTEMPTS_MAX):
        shutil.rmtree(target, ignore_errors=True)
        before = _manifest(source)
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK", "LOG*"))
        except (shutil.Error, FileNotFoundError):
            continue
        if before == _manifest(source):
            return
    raise RuntimeError(f"{source} changed during each of {ATTEMPTS_MAX} copies")


def _manifest(folder: Path) -> list[tuple[str, int]]:
    """Return names and sizes of the files that list the valid table files."""
    return sorted(
        (name, (folder / name).stat().st_size)
        for name in os.listdir(folder)
        if name.startswith(("MANIFEST", "CURRENT"))
    )
