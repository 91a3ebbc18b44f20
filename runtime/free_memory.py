"""Free memory: gives what was freed back to the operating system, in a thread, now and then.

Rule: at most once in a period, whoever asks and however often; what is asked for in between is left
out, as the next burst asks again.
Must not know: what the memory was for.
"""

from collections.abc import Callable

from kledger.runtime.allocator import release_free_memory
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor

PERIOD_MS = 30_000


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
        """Give it back, unless that was done lately."""
        now_ms = self._now_ms()
        if now_ms - self._given_back_ms >= PERIOD_MS:
            self._given_back_ms = now_ms
            work = self._pool.run(self._give_back)
            self._supervisor.spawn(
                work, "give memory back", unit=NamedUnit("task", "give memory back")
            )

    def close(self) -> None:
        """The server has stopped."""
        self._pool.close()
