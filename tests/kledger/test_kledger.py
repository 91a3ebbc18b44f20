"""One package is imported and shipped; its parts are the folders of the repository."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import kledger
from tests.tidy.sources import PACKAGES, ROOT


def build(source: Path, target: str, folder: Path) -> Path:
    """Return the archive that hatchling builds from a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [built] = folder.iterdir()
    return built


def content(wheel: Path) -> dict[str, int]:
    """Return the names in a wheel and the checksums of their bytes, without its list of itself."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            each.filename: each.CRC
            for each in archive.infolist()
            if not each.filename.endswith("/RECORD")
        }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def test_every_folder_is_a_package_of_kledger() -> None:
    links = {each.name: each for each in (ROOT / "kledger").iterdir() if each.is_symlink()}
    assert set(PACKAGES) - {"kledger"} == set(links)
    for name, link in links.items():
        assert Path("..") / name == link.readlink()


def test_wheel_holds_the_one_package_and_all_of_it(wheel: Path) -> None:
    names = content(wheel)
    assert {"kledger", f"kledger-{kledger.__version__}.dist-info"} == {
        name.partition("/")[0] for name in names
    }
    for package in set(PACKAGES) - {"kledger"}:
        expected = {f"kledger/{each.relative_to(ROOT)}" for each in (ROOT / package).rglob("*.py")}
        assert expected == {
            name
            for name in names
            if name.startswith(f"kledger/{package}/") and name.endswith(".py")
        }


@pytest.mark.slow
def test_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(ROOT, "sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    assert content(wheel) == content(build(source, "wheel", tmp_path / "again"))


def test_installed_wheel_is_whole_beside_other_packages_of_the_same_names(
    wheel: Path, tmp_path: Path
) -> None:
    """A program with packages `ledger` and `runtime` of its own takes nothing of ours for them."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for name in ("ledger", "runtime"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("balance = 3\n")
    program = (
        "import ledger, runtime, kledger.wiring, kledger.testing, kledger.ledger\n"
        "assert ledger.balance == runtime.balance == 3\n"
        "print(kledger.ledger.LedgerStore.__module__, kledger.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (f"kledger.ledger.store {tmp_path}/kledger/__init__.py\n", "") == (
        done.stdout,
        done.stderr,
    )


def test_every_documented_name_exists() -> None:
    for name in kledger.__all__:
        assert getattr(kledger, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_ours'"):
        _ = kledger.nothing_of_ours


def test_version_is_that_of_the_project() -> None:
    assert f'\nversion = "{kledger.__version__}"\n' in (ROOT / "pyproject.toml").read_text()
