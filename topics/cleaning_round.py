"""Cleaning round: the compactions that were due at the same time, and whether they may be slow.

Rule: while others use the store, the compactions of a round together may read and write at a low
rate, unless `CleaningPace` says that this is not enough, or somebody waits for their end. Whatever
is appended to a partition during the round counts, also if it was removed again.
Must not know: when to compact, how, how slow slow is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kledger.ledger import LedgerStore, ManagedLedger
from kledger.runtime.clock import Clock
from kledger.topics.compaction.cleaner_plan import Cleaning
from kledger.topics.compaction.cleaning_pace import CleaningPace
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
    """

    def __init__(
        self,
        due: Sequence[DuePartition],
        store: LedgerStore,
        clock: Clock,
        *,
        taken_bytes: Callable[[], int],
        is_awaited: Callable[[], bool],
    ) -> None:
        """Begin one.

        Args:
            due: its compactions.
            store: has the partitions.
            clock: tells how long the round takes.
            taken_bytes: what this round and earlier ones have read and written.
            is_awaited: whether somebody waits for the end of the round.
        """
        self.due = sorted(due, key=lambda each: -each.cleaning.dirty_ratio)
        self._store = store
        self._clock = clock
        self._taken_bytes, self._taken_before = taken_bytes, taken_bytes()
        self._is_awaited = is_awaited
        self._begun_ms = clock.monotonic_ms()
        self._pace = CleaningPace([each.cleaning for each in due])
        self._growths = [_Growth(each.ledger) for each in due]
        self._appended_bytes = 0
        self._look_at_ms = self._begun_ms

    def may_be_slow(self) -> bool:
        """Decide by what is known now."""
        now_ms = self._clock.monotonic_ms()
        return (
            not self._store.is_idle()
            and not self._is_awaited()
            and self._pace.may_be_slow(
                done_bytes=self._taken_bytes() - self._taken_before,
                appended_bytes=self._appended(now_ms),
                passed_ms=now_ms - self._begun_ms,
            )
        )

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
