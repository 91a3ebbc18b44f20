"""Seeds: many runs, in one process per CPU.

Rule: runs are independent, so seeds can be distributed in any way; failures name their seed.
Must not know: what a run does.
"""

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Protocol

from tests.simulation.run import Failure, Run, simulation

CHUNK = 50
FAILURES_MAX = 5
"""Limit of reported failures; more add nothing."""


class SeedRun(Protocol):
    """One seed."""

    @property
    def trace(self) -> list[str]:
        """Return what happened, one line each."""
        ...

    def go(self) -> Failure | None:
        """Run it; return the failure, if there is one."""
        ...


class MakeRun(Protocol):
    """Makes the run of a seed; a class, so that it can be sent to another process."""

    def __call__(self, seed: int, /) -> SeedRun:
        """Return it."""
        ...


def run_seeds(seeds: Sequence[int], *, processes: int, make: MakeRun = Run) -> list[Failure]:
    """Run all seeds; return the failures, at most FAILURES_MAX."""
    run = partial(run_chunk, make=make)
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if processes == 1:
        return list(islice((failure for each in chunks for failure in run(each)), FAILURES_MAX))
    # A new process, not a fork: this one may have threads, and measure coverage.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        failures: Iterator[Failure] = (each for chunk in pool.map(run, chunks) for each in chunk)
        found = list(islice(failures, FAILURES_MAX))
        pool.shutdown(cancel_futures=True)
    return found


def run_chunk(seeds: Sequence[int], make: MakeRun = Run) -> list[Failure]:
    """Run some seeds in this process."""
    with simulation():
        return [failure for seed in seeds if (failure := run_seed(seed, make)) is not None]


def run_seed(seed: int, make: MakeRun = Run) -> Failure | None:
    """Run one seed, and clean up."""
    failure = make(seed).go()
    gc.collect(1)
    return failure
