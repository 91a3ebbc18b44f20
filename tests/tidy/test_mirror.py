"""Every folder of a package with code has its folder below tests/, with tests in it."""

import ast
from pathlib import PurePosixPath

from tests.tidy.sources import PACKAGES, expect_none, nodes_of, parsed, python_files

TESTED_ABOVE = {
    # The schemas are data; one test compares all of them with Kafka's facts and round-trips them.
    PurePosixPath("gateway/wire/messages"): PurePosixPath("tests/gateway/wire"),
}

Files = list[tuple[PurePosixPath, str]]


def has_code(text: str) -> bool:
    """Return whether a function does something; classes of fields, errors and lists do not."""
    return any(
        node.name not in {"__init__", "__str__"}
        and not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for node in nodes_of(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )


def has_tests(path: PurePosixPath, text: str) -> bool:
    """Return whether pytest collects from a file, and there is a test or a machine in it."""
    return path.name.startswith("test_") and any(
        "test" in node.name.lower()
        for node in parsed(text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def untested_folders(files: Files) -> list[str]:
    """Find folders with code that have no tests of their own.

    Args:
        files: paths and texts, of the packages and below tests/.
    """
    tested = {path.parent for path, text in files if has_tests(path, text)}
    with_code = {
        path.parent for path, text in files if path.parts[0] in PACKAGES and has_code(text)
    }
    mirrors = {folder: TESTED_ABOVE.get(folder, "tests" / folder) for folder in with_code}
    return [
        f"{folder}: no tests in {mirror}"
        for folder, mirror in sorted(mirrors.items())
        if mirror not in tested
    ]


def test_every_folder_has_its_tests() -> None:
    expect_none(untested_folders(list(python_files(*PACKAGES, "tests"))))


PLANTED = PurePosixPath("topics/nowhere_to_be_found")
CODE = "def f() -> int:\n    return 1\n"


def test_planted_folder_without_tests_is_found() -> None:
    helper = "tests" / PLANTED / "words.py"
    assert [f"{PLANTED}: no tests in tests/{PLANTED}"] == untested_folders(
        [(PLANTED / "x.py", CODE), (helper, "def test_it() -> None:\n    assert f()\n")]
    )


def test_one_test_is_enough_for_the_modules_of_a_folder() -> None:
    test = "tests" / PLANTED / "test_both.py", "def test_it() -> None:\n    assert f()\n"
    assert [] == untested_folders([(PLANTED / "x.py", CODE), (PLANTED / "y.py", CODE), test])


def test_folders_that_only_declare_need_no_tests() -> None:
    for source in (
        "class A(Exception):\n    '''An error.'''\n",
        "class P(Protocol):\n    def f(self) -> int:\n        '''Say it.'''\n        ...\n",
        "from a import b\n__all__ = ['b']\n",
    ):
        assert [] == untested_folders([(PLANTED / "x.py", source)])
