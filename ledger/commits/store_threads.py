"""Threads: who does the blocking work of a store.

Rule: a store takes its threads from here and starts none itself, so that a simulation, which has
one thread and one order, can put its own in their place.
Must not know: what the work is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kledger.ledger.commits.committer import CommitThread, StartCommits
from kledger.runtime.blocking import BlockingPool, BlockingRunner

COMPUTE_THREADS_MAX = 2
"""Calls that compute for long, at a time: each may take 128 MiB, and a share of the interpreter."""
LOOP_COST_PER_TICK_MAX = 4096
"""Bytes of records that are looked at on the loop in one tick. Those that cost most, headers of two
bytes, take 0.2 to 0.4 us a byte: so it is about a millisecond, and for usual records a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreThreads:
    """What one store starts: a pool for what may block, one for what computes, a commit thread."""

    pool: Callable[[], BlockingRunner] = BlockingPool
    compute_pool: Callable[[], BlockingRunner] = lambda: BlockingPool(COMPUTE_THREADS_MAX)
    commits: StartCommits = CommitThread
