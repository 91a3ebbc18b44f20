"""Copy deletions: deletes in the tiers what no ledger needs, and what broken attempts left.

Rule: a durable row says what has to be deleted; it is written in the group that makes a copy
unneeded, and, for an attempt, before anything is copied. The group that completes an attempt
removes its row. So a row never names a copy that a ledger needs, and whatever ends an attempt, its
objects go. While an attempt runs in this process, its row waits. A deletion is repeated until the
tier confirms it. A store that has stopped for good deletes nothing.
Must not know: managed ledgers.

| limit                 | what it limits                                                    |
|-----------------------|-------------------------------------------------------------------|
| `PAGE_ROWS`           | rows in memory at once                                            |
| `DELETE_TIMEOUT_MS`   | how long the tier may take                                        |
| `RETRY_MS_MAX`        | the time between two tries, which doubles from `RETRY_MS`         |
| `LATE_ATTEMPTS_MAX`   | broken attempts that are deleted a second time, see below         |

What a broken attempt wrote last may reach the tier after its deletion, as requests of a process
that has ended may still be under way. So it is deleted once more after `LATE_WRITES_MS`.
"""

import asyncio
import logging
from functools import partial
from uuid import UUID

from kledger.ledger.commits.committer import Committer, submitted
from kledger.ledger.engine.base import StorageEngine
from kledger.ledger.errors import Corrupt, LedgerError, from_engine
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import CopyDeletion, decode_copy_deletion
from kledger.ledger.offload.offloader import UploadingOffloader
from kledger.ledger.offload.tier_calls import TierCalls
from kledger.ledger.offload.tiers import Tiers
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.signal import Signal
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

logger = logging.getLogger(__name__)

PAGE_ROWS = 64
DELETE_TIMEOUT_MS = 60_000
RETRY_MS = 1_000
RETRY_MS_MAX = 60_000
LATE_WRITES_MS = 60_000
LATE_ATTEMPTS_MAX = 1_000
WARNINGS_PER_SECOND = 1


