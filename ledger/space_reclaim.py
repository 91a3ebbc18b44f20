"""Space reclaim: gives the disk back what deleted ledgers took, at a pace that others do not feel.

Rule: it moves piece after piece through the committer's ordinary groups, one at a time, while the
engine finds something worth it; it sleeps until ledgers were dropped, or a checkpoint has moved on.
While others append, only a log that is dead by half is worth it: a copy costs as much as an append.
A failure ends the search until then; nothing has to be undone, as every piece is asked for anew.
After a fault of ours the work begins again from the top, when the next ledgers are dropped; after
several faults in a row it ends, until the store is opened again.
Must not know: files, what is in a piece.

| it waits           | until                                                 |
|--------------------|-------------------------------------------------------|
| nothing to do      | ledgers were dropped, or a checkpoint was made        |
| before it looks    | a moment is over: more may be dropped, or closed      |
| between two pieces | the pace lets the next one begin                      |
| others append      | nobody has for a second, or half of the log is dead   |
| producers pause    | the committer's queue has room again                  |
| a write failed     | as if there were nothing to do                        |
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from asyncio_throttle.throttler import Throttler

from kledger.ledger.commits.committer import Committer, RowsDone, submitted
from kledger.ledger.config import StoreConfig
from kledger.ledger.engine.base import CommitGroup, StorageEngine
from kledger.ledger.errors import LedgerError, from_engine
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

LOOK_DELAY_MS = 1000
"""Who deletes much deletes it in turn: what goes next is not to be moved before it goes."""
IDLE_MS = 1000
"""Nobody appends when nobody has for so long."""
FAULTS_IN_A_ROW_MAX = 10
"""What fails in so many rounds is broken for good."""
BUSY_DEAD_SHARE_MAX = 0.5
"""Of the log, while others append."""
CHUNK_BYTES = 256 * 1024
"""Data in one piece: what a producer's group may have to wait for."""
POLLS_PER_PERIOD = 4
"""A throttler that waits asks for the time again and again: this often at most."""


