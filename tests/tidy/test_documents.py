"""Documents name what is there: classes, functions, modules and files in backticks exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.tidy.sources import (
    PACKAGES,
    PROGRAMS,
    expect_none,
    nodes_of,
    parsed,
    python_files,
    read,
    tracked_files,
)

GENERATED = {
    "docs/BENCHMARKS.md", "docs/COMPATIBILITY.md", "docs/CONFIGS.md", "docs/SETTINGS.md",
}  # fmt: skip
"""Their programs write them from what is there, and their own tests compare them."""

ELSEWHERE = {
    "FALLOC_FL_WRITE_ZEROES": "of the kernel",
    "KLEDGER_CLUSTER_URL": "a variable of the environment, whose name is made of parts",
    "M_ARENA_MAX": "of the C library",
    "M_MMAP_THRESHOLD": "of the C library",
    "O_DIRECT": "of the kernel",
    "PR_SET_PDEATHSIG": "of the kernel",
    "RWF_DSYNC": "of the kernel",
    "SCHED_BATCH": "of the kernel",
    "SCHED_IDLE": "of the kernel",
    "ProcessPoolExecutor": "an alternative that was not taken",
    "__thread": "a keyword of C",
    "a_b": "a topic",
    "gateway/wire/messages/kNN_name.py": "stands for one module of each API",
    "io_submit": "of the kernel",
    "io_uring": "of the kernel",
    "kledger_compaction_due_partitions": "a metric, whose name is made of parts",
    "kledger_compaction_kept_bytes_total": "a metric, whose name is made of parts",
    "kledger_compaction_last_seconds": "a metric, whose name is made of parts",
    "kledger_compaction_read_bytes_total": "a metric, whose name is made of parts",
    "kledger_compaction_skipped_records_total": "a metric, whose name is made of parts",
    "kledger_compactions_running": "a metric, whose name is made of parts",
    "kledger_entries_read": "a metric, whose name is made of parts",
    "kledger_ledger": "an alternative that was not taken",
    "pg_basebackup": "a program of PostgreSQL",
    "public/default": "the namespace that always exists",
    "set_iterate_lower_bound": "a method of rocksdict",
    "source_pkgs": "a setting of coverage",
    "synchronous_standby_names": "a setting of PostgreSQL",
    "tenant/namespace": "the form of a namespace's name",
    "tenant/namespace/topic": "the form of a topic's name",
}
"""Names that documents use and the tree's Python files do not have, and what they are."""

PATH = re.compile(r"[\w.-]+(/[\w.-]+)+/?")
NAME = re.compile(r"([A-Za-z_][\w.]*)(\(.*\))?")


def quoted(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of everything in backticks, but for blocks of code."""
    without_blocks = re.sub(
        r"```.*?```", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL
    )
    for number, line in enumerate(without_blocks.splitlines(), 1):
        for found in re.findall(r"`([^`]+)`", line):
            yield number, found


def looks_like_code(name: str) -> bool:
    """Tell CamelCase and snake_case from plain words, options and settings of Kafka."""
    return "_" in name or re.match(r"[A-Z]\w*[a-z]", name) is not None


@cache
def known_paths() -> frozenset[str]:
    """Return files and folders, from the root or from any folder on; .py may be left out."""
    known = set()
    for path in tracked_files():
        for end in range(1, len(path.parts) + 1):
            for start in range(end):
                part = PurePosixPath(*path.parts[start:end])
                known |= {str(part), str(part).removesuffix(".py")}
    return frozenset(known)


@cache
def known_names() -> frozenset[str]:
    """Return identifiers and names in strings, such as those of settings, but not in docstrings."""
    known = {path.stem for path in tracked_files()}
    for _, text in python_files(*PACKAGES, *PROGRAMS):
        for node in nodes_of(text):
            known |= identifiers_of(node)
    for _, text in python_files("tests"):
        known |= set(re.findall(r"^ *(?:async )?(?:def|class) (\w+)", text, re.MULTILINE))
    return frozenset(known)


def identifiers_of(node: ast.AST) -> set[str]:
    """Return the names that a node defines or uses."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return {name}
        case ast.keyword(arg=str(name)):
            return {name}
        case ast.alias(name=name, asname=other):
            return {*name.split("."), *([other] if other else [])}
        case ast.Constant(value=str(name)) if NAME.fullmatch(name):
            return set(name.split("."))
        case _:
            return set()


@cache
def class_members() -> dict[str, set[str]]:
    """Return for each class what its body defines, and its bases."""
    members: dict[str, set[str]] = {}
    for _, text in python_files(*PACKAGES, *PROGRAMS):
        for node in parsed(text).body:
            if isinstance(node, ast.ClassDef):
                found = members.setdefault(node.name, set())
                for each in ast.walk(node):
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        found.add(each.name)
                    elif isinstance(each, ast.Name | ast.Attribute) and is_set(each):
                        found |= identifiers_of(each)
                for base in node.bases:
                    found |= identifiers_of(base)
    return members


def is_set(node: ast.Name | ast.Attribute) -> bool:
    """Return whether a node gives a value to its name."""
    return isinstance(node.ctx, ast.Store)


def is_member(owner: str, member: str) -> bool:
    """Return whether a class, or one of its bases, defines a member."""
    names = class_members().get(owner, set())
    return member in names or any(
        is_member(each, member) for each in names & class_members().keys() - {owner}
    )


def unknown_names(text: str) -> list[str]:
    """Find what a document names and the tree does not have."""
    found = []
    for number, quote in quoted(text):
        if quote in ELSEWHERE:
            continue
        name = NAME.fullmatch(quote)
        if PATH.fullmatch(quote):
            # kledger/ledger is a link to ledger.
            if quote.rstrip("/").removeprefix("kledger/") not in known_paths():
                found.append(f"line {number}: there is no file or folder {quote}")
        elif name is not None:
            parts = name[1].split(".")
            found += [
                f"line {number}: nothing is called {part}"
                for part in parts
                if looks_like_code(part) and part not in known_names() | ELSEWHERE.keys()
            ]
            if len(parts) == 2 and parts[0] in class_members() and not is_member(*parts):
                found.append(f"line {number}: {parts[0]} has no {parts[1]}")
    return found


def documents() -> list[PurePosixPath]:
    """Return the documents that people write."""
    return [
        path
        for path in tracked_files()
        if path.suffix == ".md" and path.parts[0] == "docs" and str(path) not in GENERATED
    ]


def test_documents_name_what_is_there() -> None:
    expect_none([f"{path}: {each}" for path in documents() for each in unknown_names(read(path))])


def test_exceptions_are_used_and_are_not_there() -> None:
    text = "".join(read(path) for path in documents())
    assert [] == [name for name in ELSEWHERE if f"`{name}" not in text and f".{name}" not in text]
    assert [] == [name for name in ELSEWHERE if name in known_names() | known_paths()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The `NoSuchThing` reads.", ["line 1: nothing is called NoSuchThing"]),
        ("\n`runtime.no_such_thing()`", ["line 2: nothing is called no_such_thing"]),
        ("`runtime/no_such_thing`", ["line 1: there is no file or folder runtime/no_such_thing"]),
        ("`LedgerStore.receive`", ["line 1: LedgerStore has no receive"]),
        ("`LedgerStore.open(path)`, `net/connection`, `acks=all`, `segment.ms`, `fsync`", []),
        ("```\nNoSuchThing\n```", []),
    ],
)
def test_planted_names_are_found(text: str, found: list[str]) -> None:
    assert found == unknown_names(text)
