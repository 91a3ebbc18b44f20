"""Seeds: many runs, one after the other, in as many processes as there are processors.

Rule: a run stands alone, so seeds can be shared out in any way; what failed is told by seed.
Must not know: what a run does.
"""

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

from tests.simulation.run import Failure, Run, simulation

CHUNK = 50
FAILURES_MAX = 5
"""So many failures are told; more say nothing new."""


def run_seeds(seeds: Sequence[int], *, processes: int) -> list[Failure]:
    """Run all seeds; return what failed, at most FAILURES_MAX."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if processes == 1:
        return list(
            islice((failure for each in chunks for failure in run_chunk(each)), FAILURES_MAX)
        )
    # A new process, not a copy of this one: that may have threads, and measure coverage.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        failures: Iterator[Failure] = (
            each for told in pool.map(run_chunk, chunks) for each in told
        )
        found = list(islice(failures, FAILURES_MAX))
        pool.shutdown(cancel_futures=True)
    return found


def run_chunk(seeds: Sequence[int]) -> list[Failure]:
    """Run some seeds in this process."""
    with simulation():
        return [failure for seed in seeds if (failure := run_seed(seed)) is not None]


def run_seed(seed: int) -> Failure | None:
    """Run one seed, and tidy up behind it."""
    failure = Run(seed).go()
    gc.collect(1)
    return failure
