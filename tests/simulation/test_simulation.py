"""The ledger in a simulator: some seeds with every check, thousands by `make test-all`.

A seed that fails here is replayed by `python -m tests.simulation --seed N --trace`.
"""

import os

import pytest

from tests.simulation.cluster_run import ClusterRun
from tests.simulation.run import Run
from tests.simulation.seeds import MakeRun, run_seeds

SEEDS = 60
ALL_SEEDS = 20_000
CLUSTER_SEEDS = 2
ALL_CLUSTER_SEEDS = 2_000


def hold(seeds: range, make: MakeRun = Run) -> None:
    failures = run_seeds(seeds, processes=os.cpu_count() or 1, make=make)
    assert not failures, "\n\n".join(map(str, failures))


def test_the_ledger_holds() -> None:
    hold(range(SEEDS))


@pytest.mark.slow
def test_the_ledger_holds_for_many_seeds() -> None:
    hold(range(SEEDS, ALL_SEEDS))


def test_the_ledger_holds_without_a_disk() -> None:
    hold(range(CLUSTER_SEEDS), ClusterRun)


@pytest.mark.slow
def test_the_ledger_holds_without_a_disk_for_many_seeds() -> None:
    hold(range(CLUSTER_SEEDS, ALL_CLUSTER_SEEDS), ClusterRun)
