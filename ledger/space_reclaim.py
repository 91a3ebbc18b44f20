"""Space reclaim: frees the disk space of deleted ledgers, at a pace that appends do not notice.

Rule: it commits moves of entries as ordinary groups, one at a time, while the engine finds moves
worth making; then it sleeps until ledgers are dropped or a checkpoint was made. While there are
appends, it works only if half of the log is dead, because a move costs as much as an append. A
failure ends the search until the next wake-up; nothing must be undone, as the engine searches
afresh. After a fault the task restarts when the next ledgers are dropped; after several faults in a
row it ends until the store is opened again.
Must not know: files, what is moved.

| it waits when         | until                                                   |
|-----------------------|---------------------------------------------------------|
| nothing is left to do | ledgers were dropped, or a checkpoint was made          |
| a search begins       | a delay has passed: more may be dropped, or closed      |
| a group was moved     | the pace allows the next one                            |
| appends go on         | there was none for a second, or half of the log is dead |
| producers are paused  | the committer's queue has room again                    |
| a write failed        | ledgers were dropped, or a checkpoint was made          |
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from asyncio_throttle.throttler import Throttler

from kledger.ledger.commits.committer import Committer, submitted
from kledger.ledger.commits.idle_watch import IDLE_MS, IdleWatch
from kledger.ledger.config import StoreConfig
from kledger.ledger.engine.base import CommitGroup, StorageEngine
from kledger.ledger.errors import LedgerError, from_engine
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor

logger = logging.getLogger(__name__)

LOOK_DELAY_MS = 1000
"""Delay before a search: entries of ledgers that are deleted soon are not moved before."""
FAULTS_IN_A_ROW_MAX = 10
"""After so many faults in a row the task gives up."""
BUSY_DEAD_SHARE_MAX = 0.5
"""Share of the log that may be dead while there are appends."""
CHUNK_BYTES = 256 * 1024
"""Data moved in one group: a producer's group may have to wait for it."""
POLLS_PER_PERIOD = 4
"""How often at most the throttler asks for the time while it waits."""


class Pace(Protocol):
    """Spaces the chunks that are moved."""

    async def acquire(self) -> None:
        """Return when the next chunk may begin."""
        ...


StartPace = Callable[[float], Pace]
"""Makes the pace of one chunk in each period, which is given in seconds."""


def throttled(period_s: float) -> Pace:
    """Return asyncio-throttle's pace; it reads the system's clock itself."""
    return Throttler(1, period=period_s, retry_interval=period_s / POLLS_PER_PERIOD)


class SpaceReclaim:
    """The background task of one store; `step` moves one group without the task and its pace."""

    def __init__(
        self,
        engine: StorageEngine,
        committer: Committer,
        config: StoreConfig,
        *,
        idle_watch: IdleWatch,
        clock: Clock,
        start_pace: StartPace,
        pool: BlockingRunner,
        supervisor: Supervisor,
    ) -> None:
        """Make a stopped one.

        Args:
            engine: finds the moves.
            committer: of that engine.
            config: how much may be dead, and the bytes per second.
            idle_watch: says whether there are appends.
            clock: of the delay before a search.
            start_pace: makes the pace of the chunks.
            pool: where the engine searches and reads.
            supervisor: of the task.
        """
        self.moved_bytes = 0
        """Data moved so far."""
        self._engine = engine
        self._committer = committer
        self._dead_share_max = config.log_dead_percent_max / 100
        self._bytes_per_second = config.log_rewrite_bytes_per_second
        self._clock = clock
        self._start_pace = start_pace
        self._pool = pool
        self._supervisor = supervisor
        self._changed = Signal()
        self._is_closing = False
        self._is_waiting = False
        self._faults_in_a_row = 0
        self._idle_watch = idle_watch
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task; the first search comes at once, as earlier runs may have left work."""
        if not self._bytes_per_second:
            return
        self._committer.on_space = self._changed.notify
        self._begin()

    def _begin(self, version: int | None = None) -> None:
        """Start the task; with `version`, it waits first until `_changed` is beyond that."""
        if not (self._is_closing or self._supervisor.is_closed):
            unit = NamedUnit("background work", "reclaiming space", self._restart)
            self._task = self._supervisor.spawn(self._work(version), "ledger space", unit=unit)

    def _restart(self) -> None:
        """Restart after a fault. It waits for a change, as the clock may be at fault."""
        self._faults_in_a_row += 1
        if self._faults_in_a_row >= FAULTS_IN_A_ROW_MAX:
            logger.error(
                "space of deleted ledgers is not reclaimed until the store is opened again: "
                "%d faults in a row",
                self._faults_in_a_row,
            )
            return
        self._begin(self._changed.version)

    async def close(self) -> None:
        """Stop after the group in flight. May be repeated."""
        self._is_closing = True
        if self._task is not None:
            if self._is_waiting:
                self._task.cancel()
            await asyncio.wait([self._task])

    async def step(self, *, dead_share_max: float | None = None) -> int | None:
        """Move the next group of entries.

        Args:
            dead_share_max: share of the log that may be dead; None is the setting.

        Returns:
            The bytes moved; 0 when the search must be continued; None when no move is worth it now.

        Raises:
            StorageFailed, Corrupt: entries could not be read or written; nothing has changed.
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
        await submitted(partial(self._committer.submit_group, group))
        moved_bytes = sum(len(data) for _, _, data in group.entries)
        self.moved_bytes += moved_bytes
        return moved_bytes

    # Inside

    def _next_moves(self, share: float) -> CommitGroup | None:
        return self._engine.next_moves(dead_share_max=share, bytes_max=CHUNK_BYTES)

    async def _work(self, version: int | None) -> None:
        if version is not None:
            await self._waiting(self._changed.wait_beyond(version))
        pace = self._start_pace(CHUNK_BYTES / self._bytes_per_second)
        while not self._is_closing:
            self._idle_watch.is_idle()  # notes the appends until now
            await self._waiting(self._clock.sleep(LOOK_DELAY_MS))
            version = self._changed.version
            try:
                await self._move_all(pace)
            except LedgerError as error:
                if self._committer.fatal is not None:
                    return
                logger.warning("dead space is kept for now: %s", error)
            self._faults_in_a_row = 0
            if not self._is_closing:
                await self._waiting(self._changed.wait_beyond(version))

    async def _move_all(self, pace: Pace) -> None:
        moved_bytes: int | None = 1
        while not self._is_closing:
            if moved_bytes:  # a search without moves does not count for the pace
                await self._waiting(pace.acquire())
            if self._committer.is_saturated:
                await self._waiting(self._room_in_queue())
            if self._idle_watch.is_idle():
                moved_bytes = await self.step()
                if moved_bytes is None:
                    return
            else:
                share = max(self._dead_share_max, BUSY_DEAD_SHARE_MAX)
                moved_bytes = await self.step(dead_share_max=share)
                if moved_bytes is None and not self._is_closing:
                    await self._waiting(self._clock.sleep(IDLE_MS))

    async def _waiting(self, what: Awaitable[object]) -> None:
        """Wait in a way that `close` may cancel; a move is never cancelled."""
        self._is_waiting = True
        try:
            await what
        finally:
            self._is_waiting = False

    async def _room_in_queue(self) -> None:
        drained = Signal()
        self._committer.on_drained(drained.notify)
        await drained.wait()
