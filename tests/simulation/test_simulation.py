"""The ledger in a simulator: some seeds with every check, thousands by `make test-all`.

A seed that fails here is replayed by `python -m tests.simulation --seed N --trace`.
"""

import os

import pytest

from tests.simulation.seeds import run_seeds

SEEDS = 60
ALL_SEEDS = 20_000


def hold(seeds: range) -> None:
    failures = run_seeds(seeds, processes=os.cpu_count() or 1)
    assert not failures, "\n\n".join(map(str, failures))


def test_the_ledger_holds() -> None:
    hold(range(SEEDS))


@pytest.mark.slow
def test_the_ledger_holds_for_many_seeds() -> None:
    hold(range(SEEDS, ALL_SEEDS))
