"""Cleaning round: the compactions that were due at the same time, and how fast they go.

Rule: while others use the store, the compactions of a round together read and write at a low rate,
unless `CleaningPace` says that this is not enough, or somebody waits for their end. Whatever is
appended to a partition during the round counts, also if it was removed again.
Must not know: when to compact, how.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kledger.ledger import LedgerStore, ManagedLedger
from kledger.runtime.clock import Clock
from kledger.topics.compaction.cleaner_plan import Cleaning
from kledger.topics.compaction.cleaning_pace import CleaningPace
from kledger.topics.io_throttle import IoThrottle
from kledger.topics.topic import Topic

LOOK_MS = 100
"""How often a round looks at most how far its partitions have grown."""


@dataclass(frozen=True, slots=True)
class DuePartition:
    """A partition that is to be compacted."""

    topic: Topic
    index: int
    ledger: ManagedLedger
    cleaning: Cleaning


class CleaningRound:
    """One round, which begins when this is made.

    Attributes:
        due: the dirtiest first.
        throttle: of all its compactions together.
    """

    def __init__(
        self,
        due: Sequence[DuePartition],
        store: LedgerStore,
        clock: Clock,
        *,
        slow_bytes_per_second: Callable[[], float],
        is_awaited: Callable[[], bool],
    ) -> None:
        """Begin one.

        Args:
            due: its compactions.
            store: has the partitions.
            clock: for the throttle.
            slow_bytes_per_second: the low rate at present.
            is_awaited: whether somebody waits for the end of the round.
        """
        self.due = sorted(due, key=lambda each: -each.cleaning.dirty_ratio)
        self.throttle = IoThrottle(clock, self._bytes_per_second)
        self._store = store
        self._clock = clock
        self._slow_bytes_per_second = slow_bytes_per_second
        self._is_awaited = is_awaited
        self._begun_ms = clock.monotonic_ms()
        self._pace = CleaningPace([each.cleaning for each in due])
        self._growths = [_Growth(each.ledger) for each in due]
        self._appended_bytes = 0
        self._look_at_ms = self._begun_ms

    def _bytes_per_second(self) -> float:
        now_ms = self._clock.monotonic_ms()
        is_slow = (
            not self._store.is_idle()
            and not self._is_awaited()
            and self._pace.may_be_slow(
                done_bytes=self.throttle.taken_bytes,
                appended_bytes=self._appended(now_ms),
                passed_ms=now_ms - self._begun_ms,
            )
        )
        return self._slow_bytes_per_second() if is_slow else math.inf

    def _appended(self, now_ms: int) -> int:
        """Return what was appended to all partitions, which may be many, so it looks seldom."""
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_MS
            self._appended_bytes = sum(each.bytes() for each in self._growths)
        return self._appended_bytes


class _Growth:
    """What was appended to a managed ledger since this was made."""

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger
        self._size_before = ledger.total_size
        self._bytes = 0

    def bytes(self) -> int:
        """Return it; what was appended after a removal may be missing."""
        self._bytes = max(self._bytes, self._ledger.total_size - self._size_before)
        return self._bytes
