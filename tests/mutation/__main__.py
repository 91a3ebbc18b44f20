"""Measure what the tests of a module are worth: `python -m tests.mutation MODULE`.

Without a module all of modules.py are measured. `--tests` names other tests than those listed
there, `--own` runs the module's own test file only; `--survivors` prints the survivors;
`--most 1000` takes every mutant.
"""

import argparse
import os
import sys
from pathlib import Path

from tests.mutation.measure import MUTANTS_MAX, Measured, measure
from tests.mutation.modules import MODULES, chosen_tests, module_path

ROOT = Path(__file__).parents[2]
HEADER = """\
| module | mutants | caught | % | timeouts | survived | not reached |
|---|--:|--:|--:|--:|--:|--:|"""


def row(measured: Measured) -> str:
    """Return a line of the table; a timeout is caught, and counted once more in its own column."""
    mutants, caught = len(measured.statuses), len(measured.caught)
    cells = (
        measured.module,
        mutants,
        caught,
        round(100 * caught / mutants) if mutants else "-",
        measured.count("timeout"),
        measured.count("survived"),
        measured.count("no tests"),
    )
    return f"| {' | '.join(map(str, cells))} |"


def main(arguments: list[str]) -> None:
    """Measure one module after the other and print a row for each as it is done."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(MODULES), metavar="MODULE")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="instead of those of the list")
    parser.add_argument("--own", action="store_true", help="the module's own test file only")
    parser.add_argument("--survivors", action="store_true", help="print the surviving mutants")
    parser.add_argument("--caught", action="store_true", help="print the mutants that were caught")
    parser.add_argument("--most", type=int, default=MUTANTS_MAX, help="how many mutants of each")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    print(HEADER, flush=True)
    for module in asked.modules:
        tests = asked.tests or chosen_tests(ROOT, module)[: 1 if asked.own else None]
        measured = measure(
            ROOT,
            module_path(ROOT, module),
            tests,
            processes=asked.processes,
            mutants_max=asked.most,
            shows_changes=asked.survivors,
        )
        print(row(measured), flush=True)
        for name in sorted(measured.caught) if asked.caught else ():
            print(f"caught {name}")
        for name, change in measured.changes.items():
            print(f"{measured.statuses[name]} {name}\n{change}")


if __name__ == "__main__":
    main(sys.argv[1:])
