"""Partition compaction: rewrites the beginning of a partition without what newer records replace.

Rule: the input is what the last compaction has kept and the log behind it, up to a horizon; it is
read twice, first to find the newest record of each key, then to copy. While the compute process has
one chunk of it, the next one is read and handed over. Nothing is visible before the whole is:
readers change over between two reads. Whatever ends a run early changes nothing. Nothing is removed
from the partition while it runs, and one runs at a time.
Must not know: when to compact, how records are compared.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, NamedTuple

from kledger.batches.buffers import Buffer
from kledger.batches.header import read_header
from kledger.ledger import (
    EARLIEST,
    AlreadyClosed,
    CompactedLedgerReplaced,
    CompactionWriter,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    Position,
    Row,
)
from kledger.runtime.blocking import PoolClosed
from kledger.runtime.clock import Clock
from kledger.runtime.compute_process import ComputeProcessDied
from kledger.runtime.compute_session import ComputeSession
from kledger.topics.compaction.compaction_calls import (
    PROCESS_BYTES_MIN,
    begin_run,
    compare_batches,
    count_records,
    index_batches,
    rebuild_batches,
)
from kledger.topics.compaction.compaction_rules import (
    BatchOutcome,
    CompactionCounts,
    CompactionRules,
    RebuiltBatch,
    TooManyRecords,
)
from kledger.topics.compaction.strategy_rule import OpenStrategy, StrategyRule, no_strategies
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.errors import CompactionRunning, TopicStorageFailed
from kledger.topics.io_throttle import IoThrottle
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition import records
from kledger.topics.partition.compacted_log import (
    CompactedBatch,
    CompactedLog,
    CompactedUpTo,
    new_entry,
)
from kledger.topics.partition.offset_index import (
    IndexRow,
    LedgerSummary,
    OffsetIndex,
    interval_bytes,
)
from kledger.topics.partition.partition_state import PartitionState
from kledger.topics.partition.results import translated_errors

if TYPE_CHECKING:
    from kledger.topics.compaction.compaction_run import CompactionRun

CHUNK_ENTRIES = 4096
CHUNK_BYTES = 2 << 20
"""What the compute process gets in one call; meanwhile the next chunk is read, and what it has made
of the one before is stored."""
STEP_ENTRIES = 32
STEP_BYTES = 1 << 20
"""What is read or stored at a time, so that the event loop does little for it in one tick."""


class CompactionState(StrEnum):
    """How far the last compaction of a partition has come."""

    NOT_RUN = "not_run"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCompactionStatus:
    """The last compaction of a partition.

    Attributes:
        error: why it failed; empty unless it did.
        started_ms, ended_ms: wall time; None if it is not known, or has not come.
        horizon: the last position that is compacted; None before the first success.
    """

    state: CompactionState
    error: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    horizon: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """What a compaction may use.

    Attributes:
        memory_bytes_max: for the table of keys; what it does not hold goes to files.
        temporary_folder: of these files, which have no name; None is the system's.
        open_strategy: imports the strategy of a topic, in the compute process.
        throttles: of what is read and written.
    """

    memory_bytes_max: int = 64 << 20
    temporary_folder: Path | None = None
    open_strategy: OpenStrategy = no_strategies
    throttles: tuple[IoThrottle, ...] = ()

    async def take(self, size: int) -> None:
        """Wait until bytes may be read or written."""
        for each in self.throttles:
            await each.take(size)


class PartitionCompaction:
    """The compactions of one partition."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        store: LedgerStore,
        ledger: ManagedLedger,
        keys: PartitionKeys,
        state: PartitionState,
        compacted: CompactedLog | None,
        removing: asyncio.Lock,
        clock: Clock,
    ) -> None:
        """Make one.

        Args:
            topic: its short name.
            partition: its number.
            store: of the ledger.
            ledger: of the partition.
            keys: of its rows.
            state: of the partition.
            compacted: what is stored.
            removing: held while something is removed from the partition.
            clock: dates the runs.
        """
        self._topic = topic
        self._partition = partition
        self._name = f"{topic}-{partition}"
        self._store = store
        self._ledger = ledger
        self._keys = keys
        self._state = state
        self._removing = removing
        self._clock = clock
        self._compacted = compacted
        self._completing: LedgerSummary | None = None
        """Of the ledger that is about to become visible; kept until it does, or another is."""
        self.status = PartitionCompactionStatus(state=CompactionState.NOT_RUN)
        """Of the last run; of one before the partition was opened only a success is known."""
        if compacted is not None:
            self.status = PartitionCompactionStatus(
                state=CompactionState.SUCCESS,
                ended_ms=compacted.compacted.compacted_ms,
                horizon=compacted.compacted.horizon,
            )

    @property
    def compacted(self) -> CompactedLog | None:
        """What the last success has kept."""
        return self._compacted

    async def horizon(self) -> CompactedUpTo | None:
        """Return the last record that is compacted; None before the first success.

        Raises:
            TopicStorageFailed: it cannot be read.
        """
        while self._compacted is not None:
            with translated_errors(), suppress(CompactedLedgerReplaced):
                return await self._compacted.upto()
        return None

    def take_over(self) -> bool:
        """Use what a run has completed, if it is visible now; return whether it was.

        The run may have been cancelled since: what it has submitted becomes visible all the same.
        """
        summary, present = self._completing, self._ledger.compacted
        if summary is None or present is None or present.ledger_id != summary.ledger_id:
            return False
        self._completing = None
        self._compacted = CompactedLog(self._store, self._ledger, self._keys, present, summary)
        self._succeeded()
        return True

    async def run(
        self, horizon: Position, config: TopicConfig, limits: CompactionLimits
    ) -> CompactionCounts:
        """Compact everything up to a position.

        Args:
            horizon: an entry before the last stable offset, not before the present horizon.
            config: of the topic.
            limits: what it may use.

        Raises:
            CompactionRunning: one runs.
            StrategyNotAllowed, StrategyFailed: because of the topic's strategy; nothing has
                changed.
            TopicStorageFailed: something could not be read or stored; nothing has changed.
            CorruptMessage: a stored batch cannot be read; nothing has changed.
        """
        started_ms, before = self._clock.now_ms(), self.status
        if self._ledger.is_compacting:
            raise CompactionRunning(f"a compaction of {self._name} runs already")
        self.status = PartitionCompactionStatus(
            state=CompactionState.RUNNING, started_ms=started_ms, horizon=before.horizon
        )
        try:
            config.check_strategy()
            with translated_errors():
                counted = await self._begin_and_run(horizon, config, limits, started_ms)
        except BaseException as error:
            if self.status.state is CompactionState.RUNNING:  # else it was taken over
                self.status = PartitionCompactionStatus(
                    state=CompactionState.ERROR,
                    error=str(error) or type(error).__name__,
                    started_ms=started_ms,
                    ended_ms=self._clock.now_ms(),
                    horizon=before.horizon,
                )
            raise
        self._succeeded()
        return counted

    def _succeeded(self) -> None:
        present = self._ledger.compacted
        self.status = PartitionCompactionStatus(
            state=CompactionState.SUCCESS,
            started_ms=self.status.started_ms,
            ended_ms=self._clock.now_ms(),
            horizon=None if present is None else present.horizon,
        )

    async def _begin_and_run(
        self, horizon: Position, config: TopicConfig, limits: CompactionLimits, now_ms: int
    ) -> CompactionCounts:
        async with self._removing:
            writer = await self._ledger.begin_compaction()
        try:
            return await self._run(writer, horizon, config, limits, now_ms)
        except BaseException:
            with suppress(LedgerError):  # the next run or opening drops what it has written
                await writer.abort()
            raise

    async def _run(
        self,
        writer: CompactionWriter,
        horizon: Position,
        config: TopicConfig,
        limits: CompactionLimits,
        now_ms: int,
    ) -> CompactionCounts:
        log_start = self._state.log_start_offset
        source = _Source(
            self._ledger,
            self._compacted,
            horizon,
            limits,
            log_start=log_start,
            compacted_start=log_start if config.is_compacted else self._state.deleted_before_offset,
        )
        rules = CompactionRules(
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            aborted=self._aborted(),
            memory_bytes_max=limits.memory_bytes_max,
            temporary_folder=str(limits.temporary_folder or gettempdir()),
            strategy=self._strategy(config, limits),
        )
        target = _Target(writer, interval_bytes(config.segment_bytes), limits)
        try:
            async with self._store.compute_pool.session(
                begin_run, rules, memory_bytes_max=PROCESS_BYTES_MIN + limits.memory_bytes_max
            ) as session:
                await _index(session, source, has_strategy=rules.strategy is not None)
                await _copy(session, source, target)
                counted: CompactionCounts = await session.call(count_records, [])
        except PoolClosed:
            raise AlreadyClosed("the store was closed during a compaction") from None
        except (ComputeProcessDied, TooManyRecords, OSError) as error:
            raise TopicStorageFailed(f"{self._name} was not compacted: {error}") from error
        if writer.entries:
            await self._complete(target, horizon)
        else:
            await writer.abort()  # everything lies before the log start
        return counted

    def _strategy(self, config: TopicConfig, limits: CompactionLimits) -> StrategyRule | None:
        if not config.compaction_strategy:
            return None
        return StrategyRule(
            config.compaction_strategy, self._topic, self._partition, limits.open_strategy
        )

    async def _complete(self, target: "_Target", horizon: Position) -> None:
        """Make the result visible; from the tick on in which it is, `take_over` uses it."""
        summary, index_rows = target.finish()
        rows = [self._row_of(each) for each in index_rows]
        rows += await self._removed_rows()
        self._completing = summary
        await target.writer.complete(horizon, rows)

    def _row_of(self, row: IndexRow) -> Row:
        if isinstance(row.content, LedgerSummary):
            encoded = records.encode_ledger_summary(row.content)
            return self._keys.ledger_summary(row.ledger_id), encoded
        key = self._keys.interval(row.ledger_id, row.content.first_entry)
        return key, records.encode_interval(row.content)

    async def _removed_rows(self) -> list[Row]:
        """Return what removes the rows of the present compacted ledger."""
        present = self._ledger.compacted
        if present is None:
            return []
        start = self._keys.ledger_intervals(present.ledger_id)
        end = self._keys.ledger_intervals(present.ledger_id + 1)
        found = await self._store.run_blocking(self._store.scan_rows_between, start, end)
        removed: list[Row] = [(key, None) for key, _ in found]
        return [*removed, (self._keys.ledger_summary(present.ledger_id), None)]

    def _aborted(self) -> tuple[tuple[int, int, int], ...]:
        """Producer, first and last offset of all aborted transactions."""
        everything = self._state.transactions.aborted.between(0, self._state.high_watermark)
        return tuple((each.producer_id, each.first_offset, each.last_offset) for each in everything)


