"""Retention: removes from a topic's partitions what its settings release.

Rule: a closed partition is opened only if its rows say that a ledger may be removed, so unused
partitions stay closed. The offsets of groups are read only if the topic waits for groups.
Must not know: groups, when retention runs.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from kledger.ledger import LedgerError, LedgerStore
from kledger.runtime.clock import Clock
from kledger.topics.errors import TopicsError
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition import records
from kledger.topics.partition.compacted_expiry import released_upto
from kledger.topics.partition.index_rows import IndexRows
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.retention_plan import is_any_due
from kledger.topics.topic import Topic

logger = logging.getLogger(__name__)

CLOSED_PER_CALL_MAX = 64
"""Closed partitions whose rows are read in one call of a thread."""

LowestCommittedOffset: TypeAlias = Callable[[str, UUID, int], int | None]
"""Called with topic name, topic id and partition; returns None if no group has committed."""


def no_group(topic: str, topic_id: UUID, partition: int) -> None:
    """Answer that no group has committed an offset."""


async def enforce_retention(
    topic: Topic, store: LedgerStore, clock: Clock, committed_offset: LowestCommittedOffset
) -> None:
    """Remove what retention releases in every partition; the next call tries again what failed."""

    def committed(index: int) -> int | None:
        if not topic.config.waits_for_groups:
            return None
        return committed_offset(topic.name, topic.id, index)

    for log in topic.open_partitions():
        await _enforce(topic, log, committed(log.index))
    if not topic.config.is_anything_deleted:
        return
    closed = [
        index
        for index in topic.led_partitions()
        if not topic.is_open(index) and store.has_managed_ledger(topic.ledger_name(index))
    ]
    for start in range(0, len(closed), CLOSED_PER_CALL_MAX):
        some = {index: committed(index) for index in closed[start : start + CLOSED_PER_CALL_MAX]}
        for index in await store.run_blocking(_due, topic, store, some, clock.now_ms()):
            if topic.is_deleted:
                return
            try:
                await _enforce(topic, await topic.open_partition(index), some[index])
            except TopicsError as error:
                logger.warning("retention of %s-%d: %s", topic.name, index, error)


async def _enforce(topic: Topic, log: PartitionLog, committed_offset: int | None) -> None:
    if log.is_closed:
        return  # it was closed meanwhile
    try:
        await log.enforce_retention(committed_offset)
    except TopicsError as error:
        logger.warning("retention of %s-%d: %s", topic.name, log.index, error)


def _due(
    topic: Topic, store: LedgerStore, committed: Mapping[int, int | None], now_ms: int
) -> list[int]:
    """Return the closed partitions from which a ledger may be removed; for a thread.

    Partitions with unreadable rows are among them: opening one logs what is wrong.
    """
    due = []
    for index, committed_offset in committed.items():
        try:
            is_due = _is_due(topic, store, index, committed_offset, now_ms)
        except (LedgerError, TopicsError):
            is_due = True
        if is_due:
            due.append(index)
    return due


def _is_due(
    topic: Topic, store: LedgerStore, index: int, committed_offset: int | None, now_ms: int
) -> bool:
    keys, name = PartitionKeys(topic.id, index), topic.ledger_name(index)
    ledgers, compacted = store.stored_ledgers(name), store.stored_compacted(name)
    if ledgers is None:
        return True
    log_start_row = store.get_row(keys.log_start)
    log_start = records.decode_log_start(log_start_row) if log_start_row else 0
    ledger_summaries = {
        ledger_id: records.decode_ledger_summary(ledger_id, row)
        for key, row in store.scan_rows(keys.ledger_summaries)
        for ledger_id in ids_after(key, keys.ledger_summaries)
    }
    if compacted is not None and compacted.ledger_id in ledger_summaries:
        upto = released_upto(
            IndexRows(store, keys),
            compacted,
            ledger_summaries[compacted.ledger_id],
            topic.config,
            appended_bytes=sum(each.size for each in ledgers),
            now_ms=now_ms,
        )
        if upto > log_start:
            return True
    return is_any_due(
        ledgers,
        ledger_summaries,
        topic.config,
        log_start_offset=log_start,
        committed_offset=committed_offset,
        now_ms=now_ms,
    )