class CopyDeletions:
    """The background task of one store."""

    def __init__(
        self,
        engine: StorageEngine,
        committer: Committer,
        tiers: Tiers,
        calls: TierCalls,
        *,
        clock: Clock,
        timers: Timers,
        pool: BlockingRunner,
        supervisor: Supervisor,
    ) -> None:
        """Make an idle one.

        Args:
            engine: has the rows.
            committer: of that engine.
            tiers: of the copies.
            calls: of those tiers.
            clock: of the times between tries.
            timers: of that clock.
            pool: where rows are read.
            supervisor: of the task.
        """
        self._engine = engine
        self._committer = committer
        self._tiers = tiers
        self._calls = calls
        self._clock = clock
        self._timers = timers
        self._pool = pool
        self._supervisor = supervisor
        self._warnings = RateLimitedLog(logger, WARNINGS_PER_SECOND, clock)
        self._changed = Signal()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._running: set[UUID] = set()
        self._late: dict[UUID, int] = {}
        """When a broken attempt is deleted once more, by the monotonic clock."""
        self._retry_ms = RETRY_MS

    def attempt_begins(self, attempt: UUID) -> None:
        """Keep what an attempt writes, until it ends."""
        self._running.add(attempt)

    def attempt_ends(self, attempt: UUID) -> None:
        """Delete what an attempt wrote, unless its row was removed."""
        self._running.discard(attempt)
        self.wake()

    def wake(self) -> None:
        """Look for rows, as one may have been written."""
        self._changed.notify()
        if self._task is None and not (self._is_closing or self._supervisor.is_closed):
            unit = NamedUnit("background work", "deleting copies in a tier")
            self._task = self._supervisor.spawn(self._work(), "copy deletions", unit=unit)

    async def close(self) -> None:
        """Stop; what is left is deleted after the next start. May be repeated."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # Inside

    async def _work(self) -> None:
        try:
            while self._committer.fatal is None:
                version = self._changed.version
                wait_ms = await self._delete_all()
                if wait_ms is not None:
                    await self._pause(version, wait_ms)
                elif version == self._changed.version:
                    return
        finally:
            self._task = None

    async def _pause(self, version: int, wait_ms: int) -> None:
        timer = self._timers.call_after(wait_ms, self._changed.notify)
        try:
            await self._changed.wait_beyond(version)
        finally:
            timer.cancel()

    async def _delete_all(self) -> int | None:
        """Go through all rows once; return when to look again, None if nothing is left to do."""
        waits_ms: list[int] = []
        failed: set[str] = set()
        start, end = keys.copy_deletion_range()
        try:
            while rows := await self._rows(start, end):
                start = rows[-1][0] + b"\x00"
                for key, row in rows:
                    waits_ms += await self._work_off(key, row, failed)
        except LedgerError as error:
            self._warnings.warning("deletions in a tier wait: %s", error)
            failed.add("")
        if failed:
            waits_ms.append(self._retry_ms)
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)
        else:
            self._retry_ms = RETRY_MS
        return min(waits_ms, default=None)

    async def _rows(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        def scan() -> list[tuple[bytes, bytes]]:
            return self._engine.scan(start, end, limit=PAGE_ROWS)

        try:
            rows = await self._pool.run(scan)
        except Exception as error:
            raise from_engine(error) from error
        if rows:
            # A power cut must not bring back a ledger whose copy is gone. If the store has been
            # replaced, rows of the new one may be among these, so nothing may be deleted.
            await self._committer.make_durable()
        return rows

    async def _work_off(self, key: bytes, row: bytes, failed: set[str]) -> list[int]:
        """Delete the copy that one row names; return the time until the next attempt, if any.

        Args:
            key: of the row.
            row: of a deletion.
            failed: tiers that failed in this round, which are not asked again.
        """
        deletion = self._decoded(key, row)
        if deletion is None or deletion.attempt in self._running or deletion.driver in failed:
            return []
        wait_ms = self._late.get(deletion.attempt, 0) - self._clock.monotonic_ms()
        if wait_ms > 0:
            return [wait_ms]
        if not self._is_needed(key):
            return []
        if not await self._delete(deletion):
            failed.add(deletion.driver)
            return []
        if self._is_repeated_later(deletion):
            return [LATE_WRITES_MS]
        await submitted(lambda done: self._committer.submit_rows([(key, None)], done))
        self._late.pop(deletion.attempt, None)
        return []

    def _is_needed(self, key: bytes) -> bool:
        """Return whether a row is still there: since it was read, its attempt may have completed.

        That is final, as only an attempt that runs can complete.
        """
        try:
            return self._engine.get(key) is not None
        except Exception as error:
            raise from_engine(error) from error

    def _decoded(self, key: bytes, row: bytes) -> CopyDeletion | None:
        try:
            return decode_copy_deletion(keys.attempt_in(key), row)
        except Corrupt as error:
            self._warnings.warning("a copy in a tier stays: %s", error)
            return None

    async def _delete(self, deletion: CopyDeletion) -> bool:
        """Delete a copy; return whether the tier confirmed it."""
        what = f"deleting a copy of ledger {deletion.ledger_id} in {deletion.driver}"
        try:
            offloader = self._tiers.find(deletion)
            work = partial(
                offloader.delete, deletion.ledger_id, deletion.attempt, deletion.location
            )
            await self._calls.call(work, what, timeout_ms=DELETE_TIMEOUT_MS)
            if isinstance(offloader, UploadingOffloader) and not deletion.was_complete:
                work = partial(
                    offloader.abort_uploads,
                    deletion.ledger_id, deletion.attempt, deletion.location,
                )  # fmt: skip
                await self._calls.call(work, what, timeout_ms=DELETE_TIMEOUT_MS)
        except LedgerError as error:
            self._warnings.warning("%s is tried again: %s", what, error)
            return False
        return True

    def _is_repeated_later(self, deletion: CopyDeletion) -> bool:
        if deletion.was_complete or deletion.attempt in self._late:
            return False
        if len(self._late) >= LATE_ATTEMPTS_MAX:
            return False
        self._late[deletion.attempt] = self._clock.monotonic_ms() + LATE_WRITES_MS
        return True
