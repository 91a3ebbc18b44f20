"""Store threads: the threads and processes that do the blocking work of a store.

Rule: a store gets its threads from here and starts none itself, so that a simulation can run the
same work in one thread and one order.
Must not know: what the work is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kledger.ledger.commits.committer import CommitThread, StartCommits
from kledger.runtime.blocking import BlockingPool, BlockingRunner
from kledger.runtime.compute_process import ComputeProcesses

COMPUTE_THREADS_MAX = 2
"""Long computations at a time: each may use 128 MiB, and takes time from the event loop."""
LOOP_COST_PER_TICK_MAX = 4096
"""Bytes of records that the event loop decodes in one tick. The worst ones, headers of two bytes,
take 0.2 to 0.4 us a byte, so a tick takes about a millisecond; usual records take a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreThreads:
    """The threads of one store: a pool for blocking calls, one for computing, a commit thread.

    `compute_processes` make the longest calls for the threads that compute; None: the threads do.
    """

    pool: Callable[[], BlockingRunner] = BlockingPool
    compute_pool: Callable[[], BlockingRunner] = lambda: BlockingPool(COMPUTE_THREADS_MAX)
    compute_processes: Callable[[], ComputeProcesses | None] = ComputeProcesses.if_possible
    commits: StartCommits = CommitThread
