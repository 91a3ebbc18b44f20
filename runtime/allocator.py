"""Allocator: memory that was freed goes back to the operating system.

glibc keeps what is freed: a free block below one that is in use stays with the process, and buffers
of a megabyte are not mapped one by one any more once the first of them was freed (its threshold
grows up to 32 MiB). After a burst of large responses that is hundreds of megabytes for ever.
`malloc_trim` gives back every free page of every arena. The alternatives cost all the time: a fixed
M_MMAP_THRESHOLD maps and zeroes each large buffer anew, fewer arenas let threads wait for another.

Rule: to be called rarely, and not on the event loop: it takes time for each free page, and its
locks.
Must not know: what the memory was for.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def release_free_memory() -> bool:
    """Give free memory back; return whether there was any, False too where glibc is not there."""
    trim = _trim()
    return trim is not None and bool(trim(0))


@cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim
