"""The command `python -m benchmarks`: run cases, keep what was measured, write the page."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import cases, report, results
from benchmarks.chart import ratio_chart
from benchmarks.conditions import conditions
from benchmarks.profiles import profile_all
from benchmarks.run import ROUNDS, run_cases, say
from benchmarks.targets import judge
from benchmarks.testbed import Testbed
from compat_tests import peers

RESULTS = Path(__file__).resolve().parent / "results"
PUBLISHED = peers.ROOT / "docs" / "benchmarks.json"
"""What the page shows; a run of a part replaces its cases."""
PAGE = peers.ROOT / "docs" / "BENCHMARKS.md"
CHART = peers.ROOT / "docs" / "benchmarks.svg"


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure kledger and Apache Kafka side by side, about 25 minutes for all:"
        " behind --minutes, what is left is measured once instead of three times.",
    )
    parser.add_argument(
        "cases", nargs="*", help="produce-1k, produce-1k-os, 'consume-*'; none: all"
    )
    parser.add_argument("--quick", action="store_true", help="one round of a quarter of the work")
    parser.add_argument(
        "--share", type=float, default=cases.QUICK_SHARE, help="of the work with --quick: 0.25"
    )
    parser.add_argument("--rounds", type=int, default=None, help=f"default {ROUNDS}")
    parser.add_argument("--list", action="store_true", help="only say which cases there are")
    parser.add_argument("--profile", action="store_true", help="profile kledger after a part, too")
    parser.add_argument("--minutes", type=float, default=20, help="default 20")
    parser.add_argument("--write", action="store_true", help="write the page after a part, too")
    parser.add_argument("--data", type=Path, default=None, help="where the servers keep data")
    return parser.parse_args()


def main() -> int:
    """Run; everything started here has ended when this returns, however it returns."""
    arguments = parse_arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        chosen = cases.choose(arguments.cases)
        peers.fetch()
    except (ValueError, peers.PeerMissing) as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 2
    if arguments.list:
        for case in chosen:
            print(f"{case.name:24} {', '.join(case.subjects)}")
        return 0
    if arguments.quick:
        chosen = [cases.quick(case, arguments.share) for case in chosen]
    rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    found, status = results.Results(), 0
    try:
        measure(chosen, found, rounds=rounds, arguments=arguments)
    except KeyboardInterrupt:
        say("interrupted; what was measured so far is kept")
        status = 128 + signal.SIGINT
    keep(found, is_page_wanted=arguments.write or not (arguments.cases or arguments.quick))
    return status or (1 if found.failures else 0)


def measure(
    chosen: list[cases.Case], found: results.Results, *, rounds: int, arguments: argparse.Namespace
) -> None:
    """Run the cases and the profiles on servers of this run."""
    with tempfile.TemporaryDirectory(prefix="kledger-bench-", dir=arguments.data) as name:
        folder = Path(name)
        share = arguments.share if arguments.quick else 1.0
        found.conditions = conditions(folder, rounds=rounds, share=share)
        with Testbed(folder) as testbed:
            run_cases(chosen, testbed, found, rounds=rounds, minutes=arguments.minutes)
            if arguments.profile or not (arguments.cases or arguments.quick):
                say("profiles")
                found.profiles = profile_all(testbed, folder)


def keep(found: results.Results, *, is_page_wanted: bool) -> None:
    """Write the results; with the page, put them in place of what it shows of their cases."""
    if not found.samples:
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / ".gitignore").write_text("*\n")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    (RESULTS / f"{stamp}.json").write_text(found.to_json())
    if is_page_wanted:
        found = results.merged(results.from_json(PUBLISHED.read_text()), found)
        PUBLISHED.write_text(found.to_json() + "\n")
        PAGE.write_text(report.render(found))
        CHART.write_text(ratio_chart(judge(found)))
    print(report.render(found))


if __name__ == "__main__":
    sys.exit(main())
