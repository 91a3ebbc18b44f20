"""Cleaning pace: whether the compactions of a round of the log cleaner may go slowly.

Rule: they may as long as that is enough. It is not when a record has waited for longer than
max.compaction.lag.ms, when the partitions grow faster than they are compacted, or when the round
would take longer than ROUND_MS_MAX. A round that falls behind hurries until some more is done in
advance: some chunks at full speed disturb fewer requests than as many one by one.
Must not know: partitions, clocks, how slow slow is.
"""

from collections.abc import Sequence

from kledger.topics.compaction.cleaner_plan import Cleaning

ROUND_MS_MAX = 3_600_000
"""How long a round may go slowly: what becomes due meanwhile waits for the next one."""
AHEAD_SHARE_MAX = 0.05
"""How much of a round is done in advance after it has fallen behind, unless that is more than
`AHEAD_BYTES_MAX`."""
AHEAD_BYTES_MAX = 16 << 20
"""The same in bytes: 0.1 s at full speed, which the p99 of ten seconds does not show."""
STEPS_MAX = 3
"""How often a compaction reads or writes a byte at most: it reads twice, and writes once."""


class CleaningPace:
    """The pace of one round."""

    def __init__(self, cleanings: Sequence[Cleaning]) -> None:
        """Make that of these compactions."""
        self._is_late = any(each.is_late for each in cleanings)
        self._new_bytes = sum(each.new_bytes for each in cleanings)
        self._is_behind = False
        bytes_max = STEPS_MAX * sum(each.new_bytes + each.kept_bytes for each in cleanings)
        self._bytes_max = max(bytes_max, 1)
        self._ahead_share = min(AHEAD_SHARE_MAX, AHEAD_BYTES_MAX / self._bytes_max)

    def may_be_slow(self, *, done_bytes: int, appended_bytes: int, passed_ms: int) -> bool:
        """Decide by what has happened since the round began.

        Everything is to be done when an hour has passed, and when as much has been appended as was
        new at the beginning; half of it when half of that has.

        Args:
            done_bytes: what the compactions have read and written.
            appended_bytes: what was appended to the partitions.
            passed_ms: how long it took.
        """
        if self._is_late:
            return False
        done = done_bytes / self._bytes_max
        due = max(appended_bytes / max(self._new_bytes, 1), passed_ms / ROUND_MS_MAX)
        if done < due:
            self._is_behind = True
        elif done >= min(due + self._ahead_share, 1):
            self._is_behind = False
        return not self._is_behind
