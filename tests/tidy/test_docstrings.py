"""Every module says what it is; every public class and function of a package says what it does."""

import ast
import re
from pathlib import PurePosixPath

from tests.tidy.sources import PACKAGES, expect_none, parsed, violations

HEAD = re.compile(r'(#.*\n|\s)*r?"""\s*\S')
"""Comments, and a docstring; parsing all tests for it takes seconds."""


def without_head(_path: PurePosixPath, text: str) -> list[str]:
    """Find a module that does not say what it is."""
    return [] if HEAD.match(text) or not text.strip() else ["no module docstring"]


def undocumented(_path: PurePosixPath, text: str) -> list[str]:
    """Find public classes, functions and methods of public classes that say nothing."""
    found = []
    pending: list[ast.AST] = [parsed(text)]
    while pending:
        for node in ast.iter_child_nodes(pending.pop()):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_"):
                continue
            if ast.get_docstring(node) is None and not is_plain(node):
                found.append(f"line {node.lineno}: {node.name} has no docstring")
            if isinstance(node, ast.ClassDef):
                pending.append(node)
    return found


def is_plain(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether its name explains it: one statement, or a method of a documented interface."""
    return not isinstance(node, ast.ClassDef) and (
        len(node.body) == 1 or any(ast.unparse(each) == "override" for each in node.decorator_list)
    )


def test_every_module_has_a_head() -> None:
    expect_none(violations(without_head))


def test_public_names_are_documented() -> None:
    expect_none(violations(undocumented, *PACKAGES))


def test_planted_silence_is_found() -> None:
    planted = PurePosixPath("topics/x.py")
    assert ["no module docstring"] == without_head(planted, "x = 1\n")
    assert ["line 1: A has no docstring"] == undocumented(planted, "class A:\n    x = 1\n")
    assert ["line 3: f has no docstring"] == undocumented(
        planted, "class A:\n    'An a.'\n    def f(self):\n        x = 1\n        return x\n"
    )
    assert [] == undocumented(planted, "class _A:\n    x = 1\ndef f():\n    return 1\n")
