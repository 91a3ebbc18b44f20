"""Compacted expiry: what retention releases of the compacted log of a partition.

Rule: the beginning goes, by the intervals of its index: by age up to the first one with a record
that is young enough, by size as long as at least retention.bytes remain, of what was appended
behind it too. The rows decide, of open partitions and of closed ones alike; they are read here, so
this is for a thread.
Must not know: what a release does, handles of ledgers.
Source: Kafka's UnifiedLog.deleteOldSegments, for segments.
"""

from kledger.ledger import CompactedLedger
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.partition.index_rows import IndexRows, Neighbours
from kledger.topics.partition.offset_index import LedgerSummary


def released_upto(
    rows: IndexRows,
    compacted: CompactedLedger,
    summary: LedgerSummary,
    config: TopicConfig,
    *,
    appended_bytes: int,
    now_ms: int,
) -> int:
    """Return the first offset that stays: 0 if nothing goes, the offset behind it if all does.

    Args:
        rows: of the partition.
        compacted: what the last compaction has kept.
        summary: of it.
        config: of the topic.
        appended_bytes: what the log itself holds.
        now_ms: wall time.

    Raises:
        LedgerError, TopicsError: a row cannot be read.
    """
    upto = 0
    if config.is_deleted_by_age and config.retention_ms >= 0:
        oldest = now_ms - config.retention_ms
        found = rows.search(
            compacted.ledger_id, compacted.entries, lambda row: row.max_timestamp_so_far < oldest
        )
        upto = _first_offset(found, summary)
    if config.is_deleted_by_age and config.retention_bytes >= 0:
        wanted = max(config.retention_bytes - appended_bytes, 0)
        # By the average size of its entries; an interval has many of them.
        staying = -(-wanted * compacted.entries // max(compacted.size, 1))
        first = compacted.entries - staying
        if first > 0:
            found = rows.search(
                compacted.ledger_id, compacted.entries, lambda row: row.end_entry <= first
            )
            upto = max(upto, _first_offset(found, summary))
    return upto


def _first_offset(found: Neighbours, summary: LedgerSummary) -> int:
    """Return the first offset that a search leaves.

    If it leaves everything, that is 0: the offsets before the first batch belong to it, because
    their records have newer ones, and a consumer that is there continues with the first batch.
    """
    if found.before is None:
        return 0
    return summary.next_offset if found.after is None else found.after.first_offset
