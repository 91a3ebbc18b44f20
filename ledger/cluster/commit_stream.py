"""CommitStream: the commits of the owner of a cluster, each with a known outcome.

Rule: one commit at a time, each with the next number. If the connection dies during a commit, its
statement may still run later; so the stream first makes a barrier, an empty commit with a higher
number, below which no statement takes effect any more. The barrier returns whether the commit took
effect; if not, the same change is sent again with the next number. A commit without an answer is
never assumed to have failed.
Must not know: what a change means, SQL.

`commit` blocks, also for as long as the database is unavailable: only that session may commit, and
until another one has fenced it, nothing is lost by waiting. `stop` ends the wait.
"""

import logging
from collections.abc import Callable
from threading import Event
from typing import Final

from kledger.ledger.cluster.database import (
    AcquiredEpoch,
    Change,
    ClusterDatabase,
    CommitsLost,
    DatabaseError,
    DatabaseUnavailable,
    GroupId,
    SessionFenced,
    SessionId,
    UnknownOutcome,
)

logger = logging.getLogger(__name__)

PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Before the second, third ... try while the database is unavailable; the last one repeats."""


class StreamStopped(Exception):
    """`stop` was called; the change that was waiting may be there or not."""


class CommitStream:
    """The stream of one session; the methods but `stop` belong to one thread at a time."""

    def __init__(
        self,
        database: ClusterDatabase,
        session: SessionId,
        acquired: AcquiredEpoch,
        *,
        acquired_at_ms: int,
        now_ms: Callable[[], int],
        wait_s: Callable[[float], bool] | None = None,
    ) -> None:
        """Continue the stream where `acquire` has found it.

        Args:
            database: where to commit.
            session: the owner.
            acquired: what `acquire` returned.
            acquired_at_ms: when it was called.
            now_ms: time that goes on while the machine sleeps.
            wait_s: waits for some seconds, in place of a wait that `stop` ends; returns whether
                the stream was stopped.
        """
        self.session = session
        self.epoch = acquired.epoch
        self.commit_count = self.commit_ms = 0
        """Answered commits, and the time that they took."""
        self.barrier_count = 0
        """How many outcomes had to be settled."""
        self.answered_at_ms = acquired_at_ms
        """When the last answered commit was sent: until then the session was not fenced."""
        self._database = database
        self._seq = acquired.seq
        self._now_ms = now_ms
        self._stopped = Event()
        self._wait_s = wait_s or self._stopped.wait
        self.ended: SessionFenced | CommitsLost | None = None
        """Why nothing can be committed any more."""

    def commit(self, change: Change) -> GroupId:
        """Commit a change; return its id, which is that of its group, if it has one.

        Raises:
            SessionFenced, CommitsLost: it is there only if its connection broke before another
                session closed this one; every later call raises the same.
            StreamStopped: it may be there.
        """
        if self.ended is not None:
            raise type(self.ended)(str(self.ended))
        try:
            return self._commit(change)
        except (SessionFenced, CommitsLost) as error:
            self.ended = error
            raise

    def stop(self) -> None:
        """End the waiting of the present and every later call; for any thread."""
        self._stopped.set()

    def _commit(self, change: Change) -> GroupId:
        tries = 0
        while True:
            seq, sent_at_ms = self._seq + 1, self._now_ms()
            try:
                self._database.commit(self.session, seq, change)
            except DatabaseUnavailable as error:
                self._pause(tries, error)
                tries += 1
            except UnknownOutcome as error:
                logger.info("the outcome of commit %s is to be settled: %s", seq, error)
                if self._settle(seq):
                    return GroupId(self.epoch, seq)
            else:
                self._seq, self.answered_at_ms = seq, sent_at_ms
                self.commit_count += 1
                self.commit_ms += self._now_ms() - sent_at_ms
                return GroupId(self.epoch, seq)

    def _settle(self, unknown: int) -> bool:
        """Make a barrier; return whether commit number `unknown` took effect."""
        confirmed, barrier, tries = self._seq, unknown, 0
        self.barrier_count += 1
        while True:
            # A barrier whose own outcome is unknown may run later, too: the next one is above it.
            barrier, sent_at_ms = barrier + 1, self._now_ms()
            try:
                last = self._database.barrier(self.session, confirmed=confirmed, seq=barrier)
            except (DatabaseUnavailable, UnknownOutcome) as error:
                self._pause(tries, error)
                tries += 1
            else:
                self._seq, self.answered_at_ms = barrier, sent_at_ms
                return last == unknown

    def _pause(self, tries: int, error: DatabaseError) -> None:
        """Wait before the next try. Raises StreamStopped."""
        if tries == 0:
            logger.warning("commits wait for the database: %s", error)
        if self._wait_s(PAUSES_S[min(tries, len(PAUSES_S) - 1)]):
            raise StreamStopped(
                "the stream of commits was stopped while the database was unavailable"
            )
