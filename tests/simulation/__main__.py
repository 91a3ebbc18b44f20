"""Command line of the simulation: many seeds, or one with its trace.

Rule: a failure shows its seed, step, error, the end of its trace and how to replay it; the exit
status is 1 if there was one.
Must not know: how a run works.
"""

import argparse
import os
import sys

from tests.simulation.cluster_run import ClusterRun
from tests.simulation.coordinators.run import CoordinatorRun
from tests.simulation.named_topics.run import NamedTopicRun
from tests.simulation.nodes.run import NodeRun
from tests.simulation.peers.run import PeerRun
from tests.simulation.run import Failure, Run, simulation
from tests.simulation.seeds import MakeRun, run_seeds


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print its trace")
    parser.add_argument("--coordinators", action="store_true", help="run coordinators, not ledgers")
    parser.add_argument("--named-topics", action="store_true", help="run named topics")
    parser.add_argument("--cluster", action="store_true", help="run ledgers without a disk")
    parser.add_argument("--peers", action="store_true", help="run transactions over two brokers")
    parser.add_argument("--nodes", action="store_true", help="run servers that divide nodes")
    options = parser.parse_args()
    make: MakeRun = Run
    if options.coordinators:
        make = CoordinatorRun
    elif options.named_topics:
        make = NamedTopicRun
    elif options.cluster:
        make = ClusterRun
    elif options.peers:
        make = PeerRun
    elif options.nodes:
        make = NodeRun
    if options.seed is not None:
        return replay(options.seed, make, with_trace=options.trace)
    failures = run_seeds(
        range(options.first, options.first + options.seeds),
        processes=options.processes,
        make=make,
    )
    for failure in failures:
        print(failure, end="\n\n")
    print(f"{options.seeds} seeds from {options.first} on: {'broken' if failures else 'all hold'}")
    return 1 if failures else 0


def replay(seed: int, make: MakeRun, *, with_trace: bool) -> int:
    """Run one seed in this process."""
    with simulation():
        run = make(seed)
        failure: Failure | None = run.go()
    if with_trace:
        print("\n".join(run.trace))
    print(failure or f"seed {seed} holds")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
