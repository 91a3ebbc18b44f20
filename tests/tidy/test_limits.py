"""Nothing grows too long: lines, functions, handlers, files."""

import ast
from pathlib import PurePosixPath

from tests.tidy.sources import expect_none, nodes_of, violations

LINE_LENGTH_MAX = 100
FUNCTION_LINES_MAX = 70
HANDLER_LINES_MAX = 200
# One noun per file; a file is not split only because of its length.
FILE_LINES_MAX = 900


def too_long(path: PurePosixPath, text: str) -> list[str]:
    """Find what exceeds a limit."""
    lines = text.splitlines()
    is_handler = path.parts[:2] == ("gateway", "handlers") and path.stem.startswith("k")
    lines_max = HANDLER_LINES_MAX if is_handler else FILE_LINES_MAX
    found = []
    if len(lines) > lines_max:
        found.append(f"{len(lines)} lines, at most {lines_max}")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LENGTH_MAX:
            found.append(f"line {number} has {len(line)} characters, at most {LINE_LENGTH_MAX}")
    for node in nodes_of(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                found.append(f"{node.name} has {size} lines, at most {FUNCTION_LINES_MAX}")
    return found


def test_nothing_is_too_long() -> None:
    expect_none(violations(too_long))


def test_planted_long_line_is_found() -> None:
    planted = f"x = '{'a' * 96}'\n"
    assert ["line 1 has 102 characters, at most 100"] == too_long(PurePosixPath("a.py"), planted)


def test_planted_long_function_is_found() -> None:
    planted = "def f():\n" + "    x = 1\n" * 70
    assert ["f has 71 lines, at most 70"] == too_long(PurePosixPath("a.py"), planted)


def test_planted_long_files_are_found() -> None:
    planted, handler = "x = 1\n" * 201, PurePosixPath("gateway/handlers/k00_produce.py")
    assert ["201 lines, at most 200"] == too_long(handler, planted)
    assert [] == too_long(PurePosixPath("gateway/handlers/__init__.py"), planted)
    assert ["901 lines, at most 900"] == too_long(PurePosixPath("a.py"), "x = 1\n" * 901)
