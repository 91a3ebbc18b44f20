"""Every module with code has its test at the same place below tests/."""

import ast
from pathlib import PurePosixPath

from tests.tidy.sources import ROOMS, ROOT, expect_none, parsed, python_files

COVERED_ELSEWHERE = {
    # The schemas are data; one test holds all of them against the facts and round trips them.
    "gateway/wire/messages": "tests/gateway/wire/test_messages.py",
    # Runs as a process only: its test starts that process.
    "kledger/__main__.py": "tests/kledger/cli/test_serve.py",
}


def has_code(text: str) -> bool:
    """Tell whether a function does something; classes of fields, errors and lists do not."""
    return any(
        node.name not in {"__init__", "__str__"}
        and not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )


def expected_test(path: PurePosixPath) -> PurePosixPath:
    """Return where the test of a module stands."""
    for covered, test in COVERED_ELSEWHERE.items():
        if path.is_relative_to(covered):
            return PurePosixPath(test)
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return "tests" / path.parent / f"test_{stem}.py"


def untested(path: PurePosixPath, text: str) -> list[str]:
    """Find a module whose test is missing."""
    test = expected_test(path)
    return [] if not has_code(text) or (ROOT / test).is_file() else [f"{path}: no {test}"]


def test_every_module_has_its_test() -> None:
    expect_none([each for path, text in python_files(*ROOMS) for each in untested(path, text)])


def test_planted_module_without_test_is_found() -> None:
    planted = PurePosixPath("topics/nowhere_to_be_found.py")
    assert [f"{planted}: no tests/topics/test_nowhere_to_be_found.py"] == untested(
        planted, "def f() -> int:\n    return 1\n"
    )


def test_modules_that_only_declare_need_no_test() -> None:
    planted = PurePosixPath("topics/nowhere_to_be_found.py")
    for source in (
        "class A(Exception):\n    '''An error.'''\n",
        "class P(Protocol):\n    def f(self) -> int:\n        '''Say it.'''\n        ...\n",
        "from a import b\n__all__ = ['b']\n",
    ):
        assert [] == untested(planted, source)
