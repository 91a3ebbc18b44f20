"""Log trimmer: removes the beginning of a partition's log. A shell.

Retention and DeleteRecords call it.

Rule: the new log start is durable before anything is removed, cursors move last; one removal at a
time. What a crash leaves of a removal, the next opening completes; if it cannot, the next removal.
Must not know: appends, readers, when retention runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

from kledger.ledger import (
    EARLIEST,
    LATEST,
    CompactedLedgerReplaced,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    Position,
    Row,
)
from kledger.runtime.tasks import Supervisor
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.errors import TopicsError
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import records
from kledger.topics.partition.compacted_expiry import released_upto
from kledger.topics.partition.offset_index import UNKNOWN, OffsetIndex
from kledger.topics.partition.partition_checkpointer import PartitionCheckpointer
from kledger.topics.partition.partition_compaction import PartitionCompaction
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.results import LogLocation
from kledger.topics.partition.retention_plan import KeptLedger, Removal, plan_removal

logger = logging.getLogger(__name__)

DELETED_ROWS_MAX = 1000
"""Rows that are removed in one write."""
Locate: TypeAlias = Callable[[int], Awaitable[LogLocation]]


class LogTrimmer:
    """Removals from one partition."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        ledger: ManagedLedger,
        keys: PartitionKeys,
        state: PartitionState,
        index: OffsetIndex,
        checkpointer: PartitionCheckpointer,
        supervisor: Supervisor,
        compaction: PartitionCompaction,
        removing: asyncio.Lock,
        removed: Callable[[], None],
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._keys = keys
        self._state = state
        self._index = index
        self._compaction = compaction
        self._checkpointer = checkpointer
        self._supervisor = supervisor
        self._removing = removing
        """Held by a removal, and while a compaction begins."""
        self._removed = removed
        """Called when ledgers were removed."""
        self._locate_later: Locate | None = None
        """Set while cursors are before the log start, as its entry could not be read."""

    @cached_property
    def _raising(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def close(self) -> None:
        """Wait for the end of a removal, then close the checkpointer.

        Raises:
            LedgerError: the checkpoint was not stored.
        """
        async with self._removing, self._raising:
            await self._checkpointer.close()

    async def delete_before(self, offset: int, moved: Callable[[], None], locate: Locate) -> None:
        """Make the log begin at an offset: durably, then in memory, then for its cursors.

        Records before it are deleted from what a compaction has kept, too.

        A caller that is cancelled does not stop it halfway.

        Args:
            offset: the log start to be.
            moved: called when the log start has moved in memory.
            locate: `PartitionLog.locate`.

        Raises:
            LedgerError, TopicsError: it was not stored, or the entry at the offset cannot be read;
                the caller may try again.
        """

        async def work() -> None:
            # An entry that cannot be read stops this before anything is stored: cursors that stay
            # behind a log start would deliver records that DeleteRecords has removed.
            located = None
            if self._ledger.has_cursors:
                located = await self._locate_starts(offset, locate)
            await self._raise_log_start(offset, moved, deletes=True)
            if located is None:  # cursors that were opened meanwhile
                await self.move_cursors_to_log_start(locate)
            else:
                self._acknowledge_before(located)

        await self._supervisor.finish(work(), f"log start of {self._ledger.name}")

    async def _raise_log_start(
        self, offset: int, moved: Callable[[], None], *, deletes: bool = False
    ) -> None:
        """Args: deletes: whether the records before it are deleted from what was kept, too."""
        async with self._raising:  # the row of a lower offset must not replace this one
            state, encoded = self._state, records.encode_log_start(offset)
            is_raised = offset > state.log_start_offset
            rows: list[Row] = []
            if deletes and offset > state.deleted_before_offset:
                rows.append((self._keys.deleted_before, encoded))
            if is_raised:
                rows += [(self._keys.log_start, encoded), await self._checkpointer.checkpoint_row()]
            if rows:
                await self._store.put_rows(rows)
            if deletes:
                state.deleted_before_offset = max(offset, state.deleted_before_offset)
            if is_raised and state.raise_log_start(offset):
                moved()

    async def complete_log_start(self, locate: Locate) -> None:
        """Move the cursors to the log start, as a DeleteRecords that a crash interrupted had to.

        If the entry at the log start cannot be read, the next removal tries again.

        Args:
            locate: `PartitionLog.locate`.
        """
        try:
            await self.move_cursors_to_log_start(locate)
        except (LedgerError, TopicsError) as error:
            self._locate_later = locate
            logger.warning("cursors of %s are before its log start: %s", self._ledger.name, error)
        else:
            self._locate_later = None

    async def move_cursors_to_log_start(self, locate: Locate) -> None:
        """Acknowledge for every cursor the records before the log start.

        For cursors that read compacted, only those that DeleteRecords has removed.

        Raises:
            LedgerError, TopicsError: the entry at the log start cannot be read.
        """
        if self._ledger.has_cursors:
            self._acknowledge_before(await self._locate_starts(0, locate))

    async def _locate_starts(
        self, offset: int, locate: Locate
    ) -> tuple[LogLocation, LogLocation | None]:
        """Return where the log begins, at `offset` or later, and where what was kept does.

        The second is None if nothing was deleted from it.
        """
        start = await locate(max(offset, self._state.log_start_offset))
        deleted = max(offset, self._state.deleted_before_offset)
        while (compacted := self._compaction.compacted) and deleted < compacted.end_offset:
            if not deleted:
                return start, None
            with suppress(CompactedLedgerReplaced):
                return start, await compacted.locate(deleted)
        return start, await locate(deleted)

    def _acknowledge_before(self, starts: tuple[LogLocation, LogLocation | None]) -> None:
        for location, reads_compacted in zip(starts, (False, True), strict=True):
            if location is not None:
                self._ledger.acknowledge_before(
                    location.position,
                    records=location.batch_index,
                    batch_size=location.batch_size,
                    compacted=reads_compacted,
                )

    async def remove_old(
        self,
        config: TopicConfig | None,
        now_ms: int,
        moved: Callable[[], None],
        *,
        committed_offset: int | None = None,
    ) -> None:
        """Remove the ledgers that neither log start nor configuration keeps.

        A caller that is cancelled does not stop it halfway.

        Args:
            config: of the topic; None: remove only what lies before the log start.
            now_ms: wall time.
            moved: called when the log start has moved.
            committed_offset: the lowest that a group has committed; None if no group has committed.

        Raises:
            LedgerError: it was not stored; the next call removes the rest.
        """
        work = self._remove_old(config, now_ms, moved, committed_offset)
        await self._supervisor.finish(work, f"removal from {self._ledger.name}")

    async def _remove_old(
        self,
        config: TopicConfig | None,
        now_ms: int,
        moved: Callable[[], None],
        committed_offset: int | None,
    ) -> None:
        def kept_ledgers() -> list[KeptLedger]:
            return self._kept_ledgers(self._unconsumed_from(config, committed_offset))

        async with self._removing:
            if self._locate_later is not None:
                await self.complete_log_start(self._locate_later)
            if self._ledger.is_compacting:
                return  # it reads everything twice; the next call removes the rest
            await self._remove_compacted(config)
            await self._expire_compacted(config, now_ms, moved)
            removal = self._plan(config, now_ms, kept_ledgers())
            if removal is not None and removal.is_roll_needed:
                await self._ledger.roll_over()
                # Records that were appended meanwhile may be in the ledger that was to be removed.
                closed = [each for each in kept_ledgers() if not each.is_open]
                removal = self._plan(config, now_ms, closed)
            if removal is None:
                return
            oldest = self._ledger.ledgers[0].ledger_id
            await self._raise_log_start(removal.next_offset, moved)
            await self._ledger.trim_before(Position(removal.ledger_id + 1, 0))
            self._removed()
            self._checkpointer.forget_before(removal.ledger_id + 1)
            await self.remove_stale_rows(oldest)

    async def remove_compacted(self, config: TopicConfig) -> None:
        """Remove the ledgers for which the compacted log stands, if all readers read that.

        A caller that is cancelled does not stop it halfway. Raises LedgerError: the next call
        removes the rest.
        """

        async def work() -> None:
            async with self._removing:
                await self._remove_compacted(config)

        await self._supervisor.finish(work(), f"removal from {self._ledger.name}")

    async def _remove_compacted(self, config: TopicConfig | None) -> None:
        compacted = self._ledger.compacted
        if config is None or compacted is None or not config.is_compacted:
            return
        kept_from = compacted.horizon.successor
        if config.waits_for_subscriptions:
            slowest = self._ledger.slowest_position
            kept_from = min(kept_from, (slowest or LATEST).successor)
        removed = [
            each.ledger_id
            for each in self._ledger.ledgers[:-1]
            if Position(each.ledger_id, each.entries) <= kept_from
        ]
        if not removed:
            return
        oldest, kept = removed[0], removed[-1] + 1
        # Without its batches only this row says what the next offset is.
        await self._store.put_rows([await self._checkpointer.checkpoint_row()])
        await self._ledger.trim_before(Position(kept, 0))
        self._removed()
        self._checkpointer.forget_before(kept)
        await self.remove_stale_rows(oldest)

    async def _expire_compacted(
        self, config: TopicConfig | None, now_ms: int, moved: Callable[[], None]
    ) -> None:
        """Raise the log start over what the policy `delete` releases of the compacted log."""
        log, first_appended = self._compaction.compacted, self._index.first_offset
        if log is None or config is None or not config.is_anything_deleted:
            return
        end = min(log.end_offset, first_appended)
        if end <= self._state.log_start_offset:
            return
        released = partial(
            released_upto,
            log.rows,
            log.compacted,
            log.summary,
            config,
            appended_bytes=self._ledger.total_size,
            now_ms=now_ms,
        )
        await self._raise_log_start(min(await self._store.run_blocking(released), end), moved)

    async def remove_stale_rows(self, since_ledger_id: int = 0) -> None:
        """Remove the rows of removed ledgers: the step of a removal that a crash may have skipped.

        Args:
            since_ledger_id: rows of older ledgers are known to be removed.

        Raises:
            LedgerError: it was not stored.
        """
        ledgers = self._ledger.ledgers
        if not ledgers:  # the partition was terminated before its first record
            return
        kept = ledgers[0].ledger_id
        for start_id, end_id in self._stale_ids(since_ledger_id, kept):
            keys = self._keys
            for key_of in (keys.ledger_intervals, keys.ledger_summary, keys.first_timestamp):
                await self._remove_rows(key_of(start_id), key_of(end_id))
        log_start = self._state.log_start_offset
        if self._ledger.compacted is not None:  # it has no records of aborted transactions
            log_start = max(log_start, min(self._index.first_offset, self._state.high_watermark))
        if self._state.transactions.aborted.remove_before(log_start):
            await self._remove_rows(self._keys.aborted_at(0), self._keys.aborted_at(log_start))

    def _stale_ids(self, since_id: int, end_id: int) -> list[tuple[int, int]]:
        """Return ranges of ledger ids, without that of the compacted ledger."""
        compacted = self._ledger.compacted
        if compacted is None or not since_id <= compacted.ledger_id < end_id:
            return [(since_id, end_id)]
        return [(since_id, compacted.ledger_id), (compacted.ledger_id + 1, end_id)]

    async def _remove_rows(self, start: bytes, end: bytes) -> None:
        scan = partial(self._store.scan_rows_between, start, end, limit=DELETED_ROWS_MAX)
        while stale := await self._store.run_blocking(scan):
            await self._store.put_rows([(key, None) for key, _ in stale])

    def _plan(
        self, config: TopicConfig | None, now_ms: int, ledgers: list[KeptLedger]
    ) -> Removal | None:
        start = self._state.log_start_offset
        return plan_removal(ledgers, config, log_start_offset=start, now_ms=now_ms)

    def _unconsumed_from(
        self, config: TopicConfig | None, committed_offset: int | None
    ) -> "_UnconsumedFrom":
        """Find what must stay for subscriptions, groups and compactions that the topic awaits."""
        position, offset = LATEST, UNKNOWN
        if config is not None and config.waits_for_subscriptions:
            position = self._ledger.slowest_position or LATEST
        if config is not None and config.compaction_threshold_bytes and not config.is_compacted:
            compacted = self._ledger.compacted
            position = min(position, EARLIEST if compacted is None else compacted.horizon)
        if config is not None and config.waits_for_groups and committed_offset is not None:
            offset = committed_offset
        return _UnconsumedFrom(position, offset)

    def _kept_ledgers(self, unconsumed: "_UnconsumedFrom") -> list[KeptLedger]:
        known = {
            ledger_summary.ledger_id: ledger_summary
            for ledger_summary in self._index.all_summaries()
        }
        kept = []
        for info in self._ledger.ledgers:
            ledger_summary = known.get(info.ledger_id)
            if ledger_summary is None or not info.entries:
                continue
            newest = ledger_summary.max_timestamp
            if newest < 0:  # no record of it has a time
                newest = info.closed_ms if info.closed_ms is not None else UNKNOWN
            is_open = info.closed_ms is None
            last = Position(info.ledger_id, info.entries - 1)
            is_unconsumed = (
                last > unconsumed.position or ledger_summary.next_offset > unconsumed.offset
            )
            kept.append(
                KeptLedger(
                    info.ledger_id,
                    info.size,
                    ledger_summary.next_offset,
                    newest,
                    is_open,
                    is_unconsumed,
                )
            )
        return kept


class _UnconsumedFrom(NamedTuple):
    """What must stay: all after the position, for subscriptions; from the offset on, for groups."""

    position: Position
    offset: int
