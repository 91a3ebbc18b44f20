"""Topic: one topic that exists, and those of its partitions that are open.

Rule: a partition is opened once, by its first use; calls that wait for that get the same log.
`epoch` changes with everything about the topic that callers may cache.
Must not know: other topics, how topics are stored.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from kledger.ledger import LedgerError, LedgerStore
from kledger.runtime.clock import Clock
from kledger.runtime.keyed_locks import KeyedLocks
from kledger.runtime.tasks import Supervisor
from kledger.topics.config.topic_config import (
    NO_CONFIGS,
    TopicConfig,
    TopicDefaults,
    effective_config,
)
from kledger.topics.errors import (
    NotLeader,
    TopicsError,
    TopicStorageFailed,
    UnknownPartition,
    UnknownTopic,
)
from kledger.topics.keys import PartitionKeys
from kledger.topics.partition.leader_epoch_state import FIRST_EPOCH
from kledger.topics.partition.partition_loader import (
    PartitionContext,
    create_partition,
    open_partition,
)
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.partition_offload import PartitionOffload
from kledger.topics.partition.partition_tier import PartitionOffloader, Tier, tier_folder
from kledger.topics.partition.records import TopicRecord
from kledger.topics.partition.results import translated_errors
from kledger.topics.partition_name import managed_ledger_name
from kledger.topics.placement import Placement
from kledger.topics.topic_cursors import TopicCursors


class Topic:
    """A topic; the registry makes it, and alone changes it."""

    def __init__(
        self,
        record: TopicRecord,
        *,
        store: LedgerStore,
        defaults: TopicDefaults,
        clock: Clock,
        supervisor: Supervisor,
        namespace_configs: Mapping[str, str] = NO_CONFIGS,
        tier: Tier | None = None,
        placement: Placement | None = None,
        cursors: TopicCursors | None = None,
        leader_epoch: int = FIRST_EPOCH,
    ) -> None:
        """Make what a record says.

        Args:
            record: of the topic.
            store: has the partitions of this broker.
            defaults: settings of topics.
            clock: for times of records.
            supervisor: owns work that continues after its caller was cancelled.
            namespace_configs: settings of the topic's namespace.
            tier: where ledgers are offloaded to.
            placement: of the partitions of several brokers; None: the server is alone.
            cursors: what several brokers know of each other's; None: the server is alone.
            leader_epoch: that of this broker.
        """
        self.record = record
        self.name = record.name
        self.id: UUID = record.topic_id
        self.name_bytes = record.name.encode()
        """The name in UTF-8, for caches by the bytes of requests: a copy made by a request would
        lie among the objects of the partition that it opens, and pin their memory."""
        self.id_bytes = record.topic_id.bytes
        """The id, for the same caches."""
        self.epoch = 0
        self.is_deleted = False
        self._is_closed = False
        self.keeps_open = False
        """Whether idle partitions stay open."""
        self.namespace_configs = namespace_configs
        """Settings of the topic's namespace."""
        self.config: TopicConfig = effective_config(record.configs, defaults, namespace_configs)
        self._store = store
        self._defaults = defaults
        self._clock = clock
        self._supervisor = supervisor
        self._tier = tier
        self._placement = placement
        self._broker_id = None if placement is None else placement.broker_id
        self._cursors = cursors
        self._leader_epoch = leader_epoch
        self._deleted_offloads: list[PartitionOffload] = []
        """Of partitions that were open when the topic was deleted."""
        self._partitions: dict[int, PartitionLog] = {}
        self._changing: KeyedLocks[int] = KeyedLocks()
        """Partitions that are being opened or closed."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has."""
        return self.record.partition_count

    @property
    def configs(self) -> Mapping[str, str]:
        """The settings that were set on the topic itself."""
        return self.record.configs

    def leader_of(self, index: int) -> int | None:
        """The broker that leads a partition; None: this one, as there is no other."""
        leaders = self.record.leaders
        return leaders[index] if leaders else None

    def leader_epoch(self, index: int) -> int:
        """The leader epoch of a partition; that of another broker's is the newest known one."""
        leader = self.leader_of(index)
        if leader is None or self._placement is None or leader == self._broker_id:
            return self._leader_epoch
        return self._placement.leader_epoch_of(leader)

    def leads(self, index: int) -> bool:
        """Whether this broker leads a partition."""
        leaders = self.record.leaders
        return not leaders or leaders[index] == self._broker_id

    def led_partitions(self) -> list[int]:
        """The partitions that this broker leads."""
        return [index for index in range(self.partition_count) if self.leads(index)]

    def partition(self, index: int) -> PartitionLog | None:
        """An open partition, which counts as used; plain, for the hot path."""
        found = self._partitions.get(index)
        if found is not None:
            found.idle.is_used = True
        return found

    def is_open(self, index: int) -> bool:
        """Whether a partition is open; it does not count as used."""
        return index in self._partitions

    @property
    def open_partition_count(self) -> int:
        """How many partitions are open."""
        return len(self._partitions)

    def open_partitions(self) -> list[PartitionLog]:
        """All partitions that are open."""
        return list(self._partitions.values())

    def partition_for_append(self, index: int) -> PartitionLog | None:
        """A partition that is open, or can be created at once; plain, for the hot path."""
        return self.partition(index) or self.create_partition(index)

    def create_partition(self, index: int) -> PartitionLog | None:
        """Make the log of a partition of which nothing is stored; plain, for the first record.

        The log is durable with its first record, and closes if that cannot be stored.

        Returns:
            None if it exists, or cannot be made at once: see `open_partition`.
        """
        if self.is_deleted or not 0 <= index < self.partition_count or index in self._changing:
            return None
        if index in self._partitions or not self.leads(index) or self._first_cursors(index):
            return None

        def lost(error: LedgerError) -> None:
            self._release_closed(created)
            created.mark_closed(f"not stored: {error}")

        try:
            found = create_partition(self._context(index), lost)
        except TopicStorageFailed:
            return None  # `open_partition` raises it
        if found is None:
            return None
        created = self._partitions[index] = found
        created.on_fault = self._release_closed
        return created

    async def open_partition(self, index: int) -> PartitionLog:
        """Return a partition; open it if it is closed.

        Raises:
            UnknownPartition: the topic has no such partition, or was deleted or closed.
            NotLeader: another broker leads it.
            TopicStorageFailed: it cannot be opened now.
        """
        found = self.partition(index)
        if found is not None:
            return found
        self._check(index)
        async with self._changing.holding(index):
            found = self._partitions.get(index)
            if found is not None:
                return found
            self._check(index)
            try:
                opened = await open_partition(self._context(index))
            except TopicStorageFailed:
                self._check(index)  # its ledger was fenced because the topic was deleted meanwhile
                raise
            if self.is_deleted or self._is_closed:
                opened.mark_closed("deleted" if self.is_deleted else "closed")
                self._check(index)
            opened.on_fault = self._release_closed
            opened.reconfigure(self.config)  # it may have changed meanwhile
            self._partitions[index] = opened
            return opened

    def _context(self, index: int) -> PartitionContext:
        return PartitionContext(
            store=self._store,
            topic=self.name,
            topic_id=self.id,
            index=index,
            config=self.config,
            defaults=self._defaults,
            clock=self._clock,
            supervisor=self._supervisor,
            leader_epoch=self._leader_epoch,
            driver=self._driver(index),
            first_cursors=self._first_cursors(index),
        )

    def _driver(self, index: int) -> PartitionOffloader | None:
        if self._tier is None:
            return None
        folder = self._tier.below(tier_folder(self.name, self.id, index))
        return PartitionOffloader(folder, self._store, PartitionKeys(self.id, index))

    # Durable cursors

    async def register_cursor(self, name: str) -> None:
        """Note, for partitions to come, that durable cursors of a name are made; repeatable.

        Raises:
            TooManyCursors: the topic has as many as it can have.
            TopicStorageFailed: it is not noted.
        """
        cursors = self._cursors
        if cursors is not None and not cursors.has(self.id, name):
            with translated_errors():
                async with cursors.change_lock():
                    if not self.is_deleted:
                        await cursors.register(self.name, self.id, name, self.partition_count)

    async def remove_cursor(self, name: str) -> None:
        """Note that the durable cursors of a name are deleted. Raises TopicStorageFailed."""
        cursors = self._cursors
        if cursors is not None and cursors.has(self.id, name):
            with translated_errors():
                async with cursors.change_lock():
                    await cursors.remove(self.id, name)

    def _first_cursors(self, index: int) -> Collection[str]:
        return () if self._cursors is None else self._cursors.first_cursors(self.id, index)

    def ledger_name(self, index: int) -> str:
        """Name of a partition's managed ledger."""
        return managed_ledger_name(self.name, self.id, index)

    def apply(self, record: TopicRecord) -> None:
        """Apply a stored change."""
        self.record = record
        self.epoch += 1
        self._reconfigure()

    def change_defaults(self, defaults: TopicDefaults) -> None:
        """Use other defaults for the settings that the topic does not have itself."""
        self._defaults = defaults
        self._reconfigure()

    def change_namespace(self, configs: Mapping[str, str]) -> None:
        """Use other settings of the namespace for those that the topic does not have itself."""
        self.namespace_configs = configs
        self._reconfigure()

    def _reconfigure(self) -> None:
        config = effective_config(self.record.configs, self._defaults, self.namespace_configs)
        if config != self.config:
            self.config = config
            for partition in self._partitions.values():
                partition.reconfigure(config)

    def mark_deleted(self) -> None:
        """Refuse everything from now on; listeners of partitions are called."""
        self.is_deleted = True
        self.epoch += 1
        for partition in self._partitions.values():
            partition.mark_closed("deleted")
            if not partition.offload.is_settled:
                self._deleted_offloads.append(partition.offload)
        self._partitions.clear()

    def _release_closed(self, closed: PartitionLog) -> None:
        """Forget a closed partition, so that its next use opens it again."""
        partitions = self._partitions
        if partitions.get(closed.index) is closed:
            del partitions[closed.index]
            if not partitions:
                partitions.clear()  # an emptied dict keeps its table

    def idle_partitions(self, rounds: int) -> list[int]:
        """Begin the next round; return the partitions that were not used for so many rounds."""
        idle = [
            index
            for index, log in self._partitions.items()
            if log.idle.end_round(log.high_watermark, is_awaited=log.is_awaited) >= rounds
        ]
        return [] if self.keeps_open else idle

    async def close_partition(self, index: int, *, only_if_idle: bool = False) -> None:
        """Close a partition if it is open; a call that needs it waits, and opens it again.

        Args:
            index: which one.
            only_if_idle: leave it open if it was used since the last round.

        Raises:
            TopicStorageFailed: it is closed, but its checkpoint was not stored.
        """
        async with self._changing.holding(index):
            log = self._partitions.get(index)
            if log is None:
                return
            if only_if_idle and (self.keeps_open or log.idle.is_used or log.is_awaited):
                return
            self._release_closed(log)
            try:
                with translated_errors():
                    await log.close()
            except TopicsError:
                raise
            except Exception as fault:  # noqa: BLE001 - it is closed all the same
                self._supervisor.containment.failed(log, fault)
            log.managed_ledger.evict_cached()

    @property
    def is_settled(self) -> bool:
        """Whether no partition is being opened or closed, or writes into the tier."""
        return not self._changing and not self._deleted_offloads

    async def settle(self) -> None:
        """Wait until no partition is being opened or closed, or writes into the tier."""
        await self._changing.settle()
        while self._deleted_offloads:
            await self._deleted_offloads[-1].settle()
            self._deleted_offloads.pop()

    def retire(self) -> list[PartitionLog]:
        """Open no partition again; return those that are open, for the caller to close."""
        self._is_closed = True
        partitions = list(self._partitions.values())
        self._partitions.clear()
        return partitions

    def _check(self, index: int) -> None:
        if self.is_deleted:
            raise UnknownPartition(f"topic {self.name} ({self.id}) is deleted")
        if self._is_closed:
            raise UnknownPartition(f"topic {self.name} is closed")
        if not 0 <= index < self.partition_count:
            raise UnknownPartition(
                f"partition {index} of {self.name}, expected 0 to {self.partition_count - 1}"
            )
        self.check_leader(index)

    def check_leader(self, index: int) -> None:
        """Check that this broker leads a partition that exists. Raises NotLeader."""
        leader = self.leader_of(index)
        if leader is not None and leader != self._broker_id:
            raise NotLeader(
                f"partition {index} of {self.name}: expected {self._broker_id} as its leader, got "
                f"{leader}",
                leader,
            )


def unknown_topic(name: str) -> UnknownTopic:
    """The error for a name that no topic has."""
    return UnknownTopic(f"no topic is called {name!r}")
