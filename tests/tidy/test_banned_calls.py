"""Time, tasks, threads and randomness come from runtime/; only kledger/cli prints."""

import ast
import re
from functools import cache
from pathlib import PurePosixPath

from tests.tidy.sources import PACKAGES, expect_none, imported_names, nodes_of, violations

BANNED = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter",
    "time.perf_counter_ns", "time.sleep", "datetime.datetime.now", "datetime.datetime.utcnow",
    "datetime.datetime.today", "datetime.date.today", "asyncio.sleep", "asyncio.create_task",
    "asyncio.ensure_future", "asyncio.to_thread", "asyncio.wait_for", "asyncio.timeout",
    "asyncio.timeout_at", "asyncio.TaskGroup", "os.urandom", "os.getrandom", "uuid.uuid1",
    "uuid.uuid4",
}  # fmt: skip
BANNED_MODULES = {"random", "secrets"}
SLEEP = re.compile(
    r"\b(asyncio|time)\.sleep\((?!0\))|\bimport\b.*\bsleep\b|\bimport (asyncio|time) as\b"
)
BANNED_METHODS = {"create_task", "run_in_executor", "call_later", "ensure_future"}


def dotted(node: ast.expr) -> str | None:
    """Return `a.b.c` for names and attributes of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)) is not None:
        return f"{owner}.{node.attr}"
    return None


@cache
def named_calls(text: str) -> list[tuple[ast.Call, str]]:
    """Return every call and its full name, imports resolved."""
    bound = imported_names(text)
    found = []
    for node in nodes_of(text):
        if isinstance(node, ast.Call) and (name := dotted(node.func)) is not None:
            first, dot, rest = name.partition(".")
            found.append((node, bound.get(first, first) + dot + rest))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.append((node, f"().{node.func.attr}"))
    return found


def banned_calls(path: PurePosixPath, text: str) -> list[str]:
    """Find calls that only runtime/ or the command line may make."""
    if path.parts[0] == "runtime":
        return []
    may_print = path.parts[:2] == ("kledger", "cli")
    found = []
    for call, name in named_calls(text):
        owner, _, method = name.rpartition(".")
        if (
            name in BANNED
            or name.partition(".")[0] in BANNED_MODULES
            or (owner and method in BANNED_METHODS)
            or (name == "print" and not may_print)
        ):
            found.append(f"line {call.lineno} calls {name}")
    return found


def sleeps_in_tests(_path: PurePosixPath, text: str) -> list[str]:
    """Find sleeping; `asyncio.sleep(0)` is a tick of the loop and stays allowed."""
    if not SLEEP.search(text):
        return []  # few files name it, and parsing all tests takes seconds
    return [
        f"line {call.lineno} calls {name}"
        for call, name in named_calls(text)
        if name in {"time.sleep", "asyncio.sleep"} and [ast.unparse(a) for a in call.args] != ["0"]
    ]


def test_rooms_make_no_banned_call() -> None:
    expect_none(violations(banned_calls, *PACKAGES))


def test_tests_do_not_sleep() -> None:
    expect_none(violations(sleeps_in_tests, "tests"))


def test_planted_calls_are_found() -> None:
    planted = PurePosixPath("topics/x.py")
    for source, name in (
        ("import time\ntime.time()", "time.time"),
        ("from time import monotonic_ns as m\nm()", "time.monotonic_ns"),
        ("import asyncio\nasyncio.sleep(1)", "asyncio.sleep"),
        ("import asyncio\nloop = 1\nasyncio.get_running_loop().create_task(1)", "().create_task"),
        ("loop.run_in_executor(None, f)", "loop.run_in_executor"),
        ("import random\nrandom.random()", "random.random"),
        ("from uuid import uuid4\nuuid4()", "uuid.uuid4"),
        ("import os\nos.urandom(4)", "os.urandom"),
        ("print(1)", "print"),
    ):
        assert [name] == [found.rpartition(" ")[2] for found in banned_calls(planted, source)]


def test_calls_in_the_right_module_are_allowed() -> None:
    assert [] == banned_calls(PurePosixPath("runtime/clock.py"), "import time\ntime.time()")
    assert [] == banned_calls(PurePosixPath("kledger/cli/topic.py"), "print(1)")
    assert [] == banned_calls(PurePosixPath("topics/x.py"), "clock.sleep(1); timers.call_at(1, f)")


def test_planted_sleep_in_a_test_is_found() -> None:
    planted = PurePosixPath("tests/test_x.py")
    assert ["line 2 calls asyncio.sleep"] == sleeps_in_tests(
        planted, "import asyncio\nasyncio.sleep(0.1)"
    )
    assert [] == sleeps_in_tests(planted, "import asyncio\nasyncio.sleep(0)")
