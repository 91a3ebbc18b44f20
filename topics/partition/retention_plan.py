"""Retention plan: which ledgers at the beginning of a partition may be removed.

Rule: whole ledgers are removed, oldest first, up to the first that must stay. By age, when the
newest record in it is older than retention.ms; by size, when at least retention.bytes remain
without it; by neither while a subscription or group that the topic waits for has not consumed it;
always when the log start lies after it. Only age and size can reach the open ledger, which is
closed first.
Must not know: storage, clocks. Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kledger.ledger import LedgerInfo
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.partition.offset_index import UNKNOWN, LedgerSummary


class KeptLedger(NamedTuple):
    """A ledger that has entries.

    Attributes:
        max_timestamp: the largest in it; its time of closing if the records have none.
        is_open: appends go to it.
        is_unconsumed: a subscription or group that the topic waits for has not consumed all of it.
    """

    ledger_id: int
    size: int
    next_offset: int
    max_timestamp: int
    is_open: bool
    is_unconsumed: bool = False


class Removal(NamedTuple):
    """All ledgers up to this one, included, are to be removed."""

    ledger_id: int
    next_offset: int
    is_roll_needed: bool


def plan_removal(
    ledgers: Sequence[KeptLedger],
    config: TopicConfig | None,
    *,
    log_start_offset: int,
    now_ms: int,
) -> Removal | None:
    """Decide which ledgers are removed; None if all stay.

    Args:
        ledgers: oldest first.
        config: of the topic; None: remove only what lies before the log start.
        log_start_offset: the first offset that can be read.
        now_ms: wall time.
    """
    remaining = sum(ledger.size for ledger in ledgers)
    removal = None
    for ledger in ledgers:
        remaining -= ledger.size
        is_before_start = ledger.next_offset <= log_start_offset and not ledger.is_open
        is_due = config is not None and _is_due(ledger, config, remaining, now_ms)
        if not is_before_start and not is_due:
            break
        removal = Removal(ledger.ledger_id, ledger.next_offset, ledger.is_open)
    return removal


def is_any_due(
    ledgers: Sequence[LedgerInfo],
    ledger_summaries: Mapping[int, LedgerSummary],
    config: TopicConfig,
    *,
    log_start_offset: int,
    committed_offset: int | None,
    now_ms: int,
) -> bool:
    """Decide from the rows of a closed partition whether `plan_removal` may find a ledger.

    False is certain; True is not, because the cursors of subscriptions are not read.

    Args:
        ledgers: oldest first.
        ledger_summaries: by ledger id; the last ledger has none.
        config: of the topic.
        log_start_offset: the first offset that can be read.
        committed_offset: the lowest that a group has committed; None if no group has committed.
        now_ms: wall time.
    """
    kept = []
    for info in ledgers:
        if not info.entries:
            continue
        ledger_summary = ledger_summaries.get(info.ledger_id)
        next_offset = UNKNOWN if ledger_summary is None else ledger_summary.next_offset
        newest = info.max_timestamp_ms if ledger_summary is None else ledger_summary.max_timestamp
        if newest < 0:  # no record of it has a time
            newest = info.closed_ms if info.closed_ms is not None else UNKNOWN
        is_unconsumed = ledger_summary is not None and committed_offset is not None
        is_unconsumed = (
            is_unconsumed and config.waits_for_groups and next_offset > (committed_offset or 0)
        )
        is_open = info.closed_ms is None
        kept.append(
            KeptLedger(info.ledger_id, info.size, next_offset, newest, is_open, is_unconsumed)
        )
    return plan_removal(kept, config, log_start_offset=log_start_offset, now_ms=now_ms) is not None


def _is_due(ledger: KeptLedger, config: TopicConfig, remaining: int, now_ms: int) -> bool:
    if not config.is_deleted_by_age or ledger.is_unconsumed:
        return False
    is_too_old = config.retention_ms >= 0 and now_ms - ledger.max_timestamp > config.retention_ms
    is_over_quota = config.retention_bytes >= 0 and remaining >= config.retention_bytes
    return is_too_old or is_over_quota
