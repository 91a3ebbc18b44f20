"""The tree names no machine: no private folder, no host that packages come from."""

import re
from pathlib import PurePosixPath

from tests.tidy.sources import ROOT, expect_none, tracked_files

FOLDERS = ("home", "root", "work", "Users")
HOSTS = ("python" + "hosted", "pypi" + r"\.org", "npm" + r"js\.", "repo1?" + r"\.maven",
         "debian" + r"\.org/debian", "crates" + r"\.io(?!-index\")",
         "golang" + r"\.org")  # fmt: skip
PATTERN = re.compile(rf"(?<![\w./-])/(?:{'|'.join(FOLDERS)})/\w|{'|'.join(HOSTS)}")
TEXT_SUFFIXES = {"", ".cfg", ".html", ".java", ".json", ".lock", ".md", ".py", ".sh", ".toml",
                 ".txt", ".yaml", ".yml", ".properties", ".xml"}  # fmt: skip


def machine_words(path: PurePosixPath, text: str) -> list[str]:
    """Find paths and hosts of one machine or workplace."""
    return [
        f"{path}: line {number} names {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in PATTERN.finditer(line)
    ]


def test_tree_names_no_machine() -> None:
    found = [
        found
        for path in tracked_files()
        if path.suffix in TEXT_SUFFIXES
        for found in machine_words(path, (ROOT / path).read_text("utf-8", errors="replace"))
    ]
    expect_none(found)


def test_planted_words_are_found() -> None:
    planted = PurePosixPath("docs/x.md")
    for text in ("see /ro" + "ot/data", "cd '/ho" + "me/someone'", "from py" + "pi.org"):
        assert 1 == len(machine_words(planted, text)), text
    assert [] == machine_words(planted, "pipelines/work/x and https://a.example/home/x")
