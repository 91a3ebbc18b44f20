"""Test tools for users of this package, the same that its own tests use.

Rule: there are no mocks; a fake passes the contract tests of the real class.
Must not know: test frameworks.
"""

from kledger.ledger.engine import faulty
from kledger.ledger.engine.faulty import OPERATIONS, Hold
from kledger.ledger.offload.memory_tier import MemoryCopy, MemoryTier, MemoryTiers, TierHold
from kledger.ledger.store import abandon_engine
from kledger.runtime.clock import Clock
from kledger.runtime.manual_clock import ManualClock

__all__ = [
    "OPERATIONS",
    "ClockPace",
    "FaultyEngine",
    "Hold",
    "ManualClock",
    "MemoryCopy",
    "MemoryTier",
    "MemoryTiers",
    "TierHold",
]


class FaultyEngine(faulty.FaultInjectingEngine):
    """The usual engine for a path (None: memory), with faults where a test wants them."""

    def _end_owner(self) -> None:
        """Fence the store on top: it can neither finish nor begin a write."""
        abandon_engine(self)


class ClockPace:
    """A pace of reclaiming space that follows a clock: it sleeps one period before each chunk.

    `LedgerStore.open(..., clock=clock, start_pace=partial(ClockPace, clock))`
    """

    def __init__(self, clock: Clock, period_s: float) -> None:
        self._clock = clock
        self._period_ms = max(1, round(1000 * period_s))

    async def acquire(self) -> None:
        """Return when the next chunk may begin."""
        await self._clock.sleep(self._period_ms)