class _Chunk(NamedTuple):
    """Consecutive batches of the input, at least one; `is_end` with the last one."""

    batches: list[CompactedBatch]
    is_end: bool


class _Source:
    """The input of one run: what the last one has kept, then what was appended since.

    It is read twice, and is the same both times, as nothing is removed during a run.
    """

    def __init__(
        self,
        ledger: ManagedLedger,
        compacted: CompactedLog | None,
        horizon: Position,
        limits: CompactionLimits,
        *,
        log_start: int,
        compacted_start: int,
    ) -> None:
        """Args: log_start, compacted_start: batches before these offsets are left out."""
        self._ledger = ledger
        self._compacted = compacted
        self._horizon = horizon
        self._limits = limits
        self._log_start = log_start
        self._compacted_start = compacted_start

    async def chunks(self) -> AsyncIterator[_Chunk]:
        """Yield all batches."""
        chunk: list[CompactedBatch] = []
        size = 0
        async for step in self._steps():
            step_size = sum(len(each.batch) for each in step)
            await self._limits.take(step_size)
            if chunk and (size + step_size > CHUNK_BYTES or len(chunk) >= CHUNK_ENTRIES):
                yield _Chunk(chunk, is_end=False)
                chunk, size = [], 0
            chunk += step
            size += step_size
        if chunk:
            yield _Chunk(chunk, is_end=True)

    def origins(self, batches: Sequence[CompactedBatch]) -> list[tuple[int, int, int]]:
        """Return the fields of `BatchOrigin`, for each batch."""
        appended_from = EARLIEST
        if self._compacted is not None:
            appended_from = self._compacted.compacted.horizon.successor
        return [
            (*position, self._log_start if position >= appended_from else self._compacted_start)
            for position, _, _ in batches
        ]

    async def _steps(self) -> AsyncIterator[list[CompactedBatch]]:
        appended_from = EARLIEST
        if self._compacted is not None:
            appended_from = self._compacted.compacted.horizon.successor
            number = 0
            while found := await self._compacted.batches(number, STEP_ENTRIES, STEP_BYTES):
                number += len(found)
                if step := _since(self._compacted_start, found):
                    yield step
        while appended_from <= self._horizon:
            entries = await self._ledger.read_entries(
                appended_from,
                STEP_ENTRIES,
                self._horizon,
                bytes_max=STEP_BYTES,
                is_background=True,
            )
            if not entries:
                return
            appended_from = entries[-1].position.successor
            found = [CompactedBatch(each.position, 0, each.buffer) for each in entries]
            if step := _since(self._log_start, found):
                yield step


