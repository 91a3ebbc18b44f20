"""Every row of docs/SCENARIOS.md has a test with its number, and no test names another number."""

import re
from collections.abc import Iterable

from tests.tidy.sources import ROOT, expect_none, python_files

ROW = re.compile(r"^\| (\d+) \|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"def test_row_((?:\d+_(?:and_)?)+)")
NOT_SERVED = "not served yet"


def rows_of(page: str) -> dict[int, bool]:
    """Return the numbers of all rows, and whether there is something to test."""
    return {int(number): NOT_SERVED not in text for number, text in ROW.findall(page)}


def rows_played(texts: Iterable[str]) -> set[int]:
    """Return the numbers in the names of tests."""
    return {
        int(number)
        for text in texts
        for names in TEST.findall(text)
        for number in re.findall(r"\d+", names)
    }


def mismatches(rows: dict[int, bool], played: set[int]) -> list[str]:
    """Find rows without a test, and tests without a row."""
    wanted = {row for row, is_served in rows.items() if is_served}
    silent = [f"row {row} has no test" for row in sorted(wanted - played)]
    unknown = [
        f"a test names row {row}, which is not there" for row in sorted(played - rows.keys())
    ]
    return silent + unknown


def test_every_row_is_played() -> None:
    rows = rows_of((ROOT / "docs" / "SCENARIOS.md").read_text("utf-8"))
    assert list(range(1, len(rows) + 1)) == list(rows)
    played = rows_played(text for _, text in python_files("tests", "compat_tests"))
    expect_none(mismatches(rows, played))


def test_planted_gaps_are_found() -> None:
    rows = rows_of("| 1 | a | b |\n| 2 | a | not served yet |\n| 3 | a | b |\n")
    planted = "def test_row_3_x():\nasync def test_row_72_and_73_x():\n"
    assert [
        "row 1 has no test",
        "a test names row 72, which is not there",
        "a test names row 73, which is not there",
    ] == mismatches(rows, rows_played([planted]))
