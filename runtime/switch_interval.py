"""SwitchInterval: how long a thread may keep the interpreter from others, shorter when need be.

Rule: it is the interpreter's only one, so it is shortened only while something computes in another
thread, and is afterwards what it was before.
Must not know: what computes.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

SHORT_S = 0.001
"""Python's own is 5 ms: so long the event loop waits when it has lost the race for the interpreter
against a thread that let go of it for a moment (`BlockingPool.give_way`)."""


class SwitchInterval:
    """Counts those who need it short; they may be in different threads."""

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
