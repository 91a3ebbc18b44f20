"""SwitchInterval: how long a thread may keep the GIL, shortened while needed.

Rule: the interpreter has only one, so it is shortened only while another thread computes, and
restored afterwards.
Must not know: what computes.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

SHORT_S = 0.001
"""Python's default is 5 ms: the event loop waits so long when it has lost the race for the lock
against a thread that released it for a moment (`BlockingPool.yield_gil`)."""


class SwitchInterval:
    """Counts the blocks that need it short, in any threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._before_s = 0.0

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """Keep it short for the length of a block."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._before_s = sys.getswitchinterval()
                if self._before_s > SHORT_S:
                    sys.setswitchinterval(SHORT_S)
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if not self._count and self._before_s > SHORT_S:
                    sys.setswitchinterval(self._before_s)


SWITCH_INTERVAL = SwitchInterval()
"""The interpreter's."""
