"""A data folder is its user's alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kledger.security.private_folder import UnsafeFolder, keep_private


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    """Set the mask that most processes have, and the one of this process afterwards."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_from_then_on_is_private(tmp_path: Path) -> None:
    keep_private(tmp_path / "data")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("")
    assert (0o700, 0o600) == (mode_of(tmp_path / "data"), mode_of(tmp_path / "data" / "file"))


def test_an_open_folder_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    keep_private(folder)
    assert 0o700 == mode_of(folder)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "target")
    with pytest.raises(UnsafeFolder, match="got a symbolic link"):
        keep_private(tmp_path / "data")


def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UnsafeFolder, match="expected a folder of user"):
        keep_private(tmp_path)
