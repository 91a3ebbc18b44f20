"""Deciding modules (`_state`, `_plan`, `_pick`) reach no clock, I/O or shell, nor do theirs."""

import ast
from collections.abc import Callable
from functools import cache
from pathlib import PurePosixPath

from tests.tidy.sources import (
    PACKAGES,
    ROOT,
    expect_none,
    import_statements,
    imported_modules,
    python_files,
    read,
)

IMPURE = {
    "asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "pathlib", "random",
    "rocksdict", "runtime", "secrets", "select", "selectors", "signal", "socket", "subprocess",
    "tempfile", "threading", "time", "uvloop",
}  # fmt: skip
PURE = {"runtime.error_table.ErrorTable"}
"""What is pure in the impure packages; its own imports are checked, too."""

Lookup = Callable[[str], str | None]


@cache
def module_text(module: str) -> str | None:
    """Return the text of one of our modules, None when there is no such module."""
    path = PurePosixPath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if (ROOT / candidate).is_file():
            return read(candidate)
    return None


def home_of(name: str, lookup: Lookup) -> str | None:
    """Return our module that defines `name` (a module, or module.attribute), through re-exports."""
    if lookup(name) is not None:
        return name
    module, _, attribute = name.rpartition(".")
    text = lookup(module) if module else None
    if text is None:
        return None
    for node in import_statements(text):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == attribute:
                    return home_of(f"{node.module}.{alias.name}", lookup) or module
    return module


def impure_imports(path: PurePosixPath, text: str, lookup: Lookup = module_text) -> list[str]:
    """Find what a deciding module must not import, directly or through our own modules."""
    if not path.stem.endswith(("_state", "_plan", "_pick")):
        return []
    found: list[str] = []
    seen: set[str] = set()
    pending = [(path.stem, text)]
    while pending:
        importer, source = pending.pop()
        for name in sorted(imported_modules(source)):
            if name.partition(".")[0] in IMPURE and name not in PURE:
                found.append(f"imports {name}" + f" (through {importer})" * (source is not text))
                continue
            home = home_of(name, lookup)
            if home is not None and home not in seen:
                seen.add(home)
                pending.append((home, lookup(home) or ""))
    return found


def test_deciding_modules_are_pure() -> None:
    found = [f"{p}: {f}" for p, text in python_files(*PACKAGES) for f in impure_imports(p, text)]
    expect_none(found)


def test_planted_import_of_a_clock_is_found() -> None:
    planted = PurePosixPath("ledger/cursor_state.py")
    assert ["imports time"] == impure_imports(planted, "import time\n")
    assert ["imports asyncio.sleep"] == impure_imports(planted, "from asyncio import sleep\n")
    assert ["imports runtime.clock"] == impure_imports(planted, "import runtime.clock\n")


def test_planted_import_through_another_module_is_found() -> None:
    """A state may use plain neighbours, but not one that brings a shell along."""
    tree = {
        "part": "from part.shell import Shell\n",
        "part.shell": "import socket\n",
        "part.value": "",
    }
    planted = PurePosixPath("part/fetch_plan.py")
    assert [] == impure_imports(planted, "from part.value import Value\n", tree.get)
    assert ["imports socket (through part.shell)"] == impure_imports(
        planted, "from part import Shell\n", tree.get
    )


def test_other_modules_may_do_as_they_need() -> None:
    assert [] == impure_imports(PurePosixPath("ledger/commits/committer.py"), "import time\n")
