"""LogTrimming: storage follows the logical start of channels. A shell.

Rule: only logs that were created for a named topic are trimmed, and only behind what every group
has committed, durably, and what every durable subscription has acknowledged. The logical start is
exact without this; storage goes a while later, by whole ledgers.
Must not know: how a logical start is computed.
"""

import logging
from collections.abc import AsyncIterator, Callable

from kledger.ledger import LedgerError
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from kledger.topics import PartitionLog, TopicsError, UnknownPartition

logger = logging.getLogger(__name__)

TRIM_INTERVAL_MS = 5_000
"""How often storage is given back."""
Starts = Callable[[], AsyncIterator[tuple[PartitionLog, int]]]
_UNIT = NamedUnit("background work", "trimming of named topics, until its next time")


class LogTrimming:
    """The trimming of all named topics of a server."""

    def __init__(self, clock: Clock, supervisor: Supervisor, starts: Starts) -> None:
        """Args: starts: yields the open logs that are trimmed, with their logical starts."""
        self._clock = clock
        self._supervisor = supervisor
        self._starts = starts
        self._is_running = False

    def begin(self) -> None:
        """Trim from now on; may be repeated."""
        if not self._is_running:
            self._is_running = True
            self._supervisor.spawn(self._run(), "trimming of named topics")

    async def trim(self) -> None:
        """Trim every log once."""
        async for log, start in self._starts():
            try:
                offset = min(start, await _acknowledged_offset(log))
                if offset > log.log_start_offset:
                    await log.delete_records(offset)
            except UnknownPartition:
                continue  # it was closed meanwhile, and is trimmed when it is open again
            except (TopicsError, LedgerError) as error:
                logger.warning("channel %s is not trimmed: %s", log.unit_name, error)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(TRIM_INTERVAL_MS)
            with self._supervisor.containment.guarding(_UNIT):
                await self.trim()


async def _acknowledged_offset(log: PartitionLog) -> int:
    """Return the first offset that a durable subscription has not acknowledged."""
    offset = log.high_watermark
    for cursor in log.managed_ledger.cursors.values():
        offset = min(offset, await log.offset_at(cursor.mark_delete_position.successor))
    return offset
