"""Fragments become a section, and leave only when it is written."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

HEAD = "# Changelog\n\nWhat a user notices.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "changelog.d"
    folder.mkdir()
    (folder / "gather.py").write_text((ROOT / "changelog.d" / "gather.py").read_text())
    (folder / "README.md").write_text("how")
    (tmp_path / "CHANGELOG.md").write_text(HEAD)
    return tmp_path


def gather(project: Path, *arguments: str) -> int:
    script = project / "changelog.d" / "gather.py"
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, check=False
    ).returncode


def test_versions_stand_newest_first_and_kinds_in_order(project: Path) -> None:
    folder = project / "changelog.d"
    (folder / "b.fixed.md").write_text("It no longer\nfalls.\n")
    (folder / "a.added.md").write_text("It flies.\n")
    assert 0 == gather(project, "0.1.0")
    (folder / "c.added.md").write_text("It swims.\n")
    assert 0 == gather(project, "0.2.0")
    assert (
        HEAD + "\n## 0.2.0\n\n### Added\n\n- It swims.\n"
        "\n## 0.1.0\n\n### Added\n\n- It flies.\n\n### Fixed\n\n- It no longer falls.\n"
    ) == (project / "CHANGELOG.md").read_text()
    assert ["README.md", "gather.py"] == sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["a.nothing.md", "A.added.md", "a.md"])
def test_fragment_of_another_form_stops_everything(project: Path, name: str) -> None:
    (project / "changelog.d" / name).write_text("It flies.\n")
    assert 1 == gather(project, "0.1.0")
    assert HEAD == (project / "CHANGELOG.md").read_text()


def test_version_is_needed(project: Path) -> None:
    assert 2 == gather(project)


def test_fragments_of_this_project_are_well_formed(project: Path) -> None:
    for fragment in (ROOT / "changelog.d").glob("*.md"):
        (project / "changelog.d" / fragment.name).write_text(fragment.read_text())
    assert 0 == gather(project, "9.9.9")