class SpaceReclaim:
    """The background work of one store; `step` alone does it without pace, one piece per call."""

    def __init__(
        self,
        engine: StorageEngine,
        committer: Committer,
        config: StoreConfig,
        *,
        clock: Clock,
        pool: BlockingRunner,
        supervisor: Supervisor,
    ) -> None:
        """Make one that does nothing yet.

        Args:
            engine: knows what is worth moving.
            committer: of that engine.
            config: how much may be dead, and how fast to go.
            clock: of the pace.
            pool: where the engine looks and reads.
            supervisor: of the task.
        """
        self.moved_bytes = 0
        """Data that was written again so far."""
        self._engine = engine
        self._committer = committer
        self._dead_share_max = config.log_dead_percent_max / 100
        self._bytes_per_second = config.log_rewrite_bytes_per_second
        self._clock = clock
        self._pool = pool
        self._supervisor = supervisor
        self._changed = Signal()
        self._is_closing = False
        self._is_waiting = False
        self._faults_in_a_row = 0
        self._own_ticks = self._ticks_seen = self._busy_until_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work in the background; looks at once, for what a former life has left."""
        if not self._bytes_per_second:
            return
        self._committer.on_space = self._changed.notify
        self._begin()

    def _begin(self, version: int | None = None) -> None:
        """Begin to work; after a fault, when something beyond a version of `_changed` is there."""
        if not (self._is_closing or self._supervisor.is_closed):
            unit = NamedUnit("background work", "reclaiming space", self._restart)
            self._task = self._supervisor.spawn(self._work(version), "ledger space", unit=unit)

    def _restart(self) -> None:
        """Go on after a fault. The pause does not depend on the clock: that may be what fails."""
        self._faults_in_a_row += 1
        if self._faults_in_a_row >= FAULTS_IN_A_ROW_MAX:
            logger.error(
                "space of deleted ledgers is given back no more until the store is opened again: "
                "%d faults in a row",
                self._faults_in_a_row,
            )
            return
        self._begin(self._changed.version)

    async def close(self) -> None:
        """Stop, after the piece that is under way. May be repeated."""
        self._is_closing = True
        if self._task is not None:
            if self._is_waiting:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def step(self, *, dead_share_max: float | None = None) -> int | None:
        """Move the next piece.

        Args:
            dead_share_max: how much of the log may be dead, if not what the settings say.

        Returns:
            The bytes moved; 0 when the search goes on; None when nothing is worth it now.

        Raises:
            StorageFailed, Corrupt: it could not be read or written; nothing has changed.
            Fenced: the store has stopped.
        """
        try:
            share = self._dead_share_max if dead_share_max is None else dead_share_max
            group = await self._pool.run(self._next_moves, share)
        except Exception as error:
            raise from_engine(error) from error
        if group is None:
            self._committer.maybe_checkpoint()
            return None
        if group.is_empty:
            return 0
        await submitted(lambda done: self._submit(group, done))
        moved_bytes = sum(len(data) for _, _, data in group.entries)
        self.moved_bytes += moved_bytes
        return moved_bytes

    # Inside

    def _next_moves(self, share: float) -> CommitGroup | None:
        return self._engine.next_moves(dead_share_max=share, bytes_max=CHUNK_BYTES)

    def _submit(self, group: CommitGroup, done: RowsDone) -> None:
        ticks = self._committer.tick_count
        self._committer.submit_group(group, done)
        self._own_ticks += self._committer.tick_count - ticks

    def _is_idle(self) -> bool:
        """Whether nobody else has submitted anything for a while, as far as was looked."""
        now_ms, ticks = self._clock.monotonic_ms(), self._committer.tick_count - self._own_ticks
        if ticks != self._ticks_seen:
            self._ticks_seen = ticks
            self._busy_until_ms = now_ms + IDLE_MS
        return now_ms >= self._busy_until_ms

    async def _work(self, version: int | None) -> None:
        if version is not None:
            await self._waiting(self._changed.wait_beyond(version))
        wait_for_pace = self._new_pace()
        while not self._is_closing:
            self._is_idle()  # notes what has gone on until now
            await self._waiting(self._clock.sleep(LOOK_DELAY_MS))
            version = self._changed.version
            try:
                await self._move_all(wait_for_pace)
            except LedgerError as error:
                if self._committer.fatal is not None:
                    return
                logger.warning("dead space is kept for now: %s", error)
            self._faults_in_a_row = 0
            if not self._is_closing:
                await self._waiting(self._changed.wait_beyond(version))

    def _new_pace(self) -> Callable[[], Awaitable[object]]:
        """Return what waits until the next chunk may begin.

        asyncio-throttle reads the system's clock itself; with any other clock it is a plain sleep.
        """
        period = CHUNK_BYTES / self._bytes_per_second
        if isinstance(self._clock, SystemClock):
            return Throttler(1, period=period, retry_interval=period / POLLS_PER_PERIOD).acquire
        return partial(self._clock.sleep, max(1, round(1000 * period)))

    async def _move_all(self, wait_for_pace: Callable[[], Awaitable[object]]) -> None:
        moved_bytes: int | None = 1
        while not self._is_closing:
            if moved_bytes:  # a search that goes on has used nothing of the pace
                await self._waiting(wait_for_pace())
            if self._committer.is_saturated:
                await self._waiting(self._room_in_queue())
            if self._is_idle():
                moved_bytes = await self.step()
                if moved_bytes is None:
                    return
            else:
                share = max(self._dead_share_max, BUSY_DEAD_SHARE_MAX)
                moved_bytes = await self.step(dead_share_max=share)
                if moved_bytes is None and not self._is_closing:
                    await self._waiting(self._clock.sleep(IDLE_MS))

    async def _waiting(self, what: Awaitable[object]) -> None:
        """Wait where `close` may interrupt; a piece is never left half-way."""
        self._is_waiting = True
        try:
            await what
        finally:
            self._is_waiting = False

    async def _room_in_queue(self) -> None:
        drained = Signal()
        self._committer.on_drained(drained.notify)
        await drained.wait()
