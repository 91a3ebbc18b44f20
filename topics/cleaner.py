"""Cleaner: compacts partitions of topics whose settings demand it, the dirtiest first.

Rule: at most `log.cleaner.threads` compactions run at once, whether a user has asked for them or
they are due; whether and up to where one is due is decided when its compaction can begin. A
partition that failed is left alone for some time, and the reason is in its status and in the log.
Closed partitions are opened only if their rows say that they are due.
Must not know: how a partition is compacted, clients.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from kledger.ledger import (
    LATEST,
    CompactedLedger,
    LedgerError,
    LedgerInfo,
    LedgerStore,
    Position,
)
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.topics.cleaning_round import CleaningRound, DuePartition
from kledger.topics.compaction.cleaner_plan import Cleaning, plan_cleaning
from kledger.topics.compaction.strategy_rule import OpenStrategy, no_strategies
from kledger.topics.errors import CompactionRunning, TopicsError
from kledger.topics.io_throttle import IoThrottle
from kledger.topics.partition.compacted_log import CompactedUpTo
from kledger.topics.partition.partition_compaction import (
    CompactionLimits,
    CompactionState,
    PartitionCompactionStatus,
)
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.registry import TopicRegistry
from kledger.topics.topic import Topic

logger = logging.getLogger(__name__)

FAILED_PARTITIONS_MAX = 10_000
_ASKED = NamedUnit("background work", "a compaction that a user has asked for")
_CLEANER = NamedUnit("background work", "the log cleaner, until its next round")
RETRY_MS = 10 * 60_000
"""How long a partition is left alone after a failed compaction."""


class CleanerConfig(Protocol):
    """Settings of the cleaner, under Kafka's names; read anew for every compaction."""

    @property
    def log_cleaner_backoff_ms(self) -> int:
        """How long to wait when nothing is to be compacted."""
        ...

    @property
    def log_cleaner_threads(self) -> int:
        """How many partitions are compacted at once."""
        ...

    @property
    def log_cleaner_io_max_bytes_per_second(self) -> float:
        """What all compactions together read and write in a second."""
        ...

    @property
    def log_cleaner_slow_bytes_per_second(self) -> int:
        """What the cleaner's own compactions read and write in a second while others append."""
        ...

    @property
    def log_cleaner_slow_burst_bytes(self) -> int:
        """How much of that may be saved for later, and then is read and written at once."""
        ...

    @property
    def log_cleaner_dedupe_buffer_size(self) -> int:
        """Memory for the keys of one compaction; what does not fit goes to temporary files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCompaction:
    """How far the compaction of a topic has come.

    Attributes:
        state: RUNNING if a partition is being compacted, or is to be; ERROR if the last run of one
            has failed; SUCCESS if one has been compacted; else NOT_RUN.
        error: why it failed, with the partition; empty unless it did.
        started_ms, ended_ms: wall time of the first start and the last end; None if not known.
        horizons: of each partition that this broker leads, up to where it is compacted; None if it
            is not.
    """

    state: CompactionState
    error: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    horizons: tuple[CompactedUpTo | None, ...] = ()


def summarized(
    statuses: Mapping[int, PartitionCompactionStatus], horizons: tuple[CompactedUpTo | None, ...]
) -> TopicCompaction:
    """Return the status of a topic from those of its partitions, by index."""
    state = CompactionState.NOT_RUN
    for each in (CompactionState.SUCCESS, CompactionState.ERROR, CompactionState.RUNNING):
        if any(status.state is each for status in statuses.values()):
            state = each
    errors = [f"partition {index}: {each.error}" for index, each in statuses.items() if each.error]
    started = [each.started_ms for each in statuses.values() if each.started_ms is not None]
    ended = [each.ended_ms for each in statuses.values() if each.ended_ms is not None]
    return TopicCompaction(
        state=state,
        error="; ".join(errors) if state is CompactionState.ERROR else "",
        started_ms=min(started, default=None),
        ended_ms=None if state is CompactionState.RUNNING else max(ended, default=None),
        horizons=horizons,
    )


class _Counters:
    """What operators see of the compactions."""

    def __init__(self, metrics: Metrics, running_count: Callable[[], int]) -> None:
        self.due_count = 0
        self.last_ms = 0
        about = "compactions of partitions that have ended"
        self.succeeded = metrics.counter("compactions", about, {"outcome": "succeeded"})
        self.failed = metrics.counter("compactions", about, {"outcome": "failed"})
        self.read = metrics.counter("compaction_read_bytes", "bytes of batches before compactions")
        self.kept = metrics.counter("compaction_kept_bytes", "bytes of batches that they have kept")
        self.skipped = metrics.counter(
            "compaction_skipped_records", "records that strategies have skipped in compactions"
        )
        metrics.gauge("compactions_running", running_count, "compactions that run")
        metrics.gauge(
            "compaction_due_partitions",
            lambda: self.due_count,
            "partitions that were due in the last round of the log cleaner",
        )
        metrics.gauge("compaction_last_ms", lambda: self.last_ms, "time that the last one took")


class Cleaner:
    """The compactions of one server."""

    def __init__(
        self,
        registry: TopicRegistry,
        store: LedgerStore,
        clock: Clock,
        supervisor: Supervisor,
        config: CleanerConfig,
        *,
        open_strategy: OpenStrategy = no_strategies,
    ) -> None:
        """Make one that does nothing before `run` or `start`.

        Args:
            registry: has the topics.
            store: of their partitions.
            clock: for the times of runs.
            supervisor: of what a user has asked for.
            config: see there.
            open_strategy: imports the strategies of topics, in compute processes.
        """
        self._registry = registry
        self._store = store
        self._clock = clock
        self._supervisor = supervisor
        self._config = config
        self._open_strategy = open_strategy
        self._asked_for: dict[UUID, int] = {}
        """When a user has asked for the compactions that have not ended, by topic."""
        self._throttle = IoThrottle(clock, lambda: config.log_cleaner_io_max_bytes_per_second)
        self._round: CleaningRound | None = None
        """The latest one; there is one at a time."""
        self._round_throttle = IoThrottle(
            clock, self._round_bytes_per_second, lambda: config.log_cleaner_slow_burst_bytes
        )
        self._running_count = 0
        self._one_ended = asyncio.Condition()
        self._retry_at_ms: dict[tuple[str, int], int] = {}
        self._counters = _Counters(store.metrics, lambda: self._running_count)

    # For users

    def start(self, topic: Topic) -> None:
        """Begin to compact every partition of a topic up to its last stable offset.

        Raises:
            CompactionRunning: that has begun already, or a partition is being compacted.
            StrategyNotAllowed: the server does not allow the topic's strategy any more.
        """
        topic.config.check_strategy()
        if topic.id in self._asked_for or any(
            log.managed_ledger.is_compacting for log in topic.open_partitions()
        ):
            raise CompactionRunning(f"a compaction of {topic.name} runs already")
        self._asked_for[topic.id] = self._clock.now_ms()
        self._supervisor.spawn(self._compact_all(topic), f"compaction of {topic.name}", unit=_ASKED)

    async def status(self, topic: Topic) -> TopicCompaction:
        """Say how far the compaction of a topic has come; opens its partitions.

        Raises:
            TopicsError: a partition cannot be opened or read.
        """
        logs = [await topic.open_partition(index) for index in topic.led_partitions()]
        horizons = tuple([await log.compaction.horizon() for log in logs])
        found = summarized({log.index: log.compaction.status for log in logs}, horizons)
        asked_ms = self._asked_for.get(topic.id)
        if asked_ms is None:
            return found
        return replace(
            found, state=CompactionState.RUNNING, error="", started_ms=asked_ms, ended_ms=None
        )

    async def _compact_all(self, topic: Topic) -> None:
        try:
            for index in topic.led_partitions():
                try:
                    async with self._running():
                        await self._compact(await topic.open_partition(index), None)
                except TopicsError as error:
                    logger.warning("%s-%d was not compacted: %s", topic.name, index, error)
        finally:
            self._asked_for.pop(topic.id, None)

    # In the background

    async def run(self) -> None:
        """Compact what is due, for ever."""
        while True:
            await self._clock.sleep(self._config.log_cleaner_backoff_ms)
            with self._supervisor.containment.guarding(_CLEANER):
                await self.clean()

    async def clean(self) -> int:
        """Compact what is due now, the dirtiest first; return how many partitions were due."""
        self._round = CleaningRound(
            await self._due(),
            self._store,
            self._clock,
            taken_bytes=lambda: self._round_throttle.taken_bytes,
            is_awaited=lambda: bool(self._asked_for),
        )
        due = self._round.due
        self._counters.due_count = len(due)
        await asyncio.gather(*map(self._clean, due))
        return len(due)

    def _round_bytes_per_second(self) -> float:
        if self._round is not None and self._round.may_be_slow():
            return self._config.log_cleaner_slow_bytes_per_second
        return math.inf

    async def _clean(self, due: DuePartition) -> None:
        topic, index = due.topic, due.index
        try:
            async with self._running():
                # It may have been compacted, closed or deleted while this waited.
                cleaning = await self._cleaning(topic, index)
                if cleaning is not None:
                    log = await topic.open_partition(index)
                    await self._compact(log, cleaning.horizon, self._round_throttle)
        except CompactionRunning:
            return
        except (TopicsError, LedgerError) as error:
            if not topic.is_deleted:
                self._failed(topic, index, error)
        else:
            self._retry_at_ms.pop((topic.name, index), None)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Wait until another compaction may run, and count it as running."""
        async with self._one_ended:
            await self._one_ended.wait_for(self._has_room)
            self._running_count += 1
        try:
            yield
        finally:
            async with self._one_ended:
                self._running_count -= 1
                self._one_ended.notify_all()

    async def _compact(
        self, log: PartitionLog, horizon: Position | None, *throttles: IoThrottle
    ) -> None:
        limits = CompactionLimits(
            memory_bytes_max=self._config.log_cleaner_dedupe_buffer_size,
            temporary_folder=self._store.path,
            open_strategy=self._open_strategy,
            throttles=(self._throttle, *throttles),
        )
        counters, started_ms = self._counters, self._clock.monotonic_ms()
        try:
            counts = await log.compact(limits, horizon)
        except CompactionRunning:
            raise
        except TopicsError:
            counters.failed.add()
            raise
        if counts is not None:
            counters.succeeded.add()
            counters.read.add(counts.bytes_read)
            counters.kept.add(counts.bytes_kept)
            counters.skipped.add(counts.skipped)
            counters.last_ms = self._clock.monotonic_ms() - started_ms

    def _has_room(self) -> bool:
        return self._running_count < max(self._config.log_cleaner_threads, 1)

    def _failed(self, topic: Topic, index: int, error: Exception) -> None:
        """Leave a partition alone for some time."""
        logger.warning("%s-%d was not compacted: %s", topic.name, index, error)
        if len(self._retry_at_ms) >= FAILED_PARTITIONS_MAX:
            del self._retry_at_ms[next(iter(self._retry_at_ms))]
        self._retry_at_ms[topic.name, index] = self._clock.monotonic_ms() + RETRY_MS

    # What is due

    async def _due(self) -> Sequence[DuePartition]:
        """Return the partitions that are to be compacted; opens those of which rows say so."""
        due = []
        for topic in self._registry.all():
            if not (topic.config.is_compacted or topic.config.compaction_threshold_bytes):
                continue
            for index in topic.led_partitions():
                try:
                    cleaning = await self._cleaning(topic, index)
                except (TopicsError, LedgerError) as error:
                    if not topic.is_deleted:
                        self._failed(topic, index, error)
                    continue
                log = topic.partition(index)
                if cleaning is not None and log is not None:
                    due.append(DuePartition(topic, index, log.managed_ledger, cleaning))
        return due

    async def _cleaning(self, topic: Topic, index: int) -> Cleaning | None:
        retry_at_ms = self._retry_at_ms.get((topic.name, index), 0)
        if topic.is_deleted or self._clock.monotonic_ms() < retry_at_ms:
            return None
        if not topic.is_open(index):
            if not self._store.has_managed_ledger(topic.ledger_name(index)):
                return None
            if not await self._store.run_blocking(
                is_due_when_closed, topic, self._store, index, self._clock.now_ms()
            ):
                return None
        log = await topic.open_partition(index)
        stable_upto = await log.last_stable_position()
        if stable_upto is None or log.managed_ledger.is_compacting:
            return None
        return _plan(
            topic,
            log.managed_ledger.ledgers,
            log.managed_ledger.compacted,
            stable_upto=stable_upto,
            now_ms=self._clock.now_ms(),
        )


