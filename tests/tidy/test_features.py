"""Every test that the pages of features name is there, and every row names one."""

import re
from collections.abc import Iterable

from tests.tidy.sources import ROOT, expect_none, python_files

TABLE = re.compile(r"^\| [^\n]* \| tests \|\n\|[-|]+\|\n((?:\| [^\n]+ \|\n)*)", re.MULTILINE)
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)
PAGES = ("COMPACTION.md", "NAMED-TOPICS.md", "SUBSCRIPTIONS.md", "TABLE_VIEWS.md")
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"def (test_\w+)\(")


def gaps(page: str, texts: Iterable[str]) -> list[str]:
    """Find rows without a test, and tests that do not exist."""
    written = {name for text in texts for name in DEFINED.findall(text)}
    rows = [row for table in TABLE.findall(page) for row in ROW.findall(table)]
    silent = [f"no test: {row}" for row in rows if not NAMED.search(row)]
    missing = [f"{name} is not there" for row in rows for name in NAMED.findall(row)]
    return silent + [each for each in missing if each.split()[0] not in written]


def test_every_feature_is_tested() -> None:
    texts = [text for _, text in python_files("tests", "compat_tests")]
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in PAGES]
    assert all(TABLE.search(page) for page in pages)
    expect_none([gap for page in pages for gap in gaps(page, texts)])


def test_planted_gaps_are_found() -> None:
    page = "| what | tests |\n|---|---|\n| a | `test_a` |\n| b | `test_b` |\n| c | none |\n"
    page += "\n| what | then |\n|---|---|\n| d | nothing is tested |\n"
    texts = ["async def test_a(", "# test_b"]
    assert ["no test: c | none", "test_b is not there"] == gaps(page, texts)
