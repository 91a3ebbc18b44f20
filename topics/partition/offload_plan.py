"""Offload plan: what the settings of a topic mean for the copies of a partition in the tier.

Rule: Kafka's and Pulsar's settings lead to the same policies. Primary copies go by Kafka's local
retention only where the tier has the ledger: oldest first, by age when the newest record is older,
by size when at least that many bytes of primary copies remain without it.
Must not know: storage, clocks. Source: Kafka's UnifiedLog.deletableSegments for local retention.
"""

from collections.abc import Mapping, Sequence

from kledger.ledger import (
    LedgerInfo,
    LedgerOffloader,
    OffloadPolicies,
    Position,
    copyable_ledgers,
    first_not_offloaded,
    plan_copies,
    plan_primary_deletions,
)
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.partition.offset_index import LedgerSummary

OFF = -1
SECOND_MS = 1000


def offload_policies(config: TopicConfig, driver: LedgerOffloader | None) -> OffloadPolicies:
    """Return the policies of a partition's managed ledger.

    Args:
        config: of the topic.
        driver: the tier; None: the server has none.
    """
    threshold_bytes, seconds = config.offload_threshold_bytes, config.offload_threshold_seconds
    if config.is_remote_storage_enabled and not config.is_remote_copy_disabled:
        threshold_bytes = 0
    lag_ms = config.offload_deletion_lag_ms
    return OffloadPolicies(
        driver=driver,
        threshold_bytes=threshold_bytes,
        threshold_ms=seconds * SECOND_MS if seconds >= 0 else OFF,
        deletion_lag_ms=lag_ms if lag_ms >= 0 else None,
        read_priority=config.data_read_priority,
    )


def local_removals(
    ledgers: Sequence[LedgerInfo],
    summaries: Mapping[int, LedgerSummary],
    config: TopicConfig,
    *,
    now_ms: int,
) -> list[int]:
    """Return the ids of the ledgers whose primary copies `local.retention` releases.

    Args:
        ledgers: oldest first.
        summaries: by ledger id; the newest ledger may have none.
        config: of the topic.
        now_ms: wall time.
    """
    if not config.is_remote_storage_enabled:
        return []
    local = [info for info in ledgers if not info.primary_deleted]
    remaining = sum(info.size for info in local)
    released = []
    for info in local:
        if not info.entries and info.closed_ms is not None:
            continue
        remaining -= info.size
        newest = _newest(info, summaries)
        is_old = 0 <= config.local_retention_ms < now_ms - newest
        is_over_quota = 0 <= config.local_retention_bytes <= remaining
        if not info.offloaded or not (is_old or is_over_quota):
            break
        released.append(info.ledger_id)
    return released


def is_any_due(
    ledgers: Sequence[LedgerInfo],
    summaries: Mapping[int, LedgerSummary],
    config: TopicConfig,
    policies: OffloadPolicies,
    *,
    now_ms: int,
) -> bool:
    """Decide from the rows of a closed partition whether there may be something to do.

    False is certain; True is not, because open transactions are not known.
    """
    return bool(
        plan_copies(ledgers, policies, now_ms=now_ms)
        or plan_primary_deletions(ledgers, policies, now_ms=now_ms)
        or local_removals(ledgers, summaries, config, now_ms=now_ms)
    )


def waiting_count(ledgers: Sequence[LedgerInfo]) -> int:
    """Return how many closed ledgers with entries are not offloaded."""
    return len(copyable_ledgers(ledgers))


def end_of_offloaded(ledgers: Sequence[LedgerInfo]) -> Position:
    """Return the first position that is not offloaded; behind the last entry if all are."""
    newest = ledgers[-1] if ledgers else None
    last = Position(-1, -1) if newest is None else Position(newest.ledger_id, newest.entries - 1)
    return first_not_offloaded(ledgers, last)


def _newest(info: LedgerInfo, summaries: Mapping[int, LedgerSummary]) -> int:
    """Return the largest timestamp of a ledger; without one, its time of closing."""
    summary = summaries.get(info.ledger_id)
    newest = info.max_timestamp_ms if summary is None else summary.max_timestamp
    if newest < 0:
        newest = info.closed_ms if info.closed_ms is not None else (1 << 63) - 1
    return newest