def _since(offset: int, batches: list[CompactedBatch]) -> list[CompactedBatch]:
    """Return the batches that do not end before an offset."""
    return [each for each in batches if read_header(each.batch).last_offset >= offset]


class _Target:
    """The output of one run."""

    def __init__(
        self, writer: CompactionWriter, interval_size: int, limits: CompactionLimits
    ) -> None:
        self.writer = writer
        self._limits = limits
        self._index = OffsetIndex(interval_size)
        self._rows: list[IndexRow] = []

    async def write(self, kept: Iterator[CompactedBatch]) -> None:
        """Store batches, some at a time. Raises LedgerError."""
        while step := list(islice(kept, STEP_ENTRIES)):
            await self._write_step(step)

    async def _write_step(self, kept: Sequence[CompactedBatch]) -> None:
        await self._limits.take(sum(len(each.batch) for each in kept))
        number = self.writer.entries
        await self.writer.append([new_entry(each) for each in kept])
        for entry_id, each in enumerate(kept, number):
            header = read_header(each.batch)
            self._rows += self._index.add_entry(
                self.writer.ledger_id,
                entry_id,
                base_offset=header.base_offset,
                next_offset=header.last_offset + 1,
                size=len(each.batch),
                max_timestamp=header.max_timestamp,
            )

    def finish(self) -> tuple[LedgerSummary, list[IndexRow]]:
        """Return the summary of everything written, and all rows of the index."""
        self._rows += self._index.complete()
        (summary,) = self._index.all_summaries()
        return summary, self._rows


