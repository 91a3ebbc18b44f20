"""Partition loader: opens a partition and rebuilds its state from log and rows.

Rule: the log decides. The log end is the end of its last batch; rows only say where reading may
begin, and rows about entries beyond the log are ignored. Reading is bounded by the distance of
checkpoints and index intervals.
Must not know: why the partition was closed.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from kledger.batches.buffers import Buffer
from kledger.batches.errors import BatchError
from kledger.batches.header import BatchHeader, read_header
from kledger.batches.reader import read_marker
from kledger.ledger import (
    EARLIEST,
    LedgerError,
    LedgerInfo,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
)
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.topics.config.topic_config import TopicConfig, TopicDefaults
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition import records
from kledger.topics.partition.compacted_log import CompactedLog
from kledger.topics.partition.index_rows import IndexRows
from kledger.topics.partition.leader_epoch_state import FIRST_EPOCH, LeaderEpochHistory
from kledger.topics.partition.log_trimmer import LogTrimmer
from kledger.topics.partition.offload_plan import offload_policies
from kledger.topics.partition.offset_index import IndexRow, OffsetIndex, interval_bytes
from kledger.topics.partition.offset_lookup import OffsetLookup
from kledger.topics.partition.partition_checkpointer import PartitionCheckpointer, ledger_config
from kledger.topics.partition.partition_compaction import PartitionCompaction
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.partition_offload import PartitionIdentity, PartitionOffload
from kledger.topics.partition.partition_state import PartitionState, TailState
from kledger.topics.partition.partition_tier import PartitionOffloader
from kledger.topics.partition.producer_state import ProducerTable
from kledger.topics.partition.results import from_ledger_error
from kledger.topics.partition.transaction_state import AbortedTransaction, TransactionEnd
from kledger.topics.partition_name import managed_ledger_name

logger = logging.getLogger(__name__)

REPLAY_ENTRIES = 512
REPLAY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionContext:
    """The partition to open, and what its log is made of.

    Attributes:
        config: of the topic.
        leader_epoch: under which this server leads the partition.
        supervisor: owns work that continues after its caller was cancelled.
        driver: the tier; None: the server has none.
        first_cursors: durable cursors that it gets if it has no record.
    """

    store: LedgerStore
    topic: str
    topic_id: UUID
    index: int
    config: TopicConfig
    defaults: TopicDefaults
    clock: Clock
    supervisor: Supervisor
    leader_epoch: int = FIRST_EPOCH
    driver: PartitionOffloader | None = None
    first_cursors: Collection[str] = ()

    @property
    def partition(self) -> str:
        """Topic and index, for errors."""
        return f"{self.topic}-{self.index}"

    @property
    def name(self) -> str:
        """Name of its managed ledger."""
        return managed_ledger_name(self.topic, self.topic_id, self.index)

    @property
    def ledger_config(self) -> ManagedLedgerConfig:
        """Settings of its managed ledger, with Pulsar's name of a partition."""
        return ledger_config(
            self.config,
            offload_policies(self.config, self.driver),
            shown_as=f"{self.topic}-partition-{self.index}",
        )


def create_partition(
    context: PartitionContext, lost: Callable[[LedgerError], None]
) -> PartitionLog | None:
    """Make the log of a partition of which nothing is stored, without waiting.

    Args:
        context: of the partition.
        lost: called if the log could not be stored, before the callers of its appends are.

    Returns:
        None if something is stored, or is being changed: `open_partition` waits for that.

    Raises:
        TopicStorageFailed: the store has stopped.
    """
    try:
        ledger = context.store.create_managed_ledger_nowait(
            context.name, config=context.ledger_config, lost=lost
        )
    except LedgerError as error:
        raise from_ledger_error(error) from error
    return None if ledger is None else _PartitionLoader(context, ledger).make_log()


async def open_partition(context: PartitionContext) -> PartitionLog:
    """Open a partition, or make it.

    Raises:
        TopicStorageFailed: its managed ledger or its rows cannot be read, or it was written under a
            newer leader epoch.
    """
    try:
        ledger = await context.store.open_managed_ledger(context.name, config=context.ledger_config)
        opening = _PartitionLoader(context, ledger)
        opening.load_rows()
        await opening.replay(context.clock.now_ms())
        log = opening.make_log()
        if context.first_cursors and not log.high_watermark:
            await ledger.change_cursors(added=context.first_cursors)
        await opening.trimmer.remove_stale_rows()
        await opening.trimmer.complete_log_start(log.locate)
    except LedgerError as error:
        raise from_ledger_error(error) from error
    except BatchError as error:
        raise TopicStorageFailed(
            f"{context.partition}: stored entry is no batch: {error}"
        ) from error
    return log


