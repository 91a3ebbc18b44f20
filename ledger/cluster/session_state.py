"""Session state: when a standby may take over, and until when an owner knows what is newest.

Rule: liveness is the ability to commit, seen from outside: a standby fences an owner whose number
has not moved for `FENCE_AFTER_MS` of the standby's own clock in which it could read the database.
An outage, or a pause of the standby, starts the time anew. No clock is compared with another one.
Must not know: databases, how time is measured.

An owner that was fenced does not notice before its next commit. What it reads is committed, but may
not be the newest; so it says that something is the newest only within `CURRENT_FOR_MS` after it has
sent the last commit that was answered. A standby counts from when it sees that commit, which is not
before it was sent. So the owner stops before anybody can fence it, unless a standby's clock runs
1.5 times as fast as its own.
"""

import enum
from typing import Final

from kledger.ledger.cluster.database import OwnerObservation

COMMIT_EVERY_MS: Final = 1_000
"""An owner commits at least so often, nothing if need be."""
LOOK_EVERY_MS: Final = 500
"""A standby looks at the owner so often."""
FENCE_AFTER_MS: Final = 6_000
CURRENT_FOR_MS: Final = 4_000
LOOK_GAP_MAX_MS: Final = 2_000
"""Between two answers; after a longer one it is unknown whether the owner could have committed."""


class WatchStep(enum.Enum):
    """What a standby does next.

    LOOK: look again after `LOOK_EVERY_MS`.
    ACQUIRE: become the owner, as there is none.
    FENCE: fence the owner that was seen.
    """

    LOOK = "look"
    ACQUIRE = "acquire"
    FENCE = "fence"


class OwnerWatch:
    """What a standby knows of the owner."""

    __slots__ = ("_last_ms", "_seen", "_since_ms")

    def __init__(self) -> None:
        self._seen: OwnerObservation | None = None
        self._since_ms = 0  # when an answer said so for the first time
        self._last_ms = 0  # when the last answer came

    def looked(
        self, seen: OwnerObservation | None, *, asked_at_ms: int, answered_at_ms: int
    ) -> WatchStep:
        """Take what the database has answered; return what to do.

        Args:
            seen: the owner.
            asked_at_ms: when the standby asked: what was seen is not older.
            answered_at_ms: when it got the answer.
        """
        if seen is None:
            self._seen = None
            return WatchStep.ACQUIRE
        has_gap = answered_at_ms - self._last_ms > LOOK_GAP_MAX_MS
        self._last_ms = answered_at_ms
        if seen != self._seen or has_gap:
            self._seen, self._since_ms = seen, answered_at_ms
        elif asked_at_ms - self._since_ms >= FENCE_AFTER_MS:
            return WatchStep.FENCE
        return WatchStep.LOOK

    def missed(self) -> None:
        """Start anew: the database did not answer, so the owner could not commit, either."""
        self._seen = None


def is_current(*, answered_at_ms: int, now_ms: int) -> bool:
    """Return whether nobody can have fenced an owner.

    Args:
        answered_at_ms: when the owner sent its last answered commit.
        now_ms: on the same clock, which runs on while the machine sleeps.
    """
    return now_ms - answered_at_ms < CURRENT_FOR_MS
