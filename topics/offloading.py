"""Offloading: copies ledgers of topics to the tier, and deletes primary copies, of a whole server.

Rule: a topic has one run at a time, whether a user has asked for it or the settings demand it; its
partitions follow one another, and the store limits how many ledgers are copied at once. Closed
partitions are opened only if their rows say that something is due. What failed is tried again in
the next round, and the reason is in the status and in the log.
Must not know: clients, how a ledger is copied.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from kledger.ledger import LedgerError, LedgerInfo, LedgerStore, Position
from kledger.runtime.clock import Clock
from kledger.runtime.concurrent_work import run_some_at_a_time
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from kledger.topics.errors import NoTier, OffloadRunning, TopicsError
from kledger.topics.keys import PartitionKeys, ids_after
from kledger.topics.partition import manifest, records
from kledger.topics.partition.offload_plan import (
    end_of_offloaded,
    is_any_due,
    offload_policies,
    waiting_count,
)
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.partition_tier import tier_folder
from kledger.topics.registry import TopicRegistry
from kledger.topics.topic import Topic

logger = logging.getLogger(__name__)

TOPICS_TOGETHER_MAX = 8
"""Topics whose ledgers are copied in one round at the same time."""
_ASKED = NamedUnit("background work", "an offload that a user has asked for")


class OffloadState(StrEnum):
    """How far the last run of a topic has come."""

    NOT_RUN = "not_run"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffload:
    """How far the offloading of a topic has come.

    Attributes:
        state: of the last run since the start.
        error: why it failed, with the partition; empty unless it did.
        ledgers_left: closed ledgers with entries that are not offloaded.
        ends: of each partition that this broker leads the first position that is not offloaded.
    """

    state: OffloadState
    error: str
    ledgers_left: int
    ends: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class _LastRun:
    state: OffloadState
    error: str = ""


@dataclass(slots=True)
class _Round:
    """What a round has done for a topic.

    Attributes:
        copies: whether it has begun to copy ledgers, which makes it a run.
        errors: of its partitions.
    """

    copies: bool = False
    errors: list[str] = field(default_factory=list)


class Offloading:
    """The runs of one server."""

    def __init__(
        self, registry: TopicRegistry, store: LedgerStore, clock: Clock, supervisor: Supervisor
    ) -> None:
        """Make one that does nothing before `start` or `run_due`.

        Args:
            registry: has the topics, and the tier.
            store: of their partitions.
            clock: for ages.
            supervisor: of what a user has asked for.
        """
        self._registry = registry
        self._store = store
        self._clock = clock
        self._supervisor = supervisor
        self._runs: dict[UUID, _LastRun] = {}
        """The last run of each topic, as long as the topic exists."""

    # For users

    def start(
        self, topic: Topic, until: Position | None = None, *, partition: int | None = None
    ) -> None:
        """Begin to copy the closed ledgers of a topic that lie before that of a position.

        Args:
            topic: the topic.
            until: None: all closed ones.
            partition: that of the position; others are left alone. None: all.

        Raises:
            NoTier: the server has none.
            OffloadRunning: another run of the topic has not ended.
        """
        if self._registry.tier is None:
            raise NoTier("the server has no tier to offload to: offload.url is not set")
        if self._is_running(topic):
            raise OffloadRunning(f"an offload of {topic.name} runs already")
        indexes = topic.led_partitions() if partition is None else [partition]
        self._runs[topic.id] = _LastRun(OffloadState.RUNNING)
        self._supervisor.spawn(
            self._copy_all(topic, indexes, until), f"offload of {topic.name}", unit=_ASKED
        )

    async def status(self, topic: Topic) -> TopicOffload:
        """Say how far the offloading of a topic has come; opens no partition.

        Raises:
            LedgerError: the rows of a partition cannot be read.
        """
        ledgers = [await self.ledgers(topic, index) for index in topic.led_partitions()]
        run = self._runs.get(topic.id, _LastRun(OffloadState.NOT_RUN))
        return TopicOffload(
            state=run.state,
            error=run.error,
            ledgers_left=sum(map(waiting_count, ledgers)),
            ends=tuple(map(end_of_offloaded, ledgers)),
        )

    async def ledgers(self, topic: Topic, index: int) -> Sequence[LedgerInfo]:
        """Return the ledgers of a partition, oldest first; opens nothing.

        Raises:
            LedgerError: its rows cannot be read.
        """
        log = topic.partition(index)
        if log is not None:
            return log.managed_ledger.ledgers
        found = await self._store.run_blocking(self._store.stored_ledgers, topic.ledger_name(index))
        return found or ()

    def _is_running(self, topic: Topic) -> bool:
        run = self._runs.get(topic.id)
        return run is not None and run.state is OffloadState.RUNNING

    async def _copy_all(self, topic: Topic, indexes: Sequence[int], until: Position | None) -> None:
        errors: list[str] = []
        try:
            for index in indexes:
                try:
                    log = await topic.open_partition(index)
                    await log.offload.copy(until, log.last_stable_position)
                except TopicsError as error:
                    logger.warning("%s-%d was not offloaded: %s", topic.name, index, error)
                    errors.append(f"partition {index}: {error}")
        except BaseException:
            errors.append("the run was interrupted")
            raise
        finally:
            self._ended(topic, errors)

    def _ended(self, topic: Topic, errors: Sequence[str]) -> None:
        state = OffloadState.ERROR if errors else OffloadState.SUCCESS
        self._runs[topic.id] = _LastRun(state, "; ".join(errors))

    # In the background

    async def run_due(self) -> None:
        """Do what the settings demand now, in all topics; the next call tries again what failed."""
        existing = {topic.id for topic in self._registry.all()}
        self._runs = {topic_id: run for topic_id, run in self._runs.items() if topic_id in existing}
        if self._registry.tier is None:
            return
        topics = [topic for topic in self._registry.all() if not self._is_running(topic)]
        await run_some_at_a_time(self._run_due, topics, TOPICS_TOGETHER_MAX)

    async def _run_due(self, topic: Topic) -> None:
        round_ = _Round()
        try:
            for log in topic.open_partitions():  # without counting as a use of them
                await self._run_partition(topic, log, round_)
            for index in await self._store.run_blocking(self._due_when_closed, topic):
                if topic.is_deleted:
                    break
                try:
                    log = await topic.open_partition(index)
                except TopicsError as error:
                    logger.warning("tier of %s-%d: %s", topic.name, index, error)
                else:
                    await self._run_partition(topic, log, round_)
        finally:
            if round_.copies:
                self._ended(topic, round_.errors)

    async def _run_partition(self, topic: Topic, log: PartitionLog, round_: "_Round") -> None:
        if log.is_closed or (self._is_running(topic) and not round_.copies):
            return  # it was closed meanwhile, or a user has begun a run
        policies = log.offload.policies(topic.config)
        copies = (policies.threshold_bytes >= 0 or policies.threshold_ms >= 0) and bool(
            waiting_count(log.managed_ledger.ledgers)
        )
        try:
            if copies:
                round_.copies = True
                self._runs[topic.id] = _LastRun(OffloadState.RUNNING)
                await log.offload.copy_due(log.last_stable_position)
            await log.offload.delete_primaries(topic.config, self._clock.now_ms())
            await log.offload.update_manifest()
        except TopicsError as error:
            if not topic.is_deleted:
                logger.warning("tier of %s-%d: %s", topic.name, log.index, error)
            round_.errors.append(f"partition {log.index}: {error}")

    def _due_when_closed(self, topic: Topic) -> list[int]:
        """Return the closed partitions that have something to do; for a thread.

        Partitions with unreadable rows are among them: opening one logs what is wrong.
        """
        found = []
        for index in topic.led_partitions():
            name = topic.ledger_name(index)
            if topic.is_open(index) or not self._store.has_managed_ledger(name):
                continue
            try:
                is_due = self._is_due(topic, index)
            except (LedgerError, TopicsError):
                is_due = True
            if is_due:
                found.append(index)
        return found

    def _is_due(self, topic: Topic, index: int) -> bool:
        ledgers = self._store.stored_ledgers(topic.ledger_name(index)) or ()
        keys = PartitionKeys(topic.id, index)
        assert self._registry.tier is not None, "without a tier nothing is due"
        tier = self._registry.tier.below(tier_folder(topic.name, topic.id, index))
        row = self._store.get_row(keys.manifest)
        listed = manifest.listed(ledgers, tier.location)
        written = None if row is None else records.decode_manifest(row)
        if written != (manifest.fingerprint(listed) if listed else None):
            return True
        summaries = {
            ledger_id: records.decode_ledger_summary(ledger_id, summary)
            for key, summary in self._store.scan_rows(keys.ledger_summaries)
            for ledger_id in ids_after(key, keys.ledger_summaries)
        }
        policies = offload_policies(topic.config, None)
        return is_any_due(ledgers, summaries, topic.config, policies, now_ms=self._clock.now_ms())
