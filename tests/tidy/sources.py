"""The files of the tree, as the tidy checks see them.

Rule: a check is a plain function of a path and a text, so that each can be shown a planted
violation; this module alone knows where the real files are.
"""

import ast
import gc
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

# Folders of the repository, and packages of `kledger`: kledger/ledger is a link to ledger.
PACKAGES = (
    "batches", "delivery", "gateway", "kledger", "ledger", "named_topics", "native",
    "offsets", "runtime", "security", "subscriptions", "topics",
)  # fmt: skip
PROGRAMS = ("benchmarks", "cluster_demo", "compat_tests", "pipelines")
GENERATED = {PurePosixPath("native/proto/kledger_native_pb2.py")}
"""Nobody writes these; tests/native/proto compares them with what their generator makes."""

Check = Callable[[PurePosixPath, str], list[str]]


@cache
def tracked_files() -> tuple[PurePosixPath, ...]:
    """Return what belongs to the project: tracked, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    names = sorted(name for name in listed.split("\0") if name)
    return tuple(PurePosixPath(name) for name in names if (ROOT / name).is_file())


def python_files(*tops: str) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield path and text of the Python files below the given top folders (all without any)."""
    for path in tracked_files():
        if path.suffix == ".py" and path not in GENERATED and (not tops or path.parts[0] in tops):
            yield path, read(path)


def read(path: PurePosixPath) -> str:
    """Return a file's text."""
    return (ROOT / path).read_text("utf-8")


def violations(check: Check, *tops: str) -> list[str]:
    """Apply a check to the real tree."""
    return [f"{path}: {found}" for path, text in python_files(*tops) for found in check(path, text)]


def expect_none(found: list[str]) -> None:
    """Fail with every violation on a line of its own."""
    assert not found, "\n" + "\n".join(found)


@cache
def parsed(text: str) -> ast.Module:
    """Parse once, however many checks ask.

    Trees live until the end: a garbage collector that goes through them again and again would take
    three times as long as parsing.
    """
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a module; walking takes half as long as parsing."""
    return tuple(ast.walk(parsed(text)))


def class_names(text: str) -> list[str]:
    """Return the names of the classes that a module has at its top."""
    return [node.name for node in parsed(text).body if isinstance(node, ast.ClassDef)]


@cache
def import_statements(text: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the statements that import, wherever they are."""
    return tuple(node for node in nodes_of(text) if isinstance(node, ast.Import | ast.ImportFrom))


def imported_names(text: str) -> dict[str, str]:
    """Return what every local name that an import binds stands for, in full."""
    bound: dict[str, str] = {}
    for node in import_statements(text):
        for alias in node.names:
            if isinstance(node, ast.Import):
                local = alias.asname or alias.name.partition(".")[0]
                bound[local] = alias.name if alias.asname else local
            elif node.module:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def in_folder(module: str) -> str:
    """Return a module's name by its folder: `kledger.ledger.store` is in `ledger`."""
    inside = module.removeprefix("kledger.")
    return inside if inside.partition(".")[0] in PACKAGES else module


def imported_modules(text: str) -> set[str]:
    """Return the modules that import statements name, by their folders.

    `from a import b` counts as `a.b`.
    """
    return {in_folder(module) for module in imported_as_written(text)}


def imported_as_written(text: str) -> set[str]:
    """Return the modules that import statements name, as they name them."""
    found = set()
    for node in import_statements(text):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found
