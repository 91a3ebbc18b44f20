"""Another folder of a room's name is noticed before anything is taken from it."""

import subprocess
import sys
from pathlib import Path

import pytest

import kledger
from tests.tidy.sources import ROOMS, ROOT


def import_beside(folder: Path) -> subprocess.CompletedProcess[str]:
    """Import kledger as a program does whose own folder comes first on the path."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import kledger"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("init", [True, False])
def test_own_folder_of_the_same_name_is_named(tmp_path: Path, *, init: bool) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "accounts.py").touch()
    if init:
        (tmp_path / "ledger" / "__init__.py").touch()
    done = import_beside(tmp_path)
    # A folder without __init__.py comes after every real package, so it hides nothing.
    assert (1 if init else 0) == done.returncode
    if init:
        assert f"{tmp_path}/ledger hides kledger's own package 'ledger'" in done.stderr
        assert "python -P -m kledger serve" in done.stderr


def test_missing_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kledger, "ROOMS", ("no_such_room_of_ours",))
    with pytest.raises(ImportError, match="no_such_room_of_ours is missing"):
        kledger.check_rooms(ROOT)


def test_list_of_rooms_is_complete() -> None:
    existing = {room for room in ROOMS if (ROOT / room / "__init__.py").is_file()}
    assert existing - {"kledger"} == set(kledger.ROOMS)


def test_version_is_that_of_the_project() -> None:
    assert f'\nversion = "{kledger.__version__}"\n' in (ROOT / "pyproject.toml").read_text()
