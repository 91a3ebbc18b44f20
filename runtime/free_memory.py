"""Free memory: returns what was freed to the operating system, in a thread, now and then.

Two allocators keep what is freed.

CPython's has arenas of 1 MiB, and returns one only when no object is left in it. After a burst of
small objects the few that live on keep most arenas. Some of these belong to the interpreter: its
free lists, and its cache of 4,096 looked-up attributes, which keeps the names that C extensions
make for each attribute lookup. `release_object_memory` drops them.

glibc keeps what is freed: a free block below one that is in use stays with the process, and so do,
in a server, up to 16 MiB at the end of each arena (`keep_freed_buffers`). After a burst of large
responses the process keeps hundreds of megabytes for good. `malloc_trim` returns every free page of
every arena. The alternatives cost time on every call: a low M_MMAP_THRESHOLD maps and zeroes each
large buffer anew, and with fewer arenas threads wait for each other.

Rule: memory is given back at most once in a period, however often it is requested; requests in
between are served together at the end of the period.
Must not know: what the memory was for.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor

PERIOD_MS = 30_000
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_UNIT = NamedUnit("task", "give memory back")


def keep_freed_buffers() -> bool:
    """Let glibc keep up to 16 MiB that was freed at the end of each arena; before threads start.

    A server reads and writes buffers of a megabyte all the time. Each would get new pages, which
    the kernel clears and maps one by one, and lose them again, for which it interrupts every core
    that runs a thread of the process.

    Returns:
        Whether it does; False without glibc.
    """
    set_option = _of_glibc("mallopt")
    if set_option is None:
        return False
    set_option.argtypes, set_option.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    options = {_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 16 << 20}
    return all(set_option(option, size) for option, size in options.items())


def release_free_memory() -> bool:
    """Return free memory to the operating system; not for the event loop, it holds malloc's locks.

    Returns:
        Whether any page was returned; False without glibc.
    """
    trim = _trim()
    return trim is not None and bool(trim(0))


def release_object_memory() -> None:
    """Return the memory of freed objects to the operating system.

    It holds the interpreter's lock while the garbage collector visits all objects.
    """
    gc.collect()  # the only call that empties the free lists
    clear_caches = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
    clear_caches()
    release_free_memory()


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
        self._clock = clock
        self._supervisor = supervisor
        self._give_back = give_back
        self._pool = BlockingPool(threads=1)
        self._begun_ms = -PERIOD_MS
        self._waiting: asyncio.Task[None] | None = None

    def give_back_soon(self) -> None:
        """Give memory back: now, or when a period has passed since the last time."""
        if self._waiting is None:
            work = self._give_back_in_time()
            self._waiting = self._supervisor.spawn(work, "give memory back", unit=_UNIT)

    async def _give_back_in_time(self) -> None:
        await self._clock.sleep(self._begun_ms + PERIOD_MS - self._clock.monotonic_ms())
        self._begun_ms = self._clock.monotonic_ms()
        self._waiting = None
        await self._pool.run(self._give_back)

    def close(self) -> None:
        """Stop waiting, and the thread."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._pool.close()


@cache
def _trim() -> Callable[[int], int] | None:
    trim = _of_glibc("malloc_trim")
    if trim is None:
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda kept_bytes: int(trim(kept_bytes))


def _of_glibc(name: str) -> Any:
    """Return a function of it; None without it."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