def is_due_when_closed(topic: Topic, store: LedgerStore, index: int, now_ms: int) -> bool:
    """Decide from the rows of a closed partition whether it may be due; for a thread.

    An opening closes the ledger that was written to last, so that one counts as closed when it is
    older than segment.ms, as an open partition would have closed it by then.
    """
    name = topic.ledger_name(index)
    try:
        ledgers = store.stored_ledgers(name)
        compacted = store.stored_compacted(name)
    except LedgerError:
        return True  # the opening says what is wrong
    if ledgers is None:
        return True
    old = now_ms - topic.config.segment_ms
    ledgers = tuple(
        replace(each, closed_ms=now_ms)
        if each.closed_ms is None and each.max_timestamp_ms <= old
        else each
        for each in ledgers
    )
    return _plan(topic, ledgers, compacted, stable_upto=LATEST, now_ms=now_ms) is not None


def _plan(
    topic: Topic,
    ledgers: Sequence[LedgerInfo],
    compacted: CompactedLedger | None,
    *,
    stable_upto: Position,
    now_ms: int,
) -> Cleaning | None:
    return plan_cleaning(
        ledgers,
        topic.config,
        compacted_upto=None if compacted is None else compacted.horizon,
        compacted_bytes=0 if compacted is None else compacted.size,
        stable_upto=stable_upto,
        now_ms=now_ms,
    )
