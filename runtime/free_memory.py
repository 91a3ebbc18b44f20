"""Free memory: returns what was freed to the operating system, in a thread, now and then.

glibc keeps what is freed: a free block below one that is in use stays with the process, and buffers
of a megabyte are no longer mapped one by one once the first of them was freed (the threshold grows
up to 32 MiB). After a burst of large responses the process keeps hundreds of megabytes for good.
`malloc_trim` returns every free page of every arena. The alternatives cost time on every call: a
fixed M_MMAP_THRESHOLD maps and zeroes each large buffer anew, and with fewer arenas threads wait
for each other.

Rule: at most one trim in a period, however often it is requested; a request in between is ignored,
because the next burst makes another one.
Must not know: what the memory was for.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache

from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor

PERIOD_MS = 30_000


def release_free_memory() -> bool:
    """Return free memory to the operating system; not for the event loop, it holds malloc's locks.

    Returns:
        Whether any page was returned; False without glibc.
    """
    trim = _trim()
    return trim is not None and bool(trim(0))


class FreeMemory:
    """One for each part of the server that has bursts."""

    def __init__(
        self,
        clock: Clock,
        supervisor: Supervisor,
        *,
        give_back: Callable[[], object] = release_free_memory,
    ) -> None:
        """Args: give_back: returns freed memory to the operating system; may block."""
        self._now_ms = clock.monotonic_ms
        self._supervisor = supervisor
        self._give_back = give_back
        self._pool = BlockingPool(threads=1)
        self._given_back_ms = -PERIOD_MS

    def give_back_soon(self) -> None:
        """Start a trim unless the last one began less than a period ago."""
        now_ms = self._now_ms()
        if now_ms - self._given_back_ms >= PERIOD_MS:
            self._given_back_ms = now_ms
            work = self._pool.run(self._give_back)
            self._supervisor.spawn(
                work, "give memory back", unit=NamedUnit("task", "give memory back")
            )

    def close(self) -> None:
        """Stop the thread."""
        self._pool.close()


@cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim
