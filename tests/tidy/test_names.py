"""A file that could be called utils lacks a noun; and a test stands where its subject stands."""

from pathlib import PurePosixPath

from tests.tidy.sources import expect_none, tracked_files

HOMELESS = {"base", "common", "core", "helpers", "manager2", "misc", "util", "utils"}
SEAMS = {"ledger/engine/base.py"}


def homeless_names(path: PurePosixPath) -> list[str]:
    """Find words in a path that say nothing; the interface of engines may be called base."""
    if str(path).removeprefix("tests/").replace("test_", "") in SEAMS:
        return []
    words = [*path.parts[:-1], path.stem.removeprefix("test_")]
    return [f"{path}: {word} says nothing" for word in words if word in HOMELESS]


def test_no_name_is_homeless() -> None:
    expect_none([found for path in tracked_files() for found in homeless_names(path)])


def test_planted_names_are_found() -> None:
    for planted in ("topics/utils.py", "ledger/core/x.py", "tests/helpers.py", "topics/base.py"):
        assert 1 == len(homeless_names(PurePosixPath(planted))), planted
    assert [] == homeless_names(PurePosixPath("ledger/engine/base.py"))
