"""Standby: the session of a broker that waits until it owns its cluster.

Rule: it acts as `OwnerWatch` decides. It also tries to acquire ownership every `ACQUIRE_EVERY_MS`:
that marks its session as live in `kledger cluster status`, and shows it whether a newer session of
its broker has replaced it. It waits for a database that is unavailable.
Must not know: what an owner does.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar, TypeVarTuple

from kledger.ledger.cluster.database import (
    AcquiredEpoch,
    ClusterDatabase,
    DatabaseError,
    DatabaseUnavailable,
    OwnerObservation,
    SessionBroker,
    SessionFenced,
    SessionId,
    UnknownOutcome,
)
from kledger.ledger.cluster.database_outage import DatabaseOutage
from kledger.ledger.cluster.session_state import POLL_EVERY_MS, OwnerWatch, WatchStep
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock

logger = logging.getLogger(__name__)
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

ACQUIRE_EVERY_MS: Final = 5_000
"""How often a standby tries to acquire ownership although there is an owner."""


class OwnedSession(NamedTuple):
    """A session that has become the owner.

    Attributes:
        session: its id.
        acquired: what the database has answered.
        acquired_at_ms: when it was asked, on the clock that runs on while the machine sleeps.
    """

    session: SessionId
    acquired: AcquiredEpoch
    acquired_at_ms: int


class Standby:
    """One session, from its beginning until it owns the cluster or ends."""

    def __init__(
        self,
        database: ClusterDatabase,
        broker: SessionBroker,
        *,
        clock: Clock,
        boot_ms: Callable[[], int],
        pool: BlockingRunner,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            database: of the cluster.
            broker: this process.
            clock: for the time in which an owner does not move.
            boot_ms: time that goes on while the machine sleeps, for an owner.
            pool: makes the calls, one after the other.
        """
        self.session: SessionId | None = None
        self.seen: OwnerObservation | None = None
        """The owner that was seen last."""
        self._database = database
        self._broker = broker
        self._clock = clock
        self._boot_ms = boot_ms
        self._pool = pool
        self._watch = OwnerWatch()
        self._outage = DatabaseOutage()

    async def become_owner(self) -> OwnedSession:
        """Begin a session, and wait until it owns the cluster; however long that takes.

        Raises:
            SessionFenced: a newer session of this broker has replaced it.
            DatabaseUnusable: there is no such cluster.
        """
        self.session = session = await self._until_answered(
            self._database.begin_session, self._broker
        )
        asked_at_ms: int | None = None
        while True:
            step = await self._poll()
            now_ms = self._clock.monotonic_ms()
            is_due = asked_at_ms is None or now_ms - asked_at_ms >= ACQUIRE_EVERY_MS
            if step is WatchStep.FENCE and self.seen is not None:
                await self._fence(self.seen)
                continue
            if step is WatchStep.ACQUIRE or is_due:
                asked_at_ms = now_ms
                if (owned := await self._acquire(session)) is not None:
                    return owned
            await self._clock.sleep(POLL_EVERY_MS)

    async def claim(self) -> OwnedSession | None:
        """Begin a session, and ask once to become the owner.

        Returns:
            None: another session is the owner, or the database did not answer. The caller ends
            this one.

        Raises:
            DatabaseUnusable: there is no such cluster.
        """
        try:
            self.session = await self._pool.run(self._database.begin_session, self._broker)
            return await self._acquire(self.session)
        except (DatabaseUnavailable, UnknownOutcome) as error:
            self._outage.failed(error)
        except SessionFenced as error:  # by another process that has the id of this one
            logger.warning("session %s was replaced: %s", self.session, error)
        return None

    async def end(self) -> None:
        """End the session, so that others need not wait until it is silent for long enough.

        It may have become the owner. The call does not wait for a database that is unavailable.
        """
        if self.session is not None:
            try:
                await self._pool.run(self._database.end_session, self.session)
            except DatabaseError as error:
                logger.warning("session %s did not end: %s", self.session, error)

    async def _poll(self) -> WatchStep:
        asked_at_ms = self._clock.monotonic_ms()
        try:
            self.seen = await self._pool.run(self._database.observe)
        except DatabaseUnavailable as error:
            self._watch.missed()
            self._outage.failed(error)
            return WatchStep.POLL
        self._outage.answered()
        return self._watch.observed(
            self.seen, asked_at_ms=asked_at_ms, answered_at_ms=self._clock.monotonic_ms()
        )

    async def _fence(self, owner: OwnerObservation) -> None:
        try:
            is_fenced = await self._pool.run(self._database.fence, owner.session, owner.seq)
        except (DatabaseUnavailable, UnknownOutcome) as error:
            self._watch.missed()
            self._outage.failed(error)
            return
        if is_fenced:
            logger.warning(
                "session %s did not commit for too long after commit %s and is closed", *owner
            )

    async def _acquire(self, session: SessionId) -> OwnedSession | None:
        acquired_at_ms = self._boot_ms()
        try:
            acquired = await self._pool.run(self._database.acquire, session)
        except (DatabaseUnavailable, UnknownOutcome) as error:
            self._outage.failed(error)
            return None
        if acquired is None:
            return None
        logger.info("session %s owns the cluster in epoch %s", session, acquired.epoch)
        return OwnedSession(session, acquired, acquired_at_ms)

    async def _until_answered(
        self, call: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        while True:
            try:
                return await self._pool.run(call, *arguments)
            except (DatabaseUnavailable, UnknownOutcome) as error:
                self._outage.failed(error)
            await self._clock.sleep(POLL_EVERY_MS)
