"""Session state: when a standby may take over, and how long an owner may serve the newest state.

Rule: an owner is alive if it commits. A standby fences an owner whose commit number has not grown
for `FENCE_AFTER_MS` on the standby's clock, while the standby could read the database. An outage or
a pause of the standby restarts the interval. Clocks are never compared with each other.
Must not know: databases, how time is measured.

A fenced owner notices it only at its next commit. What it reads is committed, but may not be the
newest; so it serves the newest state only for `CURRENT_FOR_MS` after it sent the last commit that
was answered. A standby's interval starts when it sees that commit, which is later. So the owner
stops before a standby can fence it, unless the standby's clock runs 1.5 times as fast as its own.
"""

import enum
from typing import Final

from kledger.ledger.cluster.database import OwnerObservation

COMMIT_EVERY_MS: Final = 1_000
"""How often an owner commits at least, an empty commit if there is nothing to write."""
POLL_EVERY_MS: Final = 500
"""How often a standby reads the state of the owner."""
FENCE_AFTER_MS: Final = 5_000
CURRENT_FOR_MS: Final = 3_300
SILENT_AFTER_MS: Final = 3_000
"""An owner that has not committed for so long seems to be lost: clients are shown no leader."""
POLL_GAP_MAX_MS: Final = 2_000
"""Of two answers; after a longer gap it is unknown whether the owner could have committed."""


class WatchStep(enum.Enum):
    """What a standby does next.

    POLL: poll again after `POLL_EVERY_MS`.
    ACQUIRE: become the owner, as there is none.
    FENCE: fence the owner that was seen.
    """

    POLL = "poll"
    ACQUIRE = "acquire"
    FENCE = "fence"


class OwnerWatch:
    """What a standby knows of the owner."""

    __slots__ = ("_last_ms", "_seen", "_since_ms")

    def __init__(self) -> None:
        self._seen: OwnerObservation | None = None
        self._since_ms = 0  # when an answer said so for the first time
        self._last_ms = 0  # when the last answer came

    def observed(
        self, seen: OwnerObservation | None, *, asked_at_ms: int, answered_at_ms: int
    ) -> WatchStep:
        """Take an answer of the database; return the next step.

        Args:
            seen: the owner in the answer.
            asked_at_ms: when the standby sent the query; the answer is not older.
            answered_at_ms: when the answer arrived.
        """
        if seen is None:
            self._seen = None
            return WatchStep.ACQUIRE
        has_gap = answered_at_ms - self._last_ms > POLL_GAP_MAX_MS
        self._last_ms = answered_at_ms
        if seen != self._seen or has_gap:
            self._seen, self._since_ms = seen, answered_at_ms
        elif asked_at_ms - self._since_ms >= FENCE_AFTER_MS:
            return WatchStep.FENCE
        return WatchStep.POLL

    def is_silent(self, now_ms: int) -> bool:
        """Return whether the owner seems to be lost, as it has not committed for some time."""
        return self._seen is not None and now_ms - self._since_ms >= SILENT_AFTER_MS

    def missed(self) -> None:
        """Restart the interval: the database did not answer, so the owner could not commit."""
        self._seen = None


def is_current(*, answered_at_ms: int, now_ms: int) -> bool:
    """Return whether no standby can have fenced an owner yet.

    Args:
        answered_at_ms: when the owner sent its last answered commit.
        now_ms: on the same clock, which runs on while the machine sleeps.
    """
    return now_ms - answered_at_ms < CURRENT_FOR_MS
