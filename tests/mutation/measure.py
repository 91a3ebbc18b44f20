"""Mutation testing of one module: each mutant is one small mistake, and a test should fail of it.

Rule: mutmut works in a copy of the tree, never in the checkout; the same tree, module and tests
give the same figures. Must not know: which modules are worth it (modules.py does).
Why mutmut: docs/decisions/0020-mutmut.md.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LEFT_BEHIND = shutil.ignore_patterns(
    ".*", "__pycache__", "artifacts", "build", "demo-output", "dist", "kledger-data", "mutants"
)
"""What a copy of the tree does without: the environment, caches, and what programs leave."""

TIME_LIMIT_FACTOR = 15
"""A mutant may take this many times what its tests take without a mistake."""
TIME_LIMIT_EXTRA_S = 2
"""What is added to the tests' time before it is multiplied: a mutant has 30 s at least."""

MUTANTS_MAX = 150
"""How many mutants of a module are tested, and some more in one of more functions."""
SEED = 20
"""What the draw depends on, so that two runs draw the same."""

SHOW = """
import sys
from mutmut.__main__ import show
for name in sys.argv[1:]:
    show.callback(name)
    print("\\f")
"""
"""What `mutmut show` does, for many mutants at once."""

UNTESTED = "not checked"
CAUGHT = ("killed", "segfault", "suspicious", "timeout")


class MeasurementFailed(Exception):
    """The tests fail without a mistake already, or mutmut itself does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the tests said to every mutant of one module."""

    module: str
    statuses: Mapping[str, str]
    """By the mutant's name: killed, timeout, survived, no tests (nothing runs its function)."""
    changes: Mapping[str, str]
    """What a mutant that no test caught changes, as a diff; empty unless asked for."""

    @property
    def caught(self) -> frozenset[str]:
        """The mutants that made a test fail, or hang."""
        return frozenset(name for name, status in self.statuses.items() if status in CAUGHT)

    def count(self, *statuses: str) -> int:
        """Count the mutants of these statuses."""
        return sum(status in statuses for status in self.statuses.values())


def measure(
    root: Path,
    module: str,
    tests: Sequence[str],
    *,
    processes: int = 1,
    mutants_max: int = MUTANTS_MAX,
    shows_changes: bool = False,
) -> Measured:
    """Mutate a module everywhere and run the tests on its mutants.

    Args:
        root: the tree; nothing is written to it.
        module: the path of the module's file, from the root.
        tests: paths of test files or folders, from the root.
        processes: how many mutants are tested at a time.
        mutants_max: how many are tested: the first of each function, and some of the others.
        shows_changes: whether to ask for the diff of each mutant that no test caught.

    Raises:
        MeasurementFailed: with what mutmut printed.
    """
    with copied(root) as copy:
        configure(copy, module, tests)
        run = ("run", "--max-children", str(processes))
        mutmut(copy, *run, "*__mutmut_1")
        statuses = parse_results(mutmut(copy, "results", "--all", "true"))
        if drawn := draw(statuses, mutants_max):
            mutmut(copy, *run, *drawn)
            statuses = parse_results(mutmut(copy, "results", "--all", "true"))
        statuses = {name: status for name, status in statuses.items() if status != UNTESTED}
        silent = [name for name, status in statuses.items() if status not in CAUGHT]
        changes = show(copy, silent) if shows_changes and silent else {}
    return Measured(module=module, statuses=statuses, changes=changes)


def draw(statuses: Mapping[str, str], mutants_max: int) -> list[str]:
    """Draw as many of the mutants that were not tested as there is room for."""
    untested = [name for name, status in statuses.items() if status == UNTESTED]
    room = max(0, mutants_max - (len(statuses) - len(untested)))
    return untested if len(untested) <= room else random.Random(SEED).sample(untested, room)


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """Copy the tree for as long as it is needed; links become what they point to."""
    with tempfile.TemporaryDirectory(prefix="kledger-mutants-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=LEFT_BEHIND)
        yield copy


def configure(copy: Path, module: str, tests: Sequence[str]) -> None:
    """Tell mutmut what to mutate and to run.

    Each mutant gets a process forked from one that has imported everything and run nothing: what
    has started threads, as RocksDB does, does not survive a fork.
    """
    tops = sorted(path.name for path in copy.iterdir())
    (copy / "setup.cfg").write_text(
        "\n".join(
            [
                "[mutmut]",
                "process_isolation = forkserver",
                f"timeout_multiplier = {TIME_LIMIT_FACTOR}",
                f"timeout_constant = {TIME_LIMIT_EXTRA_S}",
                *listed("source_paths", [module]),
                *listed("also_copy", tops),
                *listed("pytest_add_cli_args_test_selection", tests),
            ]
        ),
        "utf-8",
    )


def listed(key: str, values: Sequence[str]) -> list[str]:
    """Return the lines of a setting that is a list."""
    return [f"{key} =", *(f"    {value}" for value in values)]


def show(copy: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the diffs of mutants, all from one process."""
    texts = python(copy, "-c", SHOW, *names).split("\f")
    return dict(zip(names, (text.strip() for text in texts), strict=False))


def mutmut(copy: Path, *arguments: str) -> str:
    """Run mutmut in the copy and return what it prints."""
    return python(copy, "-m", "mutmut", *arguments)


def python(copy: Path, *arguments: str) -> str:
    """Run Python in the copy and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONHASHSEED": "0", "HYPOTHESIS_PROFILE": "repeatable"},
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode:
        raise MeasurementFailed(f"{arguments[:3]}: {done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def parse_results(text: str) -> dict[str, str]:
    """Return the status of every mutant from lines such as `    topics.x.f__mutmut_1: killed`."""
    pairs = (line.strip().partition(": ") for line in text.splitlines())
    return {name: status for name, colon, status in pairs if colon and "__mutmut_" in name}