async def _index(
    session: "ComputeSession[CompactionRun]", source: _Source, *, has_strategy: bool
) -> None:
    """Let the process find out which records stay."""
    pending: asyncio.Future[None] | None = None
    async for chunk in source.chunks():
        buffers: list[Buffer] = [each.batch for each in chunk.batches]
        if has_strategy:
            origins = source.origins(chunk.batches)
            following = await session.submit(compare_batches, buffers, origins)
        else:
            following = await session.submit(index_batches, buffers)
        if pending is not None:
            await pending
        pending = following
    if pending is not None:
        await pending


async def _copy(session: "ComputeSession[CompactionRun]", source: _Source, target: _Target) -> None:
    """Let the process rebuild the batches of which a part stays, and store what stays."""
    pending: tuple[_Chunk, asyncio.Future[Sequence[RebuiltBatch]]] | None = None
    async for chunk in source.chunks():
        following = await _rebuilt(session, chunk)
        if pending is not None:
            await _write(target, *pending)
        pending = chunk, following
    if pending is not None:
        await _write(target, *pending)


async def _rebuilt(
    session: "ComputeSession[CompactionRun]", chunk: _Chunk
) -> asyncio.Future[Sequence[RebuiltBatch]]:
    """Begin to rebuild the batches of a chunk."""
    buffers: list[Buffer] = [each.batch for each in chunk.batches]
    delete_horizons = [each.delete_horizon_ms for each in chunk.batches]
    return await session.submit(rebuild_batches, buffers, delete_horizons, chunk.is_end)


async def _write(
    target: _Target, chunk: _Chunk, rebuilt: asyncio.Future[Sequence[RebuiltBatch]]
) -> None:
    """Store what is kept of a chunk, as soon as that is known."""
    await target.write(_kept(chunk.batches, await rebuilt))


def _kept(
    batches: Sequence[CompactedBatch], rebuilt: Sequence[RebuiltBatch]
) -> Iterator[CompactedBatch]:
    """Yield what is kept of some batches; the very last one stays, even without records."""
    for source, result in zip(batches, rebuilt, strict=True):
        if result.outcome is not BatchOutcome.DROPPED:
            is_rebuilt = result.outcome is BatchOutcome.REBUILT
            batch = result.data if is_rebuilt else source.batch
            yield CompactedBatch(source.position, result.delete_horizon_ms, batch)
