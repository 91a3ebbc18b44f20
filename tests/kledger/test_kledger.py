"""Another folder of a room's name is noticed before anything is taken from it."""

import subprocess
import sys
from pathlib import Path

import pytest

import kledger
from tests.tidy.sources import ROOMS, ROOT


def import_beside(folder: Path, module: str) -> subprocess.CompletedProcess[str]:
    """Import ours as a program does whose own folder comes first on the path."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import {module}"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return the folder of a program that has a package `ledger` of its own."""
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "__init__.py").touch()
    return tmp_path


def test_hiding_folder_is_named_at_once(foreign: Path) -> None:
    done = import_beside(foreign, "kledger")
    assert 0 == done.returncode
    assert f"{foreign}/ledger hides kledger's own package 'ledger'" in done.stderr
    assert "python -P -m kledger serve" in done.stderr


@pytest.mark.parametrize("module", ["kledger.testing", "kledger.settings"])
def test_what_needs_the_rooms_refuses_to_work(foreign: Path, module: str) -> None:
    done = import_beside(foreign, module)
    assert 1 == done.returncode
    assert f"ImportError: {foreign}/ledger hides kledger's own package" in done.stderr


def test_what_starts_a_process_works(foreign: Path) -> None:
    """The fixture of the pytest plugin must not take a whole test run down."""
    assert 0 == import_beside(foreign, "kledger.pytest_plugin, kledger.process").returncode


def test_folder_that_is_no_package_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    done = import_beside(tmp_path, "kledger")
    assert (0, "") == (done.returncode, done.stderr)


def test_missing_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kledger, "ROOMS", ("no_such_room_of_ours",))
    assert "no_such_room_of_ours is missing" in str(kledger.problem_with_rooms(ROOT))
    monkeypatch.setattr(kledger, "_problem", "something is missing")
    with pytest.raises(ImportError, match="something is missing"):
        kledger.require_rooms()


def test_rooms_of_this_checkout_are_its_own() -> None:
    assert kledger.problem_with_rooms(ROOT) is None
    kledger.require_rooms()


def test_list_of_rooms_is_complete() -> None:
    existing = {room for room in ROOMS if (ROOT / room / "__init__.py").is_file()}
    assert existing - {"kledger"} == set(kledger.ROOMS)


def test_version_is_that_of_the_project() -> None:
    assert f'\nversion = "{kledger.__version__}"\n' in (ROOT / "pyproject.toml").read_text()