class _PartitionLoader:
    """Collects the state step by step."""

    def __init__(self, context: PartitionContext, ledger: ManagedLedger) -> None:
        config, defaults = context.config, context.defaults
        self.context = context
        self.store = context.store
        self.ledger = ledger
        self.keys = PartitionKeys(context.topic_id, context.index)
        self.index = OffsetIndex(interval_bytes(config.segment_bytes))
        self.rows = IndexRows(self.store, self.keys)
        self.tail = TailState()
        self.producers = ProducerTable(
            expiration_ms=config.producer_id_expiration_ms, count_max=defaults.producers_max
        )
        self.state = PartitionState(producers=self.producers, log_start_offset=0, next_offset=0)
        self.checkpoint_at = EARLIEST
        self.indexed_from = EARLIEST
        self.index_rows: list[IndexRow] = []
        self.aborted: list[AbortedTransaction] = []
        self.entries = 0
        self.size = 0
        self.last = Position(-1, -1)
        self.trimmer: LogTrimmer

    def load_rows(self) -> None:
        """Read the rows that the log confirms."""
        checkpoint = self._load_checkpoint()
        log_start_row = self.store.get_row(self.keys.log_start)
        log_start = 0
        if log_start_row:
            log_start = records.decode_log_start(log_start_row, self.context.partition)
        next_offset = log_start
        if checkpoint is not None:
            next_offset = max(next_offset, checkpoint.next_offset)
            self.last = self.checkpoint_at
        self._load_index()
        self.state = PartitionState(
            producers=self.producers,
            log_start_offset=min(log_start, next_offset),
            next_offset=next_offset,
        )
        if deleted_row := self.store.get_row(self.keys.deleted_before):
            deleted = records.decode_log_start(deleted_row, self.context.partition)
            self.state.deleted_before_offset = min(deleted, next_offset)
        if checkpoint is not None:
            self.state.restore(checkpoint.producers.items())
            self.state.epochs = LeaderEpochHistory(checkpoint.epochs)
            self.producers.coordinator_epochs.update(checkpoint.coordinator_epochs)
            self._load_aborted(checkpoint.next_offset)

    def _load_aborted(self, end_offset: int) -> None:
        """Read the aborted transactions whose markers lie before an offset.

        In a terminated log some have no marker; their offsets lie after its end.
        """
        for key, row in self.store.scan_rows(self.keys.aborted):
            (last_offset,) = ids_after(key, self.keys.aborted)
            if last_offset < end_offset or self.ledger.is_terminated:
                aborted = records.decode_aborted(last_offset, row)
                self.state.transactions.aborted.add(aborted)

    def _load_checkpoint(self) -> records.Checkpoint | None:
        row = self.store.get_row(self.keys.checkpoint)
        if row is None:
            return None
        checkpoint = records.decode_checkpoint(row, self.context.partition)
        position = Position(checkpoint.ledger_id, checkpoint.entry_id)
        if position > self.ledger.last_confirmed_entry:
            logger.warning(
                "checkpoint of %s at %s is beyond its log end %s; the log is read instead",
                self.ledger.name, position, self.ledger.last_confirmed_entry,
            )  # fmt: skip
            return None
        self.checkpoint_at = position
        return checkpoint

    def _load_index(self) -> None:
        """Read the summaries up to the first ledger without one, and where its intervals end."""
        ledger_summaries = {}
        for key, row in self.store.scan_rows(self.keys.ledger_summaries):
            (ledger_id,) = ids_after(key, self.keys.ledger_summaries)
            ledger_summaries[ledger_id] = records.decode_ledger_summary(ledger_id, row)
        for info in self.ledger.ledgers:
            if not info.entries:
                continue
            ledger_summary = ledger_summaries.get(info.ledger_id)
            if ledger_summary is None:
                self._resume_index(info)
                return
            self.index.add_summary(ledger_summary)
            self.indexed_from = Position(info.ledger_id + 1, 0)

    def _resume_index(self, info: LedgerInfo) -> None:
        """Continue after the last interval that lies within the ledger's entries."""
        ledger_id, entries = info.ledger_id, info.entries
        first = self.rows.last_from(ledger_id, 0)
        newest = self.rows.last_from(ledger_id, entries)
        while newest is not None and newest.end_entry > entries and newest.first_entry:
            newest = self.rows.last_from(ledger_id, newest.first_entry - 1)
        self.indexed_from = Position(ledger_id, 0)
        if first is not None and newest is not None and newest.end_entry <= entries:
            self.index.resume(ledger_id, first.first_offset, newest)
            self.indexed_from = Position(ledger_id, newest.end_entry)

    async def replay(self, now_ms: int) -> None:
        """Read the headers that neither checkpoint nor index cover."""
        position = min(self.checkpoint_at.successor, self.indexed_from)
        async for entries in self.ledger.read_in_chunks(
            position, count=REPLAY_ENTRIES, bytes_max=REPLAY_BYTES
        ):
            for at, buffer in entries:
                self._take(at, read_header(buffer), buffer, now_ms)

    def _take(self, at: Position, header: BatchHeader, batch: Buffer, now_ms: int) -> None:
        next_offset, size = header.last_offset + 1, len(batch)
        self.tail.append(header.base_offset, size, header.max_timestamp, at[0], at[1])
        if at >= self.indexed_from:
            self.index_rows += self.index.add_entry(
                at[0],
                at[1],
                base_offset=header.base_offset,
                next_offset=next_offset,
                size=size,
                max_timestamp=header.max_timestamp,
            )
        if at > self.checkpoint_at:
            if header.is_control:
                end = TransactionEnd(header.producer_id, header.producer_epoch, *read_marker(batch))
                aborted = self.state.replay_marker(header, end, now_ms)
                if aborted is not None:
                    self.aborted.append(aborted)
            else:
                self.state.replay(header, now_ms)
            self.entries += 1
            self.size += size
            self.last = at

    def make_log(self) -> PartitionLog:
        """Make the log, with what writes and removes its rows."""
        context, state = self.context, self.state
        ledger_summaries = self.index.all_summaries()
        compacted = self._load_compacted()
        if compacted is None:
            # The log begins at its first entry or later; without entries, where it ends.
            first = ledger_summaries[0].first_offset if ledger_summaries else state.next_offset
            state.log_start_offset = max(state.log_start_offset, first)
        state.log_start_offset = min(state.log_start_offset, state.next_offset)
        self._begin_epoch()
        checkpointer = PartitionCheckpointer(
            store=self.store,
            ledger=self.ledger,
            keys=self.keys,
            state=state,
            index=self.index,
            supervisor=context.supervisor,
        )
        checkpointer.resume(self.last, entries=self.entries, size=self.size)
        checkpointer.write_rows(self.index_rows, self.aborted)
        removing = asyncio.Lock()
        compaction = PartitionCompaction(
            topic=context.topic,
            partition=context.index,
            store=self.store,
            ledger=self.ledger,
            keys=self.keys,
            state=state,
            compacted=compacted,
            removing=removing,
            clock=context.clock,
        )
        offload = self._make_offload()
        self.trimmer = LogTrimmer(
            store=self.store,
            ledger=self.ledger,
            keys=self.keys,
            state=state,
            index=self.index,
            checkpointer=checkpointer,
            supervisor=context.supervisor,
            compaction=compaction,
            removing=removing,
            removed=offload.ledgers_removed,
        )
        return PartitionLog(
            topic=context.topic,
            topic_id=context.topic_id,
            index=context.index,
            ledger=self.ledger,
            state=state,
            tail=self.tail,
            checkpointer=checkpointer,
            trimmer=self.trimmer,
            lookup=OffsetLookup(self.store, self.ledger, self.rows, self.index),
            compaction=compaction,
            offload=offload,
            config=context.config,
            clock=context.clock,
            containment=context.supervisor.containment,
            compute_pool=self.store.compute_pool,
        )

    def _begin_epoch(self) -> None:
        """Begin the epoch of this leader at the end of the log.

        No row says so: its batches do. Without any it would begin here once more.

        Raises:
            TopicStorageFailed: the log has a newer one, so this server must not lead it.
        """
        epoch, epochs = self.context.leader_epoch, self.state.epochs
        if epoch < epochs.latest:
            raise TopicStorageFailed(
                f"{self.context.partition}: opened under leader epoch {epoch}, expected at least "
                f"{epochs.latest}, as it was written under that"
            )
        epochs.begin(epoch, self.state.next_offset)

    def _make_offload(self) -> PartitionOffload:
        context = self.context
        return PartitionOffload(
            PartitionIdentity(topic=context.topic, topic_id=context.topic_id, index=context.index),
            store=self.store,
            ledger=self.ledger,
            keys=self.keys,
            state=self.state,
            index=self.index,
            driver=context.driver,
            supervisor=context.supervisor,
        )

    def _load_compacted(self) -> CompactedLog | None:
        """Describe the compacted ledger. Raises UnreadableRow."""
        compacted = self.ledger.compacted
        if compacted is None:
            return None
        row = self.store.get_row(self.keys.ledger_summary(compacted.ledger_id))
        summary = records.decode_ledger_summary(compacted.ledger_id, row or b"")
        return CompactedLog(self.store, self.ledger, self.keys, compacted, summary)
