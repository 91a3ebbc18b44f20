"""Cleaner plan: whether a partition is to be compacted now, and up to where.

Rule: only closed ledgers are compacted that lie before the last stable offset as a whole and hold
no record younger than min.compaction.lag.ms. A partition is due when enough of what can be
compacted is new, or when something of it has waited for max.compaction.lag.ms. With a threshold of
bytes, everything before the last stable offset is compacted when so many are new.
Must not know: storage, clocks. Sources: Kafka's LogCleanerManager.grabFilthiestCompactedLog,
Pulsar's compactionThreshold.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from kledger.ledger import LedgerInfo, Position
from kledger.topics.config.topic_config import TopicConfig


class Cleaning(NamedTuple):
    """A compaction that is due.

    Attributes:
        horizon: the last position that it compacts.
        new_bytes: of the log since the last compaction.
        kept_bytes: what the last compaction has kept, which it reads as well.
        is_late: whether a record has waited for longer than max.compaction.lag.ms.
    """

    horizon: Position
    new_bytes: int
    kept_bytes: int
    is_late: bool = False

    @property
    def dirty_ratio(self) -> float:
        """The share of new bytes in what it reads."""
        return self.new_bytes / max(self.new_bytes + self.kept_bytes, 1)


def plan_cleaning(
    ledgers: Sequence[LedgerInfo],
    config: TopicConfig,
    *,
    compacted_upto: Position | None,
    compacted_bytes: int,
    stable_upto: Position,
    now_ms: int,
) -> Cleaning | None:
    """Decide whether a partition is to be compacted; None if not.

    Args:
        ledgers: oldest first.
        config: of the topic.
        compacted_upto: the present horizon; None before the first compaction.
        compacted_bytes: what the last compaction has kept.
        stable_upto: the last entry before the last stable offset.
        now_ms: wall time.
    """
    appended = sum(_bytes_after(each, compacted_upto) for each in ledgers)
    if 0 < config.compaction_threshold_bytes <= appended:
        return Cleaning(stable_upto, appended, compacted_bytes)
    if not config.is_compacted:
        return None
    new = [
        each
        for each in ledgers
        if each.entries and (compacted_upto is None or _end(each) > compacted_upto)
    ]

    def is_cleanable(info: LedgerInfo) -> bool:
        is_old = info.max_timestamp_ms <= now_ms - config.min_compaction_lag_ms
        return info.closed_ms is not None and is_old and _end(info) <= stable_upto

    cleanable = list(takewhile(is_cleanable, new))
    if not cleanable:
        return None
    # The records of a ledger are at least as old as its end, where their times are not known.
    cleaning = Cleaning(
        horizon=_end(cleanable[-1]),
        new_bytes=sum(each.size for each in cleanable),
        kept_bytes=compacted_bytes,
        is_late=now_ms - cleanable[0].max_timestamp_ms > config.max_compaction_lag_ms,
    )
    is_dirty = cleaning.dirty_ratio > config.min_cleanable_dirty_ratio
    return cleaning if is_dirty or cleaning.is_late else None


def _end(info: LedgerInfo) -> Position:
    return Position(info.ledger_id, info.entries - 1)


def _bytes_after(info: LedgerInfo, position: Position | None) -> int:
    """Estimate the bytes of a ledger after a position, by the average size of its entries."""
    if position is None or info.ledger_id > position.ledger_id:
        return info.size
    if info.ledger_id < position.ledger_id or not info.entries:
        return 0
    return info.size * (info.entries - 1 - position.entry_id) // info.entries
