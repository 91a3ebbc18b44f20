"""Topic registry: which topics exist, in which namespaces, with which ids and settings.

Rule: a topic exists from the moment its record is durable until the record is deleted, and its
namespace as long. Each change is one atomic write of records; when it is durable, memory follows by
the replay that a start uses, whether its caller still waits or not. Changes are made one at a time.
A deleted topic has another record until everything it has left is removed.
Must not know: requests, records.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kledger.ledger import LedgerError, LedgerStore, TableStore
from kledger.ledger.record_table import RecordChange, RecordTable, submit_together
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.concurrent_work import run_some_at_a_time
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.listeners import Listener, Listeners
from kledger.runtime.tasks import Supervisor
from kledger.topics.config.topic_config import (
    TopicDefaults,
    check_configs,
    check_names,
    check_remote_storage,
    check_strategy,
    effective_config,
)
from kledger.topics.deleted_topics import DeletedTopics
from kledger.topics.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopicName,
    NamespaceNotDeletable,
    TopicAlreadyExists,
    TopicsError,
    UnknownTopic,
)
from kledger.topics.leader_epoch import raise_leader_epoch
from kledger.topics.namespaces import Namespaces, unknown_namespace
from kledger.topics.partition.leader_epoch_state import FIRST_EPOCH
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.partition_tier import Tier
from kledger.topics.partition.records import TOPIC_ROWS, TopicRecord
from kledger.topics.partition.results import from_ledger_error
from kledger.topics.partition_addition import PartitionAddition
from kledger.topics.partition_name import partition_of
from kledger.topics.placement import Placement
from kledger.topics.retention import LowestCommittedOffset, enforce_retention, no_group
from kledger.topics.topic import Topic, unknown_topic
from kledger.topics.topic_cursors import TopicCursors
from kledger.topics.topic_names import (
    DEFAULT_NAMESPACE,
    check_name,
    collision_key,
    is_internal,
    namespace_of,
    resolve_name,
)

logger = logging.getLogger(__name__)

PARTITIONS_MAX = 100_000
USE_DEFAULT = -1
CLOSED_TOGETHER_MAX = 64
TOPICS_PER_TICK_MAX = 500
"""Topics in which idle partitions are searched in one tick of the event loop."""


class TopicCluster(NamedTuple):
    """What the topics of several brokers have in common.

    Attributes:
        tables: where topics and namespaces are kept.
        placement: which broker leads a new partition.
    """

    tables: TableStore
    placement: Placement


class TopicRegistry:
    """All topics of a server, or of the brokers that share them."""

    def __init__(
        self,
        store: LedgerStore,
        defaults: TopicDefaults,
        clock: Clock,
        entropy: Entropy,
        tier: Tier | None,
        *,
        cluster: TopicCluster | None = None,
        leader_epoch: int = FIRST_EPOCH,
    ) -> None:
        self.defaults = defaults
        self.leader_epoch = leader_epoch
        """Under which this server leads its partitions."""
        self.epoch = 0
        self._store = store
        tables: TableStore = store if cluster is None else cluster.tables
        self.placement = None if cluster is None else cluster.placement
        """Which brokers lead new partitions; None: this one, which is alone."""
        if self.placement is not None:
            self.placement.on_leader_epoch = self._leader_epoch_changed
        self._clock = clock
        self._entropy = entropy
        self._records = RecordTable(tables, TOPIC_ROWS, self._replayed)
        self.namespaces = Namespaces(tables, self._namespace_replayed)
        self._cursors = None if cluster is None else TopicCursors(tables)
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._collisions: dict[str, str] = {}
        self._changing = tables.change_lock()
        self._addition: PartitionAddition | None = None
        """Partitions that are being added."""
        self._supervisor = Supervisor(containment=store.containment)
        self.tier = tier
        """Where ledgers are offloaded to; None: nowhere."""
        self._deleted_topics = DeletedTopics(store, self._supervisor, tier)
        self._watched: dict[UUID, Listeners] = {}
        """By the ids of topics."""
        self.idle_closed = Listeners(store.containment)
        """Called after idle partitions were closed, so that caches of logs drop them."""

    @classmethod
    async def open(
        cls,
        store: LedgerStore,
        defaults: TopicDefaults | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        tier: Tier | None = None,
        *,
        cluster: TopicCluster | None = None,
        leader_epoch: int = FIRST_EPOCH,
    ) -> "TopicRegistry":
        """Load all topics; partitions are opened by their first use.

        Args:
            store: has the partitions of this broker, and the topics of a server that is alone.
            defaults: settings of topics.
            clock: the machine's by default.
            entropy: the machine's by default.
            tier: where ledgers are offloaded to.
            cluster: what brokers share; None: the server is alone.
            leader_epoch: under which it leads its partitions; see `raise_leader_epoch`.

        Raises:
            UnreadableRow: a stored topic cannot be read.
            LedgerError: the leader epoch could not be stored.
        """
        registry = cls(
            store,
            defaults or TopicDefaults(),
            clock or SystemClock(),
            entropy or SystemEntropy(),
            tier,
            cluster=cluster,
            leader_epoch=await raise_leader_epoch(store, leader_epoch),
        )
        registry.namespaces.load()
        if registry._cursors is not None:
            registry._cursors.load()
        registry._records.load()
        registry._deleted_topics.load()
        if cluster is not None:
            registry._deleted_topics.begin_all(_unknown_topics(store, registry._by_id))
        return registry

    # Lookups (plain)

    def get(self, name: str) -> Topic | None:
        """The topic of that name, in any spelling."""
        topic = self._topics.get(name)
        if topic is None and "/" in name:
            return self._topics.get(resolve_name(name))
        return topic

    def get_by_id(self, topic_id: UUID) -> Topic | None:
        """The topic with that id."""
        return self._by_id.get(topic_id)

    def all(self) -> list[Topic]:
        """Every topic, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def check_creation(
        self,
        name: str,
        *,
        partitions: int = USE_DEFAULT,
        configs: Mapping[str, str] | None = None,
        replication: int = USE_DEFAULT,
        assigned: Sequence[int] | None = None,
        has_one_leader: bool = False,
        topic_id: UUID | None = None,
    ) -> TopicRecord:
        """Check what `create` checks, and change nothing.

        Returns:
            The topic as it would be stored.

        Raises:
            InvalidTopicName, UnknownNamespace, TooManyNamespaces, TopicAlreadyExists,
            InvalidPartitions, InvalidReplicationFactor, InvalidConfig: it cannot be created.
        """
        name = self.check_new_name(name)
        count = self.defaults.num_partitions if partitions == USE_DEFAULT else partitions
        check_partition_count(count)
        copies_max = 1 if self.placement is None else len(self.placement.broker_ids)
        if replication != USE_DEFAULT and not 1 <= replication <= copies_max:
            raise InvalidReplicationFactor(
                f"replication factor {replication}, expected -1, or 1 to {copies_max}"
            )
        record = TopicRecord(
            name, topic_id or self.new_id(), count, dict(configs or {}), self._clock.now_ms()
        )
        if self.placement is not None:
            leaders = self.placement.place(count, assigned=assigned, has_one_leader=has_one_leader)
            record = record._replace(leaders=leaders, has_one_leader=has_one_leader)
        check_configs(record.configs)
        check_strategy(record.configs, self.defaults)
        namespace_configs = self.namespaces.configs_of(namespace_of(name))
        config = effective_config(record.configs, self.defaults, namespace_configs)
        check_remote_storage(config, has_tier=self.tier is not None)
        return record

    def check_new_name(self, name: str) -> str:
        """Check that a topic can be created under a name, and return the name in its one spelling.

        Raises:
            InvalidTopicName, UnknownNamespace, TooManyNamespaces, TopicAlreadyExists: it cannot.
        """
        name = resolve_name(name)
        check_name(name)
        self._check_namespace(namespace_of(name))
        if is_internal(name):
            raise InvalidTopicName(f"Topic name is invalid: {name!r} is kept for internal use")
        if name in self._topics:
            raise TopicAlreadyExists(f"Topic {name!r} already exists.")
        other = self._collisions.get(collision_key(name))
        if other is not None:
            raise InvalidTopicName(
                f"Topic {name!r} collides with existing topic: {other}, as '.' and '_' count as one"
            )
        return name

    def _check_namespace(self, namespace: str) -> None:
        """Check that a topic can be created in a namespace, which may be created with it."""
        if self.namespaces.exists(namespace):
            return
        if not self.defaults.namespaces_auto_create:
            raise unknown_namespace(namespace)
        self.namespaces.check_new(namespace)

    def watch(self, topic_id: UUID, listener: Listener) -> None:
        """Call back when a topic has got partitions, and when it was deleted; then no more.

        Args:
            topic_id: of a topic that may be created later.
            listener: looks for itself what has changed.
        """
        self._watched.setdefault(topic_id, Listeners(self._store.containment)).add(listener)

    def unwatch(self, topic_id: UUID) -> None:
        """Call nobody back any more about a topic."""
        self._watched.pop(topic_id, None)

    # Changes

    def new_id(self) -> UUID:
        """Return an id for a topic, so that others can refer to it before it is created."""
        return self._entropy.uuid4()

    async def create(
        self,
        name: str,
        *,
        partitions: int = USE_DEFAULT,
        configs: Mapping[str, str] | None = None,
        replication: int = USE_DEFAULT,
        assigned: Sequence[int] | None = None,
        has_one_leader: bool = False,
        topic_id: UUID | None = None,
    ) -> Topic:
        """Create a topic; -1 is the default.

        Args:
            name: of the topic.
            partitions: how many.
            configs: settings of its own.
            replication: at most the number of brokers; the storage has the copies.
            assigned: the brokers that lead its partitions; None: any.
            has_one_leader: this broker leads all partitions, also those that are added.
            topic_id: what `new_id` has returned; None: a new one.

        Raises:
            TopicsError: see `check_creation`.
            TopicStorageFailed: nothing was made.
        """
        async with self._changing:
            await self._settle_writes()
            record = self.check_creation(
                name,
                partitions=partitions,
                configs=configs,
                replication=replication,
                assigned=assigned,
                has_one_leader=has_one_leader,
                topic_id=topic_id,
            )
            changes = [self._records.change(record.name, record)]
            if not self.namespaces.exists(namespace := namespace_of(record.name)):
                changes.insert(0, self.namespaces.creation(namespace, record.created_ms))
            await _submit(changes)
            return self._topics[record.name]

    async def delete(self, name: str, *, topic_id: UUID | None = None) -> None:
        """Delete a topic with everything in it.

        The topic does not exist when this returns; its data is removed in the background.

        Args:
            name: the topic.
            topic_id: its id; a topic that was created again under the name is not deleted.

        Raises:
            UnknownTopic: no such topic exists.
            TopicStorageFailed: nothing was deleted.
        """
        async with self._changing:
            await self._settle_writes()
            topic = self._expect(name)
            if topic_id not in (None, topic.id):
                raise UnknownTopic(f"topic {name!r} has the id {topic.id}, expected {topic_id}")
            await self._delete([topic])

    async def delete_many(self, topics: Iterable[Topic]) -> list[Topic]:
        """Delete topics as `delete` does, all or none; return those that existed.

        Raises:
            TopicStorageFailed: nothing was deleted.
        """
        async with self._changing:
            await self._settle_writes()
            existing = [topic for topic in topics if self._topics.get(topic.name) is topic]
            if existing:
                await self._delete(existing)
            return existing

    async def _delete(self, topics: Sequence[Topic]) -> None:
        changes: list[RecordChange] = []
        for topic in topics:
            changes.append(self._records.change(topic.name, None))
            if self._cursors is None:
                changes.append(self._deleted_topics.deletion(topic.record))
            else:  # every broker follows the record, this one too
                changes += self._cursors.removals(topic.id)
        await _submit(changes)

    async def create_partitions(
        self, name: str, total: int, assigned: Sequence[int] | None = None
    ) -> Topic:
        """Add partitions to a topic; durable cursors begin at their first entry.

        Args:
            name: of the topic.
            total: how many it has then.
            assigned: the brokers that lead the new ones; None: any.

        Raises:
            UnknownTopic: no such topic exists.
            InvalidPartitions: it has that many, or more.
            TopicStorageFailed: nothing has changed.
        """
        # An addition left halfway would lack cursors, so a caller cannot cancel it.
        addition = self._create_partitions(name, total, assigned)
        return await self._supervisor.finish(addition, f"add partitions to {name}")

    async def _create_partitions(
        self, name: str, total: int, assigned: Sequence[int] | None
    ) -> Topic:
        async with self._changing:
            await self._settle_writes()
            topic = self._expect(name)
            self.check_partitions(topic, total)
            record = topic.record._replace(partition_count=total)
            if self.placement is not None:  # their leaders make the cursors
                leaders = self.placement.place(
                    total - topic.partition_count,
                    existing=record.leaders,
                    assigned=assigned,
                    has_one_leader=record.has_one_leader,
                )
                await self._change(record._replace(leaders=leaders))
                return topic
            topic.keeps_open = True  # the addition follows the cursors of open partitions
            try:
                await self._add_partitions(topic, record)
            finally:
                topic.keeps_open = False
            return topic

    async def _add_partitions(self, topic: Topic, record: TopicRecord) -> None:
        addition = self._addition = PartitionAddition(topic, self._store, record)
        try:
            await addition.prepare()
            try:
                await self._change(record)
            except TopicsError:
                await addition.undo()
                raise
            await addition.settle()
        finally:
            self._addition = None

    async def keep_one_leader(self, topic: Topic) -> None:
        """Let the broker that leads all partitions of a topic lead those that are added, too.

        Raises:
            UnknownTopic: it was deleted.
            InvalidPartitions: several brokers lead partitions of it.
            TopicStorageFailed: nothing has changed.
        """
        if self.placement is None or topic.record.has_one_leader:
            return
        async with self._changing:
            await self._settle_writes()
            record = self._expect(topic.name).record
            if record.topic_id != topic.id:
                raise unknown_topic(topic.name)
            if len(set(record.leaders)) > 1:
                raise InvalidPartitions(
                    f"partitions of {topic.name}: expected one broker that leads all of them, got "
                    f"{', '.join(map(str, sorted(set(record.leaders))))}"
                )
            await self._change(record._replace(has_one_leader=True))

    def check_partitions(self, topic: Topic, total: int) -> None:
        """Check what `create_partitions` checks; plain. Raises InvalidPartitions."""
        if total <= topic.partition_count:
            raise InvalidPartitions(
                f"The topic {topic.name!r} currently has {topic.partition_count} partition(s); "
                f"{total} would not be an increase."
            )
        check_partition_count(total, topic.partition_count + 1)

    async def alter_configs(
        self, name: str, changes: Mapping[str, str | None], *, replace: bool = False
    ) -> Topic:
        """Change settings of a topic, which are in force at once.

        Args:
            name: the topic.
            changes: by name; None removes a setting.
            replace: remove the settings that are not named.

        Raises:
            UnknownTopic: no such topic exists.
            InvalidConfig: nothing was changed.
            TopicStorageFailed: nothing was changed.
        """
        async with self._changing:
            await self._settle_writes()
            topic = self._expect(name)
            configs = self.check_changes(topic, changes, replace=replace)
            await self._change(topic.record._replace(configs=dict(configs)))
            return topic

    # Namespaces

    async def create_namespace(self, name: str) -> None:
        """Create a namespace.

        Raises:
            InvalidNamespaceName, NamespaceAlreadyExists, TooManyNamespaces: it cannot be created.
            TopicStorageFailed: nothing was made.
        """
        async with self._changing:
            await self._settle_writes()
            self.namespaces.check_new(name)
            await _submit([self.namespaces.creation(name, self._clock.now_ms())])

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace without topics, and its settings.

        Raises:
            InvalidNamespaceName, UnknownNamespace: there is no such namespace.
            NamespaceNotDeletable: it has topics, or is `public/default`.
            TopicStorageFailed: nothing was deleted.
        """
        async with self._changing:
            await self._settle_writes()
            self.namespaces.check_known(name)
            if name == DEFAULT_NAMESPACE:
                raise NamespaceNotDeletable(f"namespace {name!r} always exists")
            if topics := self.topics_of(name):
                raise NamespaceNotDeletable(
                    f"namespace {name!r} has topics, expected none, got {len(topics)}:"
                    f" {topics[0].name!r} is the first"
                )
            await _submit([self.namespaces.deletion(name)])

    async def alter_namespace_configs(
        self, name: str, changes: Mapping[str, str | None]
    ) -> Mapping[str, str]:
        """Change settings of a namespace, which are in force at once for its topics.

        Args:
            name: of the namespace.
            changes: by the names of topic settings; None removes a setting.

        Returns:
            All its settings.

        Raises:
            InvalidNamespaceName, UnknownNamespace: there is no such namespace.
            InvalidConfig: nothing was changed.
            TopicStorageFailed: nothing was changed.
        """
        async with self._changing:
            await self._settle_writes()
            self.namespaces.check_known(name)
            check_names(changes)
            configs = _changed(self.namespaces.configs_of(name), changes)
            check_configs(configs)
            for topic in self.topics_of(name):
                effective_config(topic.configs, self.defaults, configs)
            await _submit([self.namespaces.change(name, configs, self._clock.now_ms())])
            return configs

    def topics_of(self, namespace: str) -> list[Topic]:
        """Return the topics of a namespace, by name; plain."""
        return [topic for topic in self.all() if namespace_of(topic.name) == namespace]

    def _namespace_replayed(self, name: str) -> None:
        configs = self.namespaces.configs_of(name)
        for topic in self.topics_of(name):
            topic.change_namespace(configs)
        self.epoch += 1

    def check_changes(
        self, topic: Topic, changes: Mapping[str, str | None], *, replace: bool = False
    ) -> dict[str, str]:
        """Check what `alter_configs` checks; plain.

        Returns:
            All settings as they would be.

        Raises:
            InvalidConfig: what is wrong.
        """
        check_names(changes)
        configs = _changed({} if replace else topic.configs, changes)
        check_configs(configs)
        check_strategy(changes, self.defaults)
        config = effective_config(configs, self.defaults, topic.namespace_configs)
        # What was set before, and is not possible any more, does not prevent other changes.
        has_tier = self.tier is not None or topic.config.is_remote_storage_enabled
        check_remote_storage(config, has_tier=has_tier)
        return configs

    def check_defaults(self, defaults: TopicDefaults) -> None:
        """Check that every topic could have these defaults. Raises InvalidConfig."""
        effective_config({}, defaults)
        for topic in self._topics.values():
            effective_config(topic.configs, defaults, topic.namespace_configs)

    def change_defaults(self, defaults: TopicDefaults) -> None:
        """Use other defaults, at once and for all topics; `check_defaults` must have passed."""
        if defaults == self.defaults:
            return
        self.defaults = defaults
        for topic in self._topics.values():
            topic.change_defaults(defaults)

    @property
    def open_partition_count(self) -> int:
        """How many partitions are open."""
        return sum(topic.open_partition_count for topic in self._topics.values())

    # Background work

    async def enforce_retention(self, committed_offset: LowestCommittedOffset = no_group) -> None:
        """Apply retention to every topic; the next call tries again what failed.

        Args:
            committed_offset: returns the lowest offset that a consumer group has committed of a
                partition, for topics that wait for groups.
        """
        await self.finish_deletions()
        for topic in self.all():
            await enforce_retention(topic, self._store, self._clock, committed_offset)

    async def close_idle_partitions(self, rounds: int) -> int:
        """Begin the next round and close the partitions that were not used for so many rounds.

        A partition that has waiting calls or an open transaction stays open; a call that needs one
        while it closes waits, and opens it again. Some close together to share a sync.

        Returns:
            How many were closed.
        """
        idle: list[tuple[Topic, int]] = []
        for number, topic in enumerate(list(self._topics.values()), 1):
            idle += [(topic, index) for index in topic.idle_partitions(rounds)]
            if number % TOPICS_PER_TICK_MAX == 0:
                await self._clock.sleep(0)
        await run_some_at_a_time(_close_idle, idle, CLOSED_TOGETHER_MAX)
        if idle:
            self.idle_closed.notify()
        return len(idle)

    async def finish_deletions(self) -> None:
        """Remove what deleted topics have left; the next call tries again what failed."""
        await self._deleted_topics.remove()

    async def close(self) -> None:
        """Close all partitions, some together; idempotent. The store stays open."""
        async with self._changing:
            logs = [log for topic in self.all() for log in topic.retire()]
            await run_some_at_a_time(PartitionLog.close, logs, CLOSED_TOGETHER_MAX)
        await self._supervisor.close()

    def _expect(self, name: str) -> Topic:
        topic = self.get(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    async def _settle_writes(self) -> None:
        """Wait for a change whose caller was cancelled; the next is checked on what it leaves."""
        if self._records.is_writing or self.namespaces.is_writing:
            await self._store.flush()

    def _replayed(self, name: str) -> None:
        """Follow the record of a topic: it is durable, or was loaded, or has been deleted."""
        record, topic = self._records.get(name), self._topics.get(name)
        if topic is not None and record is not None and record.topic_id != topic.id:
            self._remove(topic)  # another broker has deleted it and created it again
            topic = None
        if self.placement is not None:
            before = () if topic is None else topic.record.leaders
            self.placement.count(before, () if record is None else record.leaders)
        if topic is None:
            assert record is not None, f"there was no topic {name!r}"
            self._add(record)
        elif record is None:
            self._remove(topic)
        else:
            known_count = topic.partition_count
            topic.apply(record)
            if self._addition is not None:
                self._addition.follow()
            if topic.partition_count > known_count and topic.id in self._watched:
                self._watched[topic.id].notify()
        self.epoch += 1

    def _leader_epoch_changed(self, broker_id: int) -> None:
        """Let answers that name the leader epoch of another broker be made anew."""
        for topic in self._topics.values():
            if broker_id in topic.record.leaders:
                topic.epoch += 1
        self.epoch += 1

    def _add(self, record: TopicRecord) -> None:
        topic = Topic(
            record,
            store=self._store,
            defaults=self.defaults,
            namespace_configs=self.namespaces.configs_of(namespace_of(record.name)),
            tier=self.tier,
            clock=self._clock,
            supervisor=self._supervisor,
            placement=self.placement,
            cursors=self._cursors,
            leader_epoch=self.leader_epoch,
        )
        self._topics[topic.name] = topic
        self._by_id[topic.id] = topic
        self._collisions[collision_key(topic.name)] = topic.name

    def _remove(self, topic: Topic) -> None:
        del self._topics[topic.name]
        del self._by_id[topic.id]
        del self._collisions[collision_key(topic.name)]
        topic.mark_deleted()
        watching = self._watched.pop(topic.id, None)
        if watching is not None:
            watching.notify()
        if not topic.is_settled:
            self._deleted_topics.settle_first(topic.id, topic.settle)
        if self.placement is not None:
            self._deleted_topics.begin_all([topic.record])

    async def _change(self, record: TopicRecord) -> None:
        await _submit([self._records.change(record.name, record)])


def _unknown_topics(store: LedgerStore, known: Mapping[UUID, Topic]) -> list[TopicRecord]:
    """Return the topics that were deleted while this broker did not run, by what they left."""
    counts: dict[tuple[str, UUID], int] = {}
    for found in filter(None, map(partition_of, store.managed_ledger_names())):
        if found.topic_id not in known:
            topic = found.topic, found.topic_id
            counts[topic] = max(counts.get(topic, 0), found.index + 1)
    return [
        TopicRecord(topic, topic_id, count, {}, 0) for (topic, topic_id), count in counts.items()
    ]


def _changed(configs: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return settings after changes; None removes one."""
    after = {**configs, **changes}
    return {name: text for name, text in after.items() if text is not None}


async def _submit(changes: Sequence[RecordChange]) -> None:
    """Write changes, and return when they hold. Raises TopicStorageFailed: nothing has changed."""
    error = await submit_together(changes)
    if isinstance(error, LedgerError):
        raise from_ledger_error(error) from error
    if error is not None:
        raise error


def check_partition_count(count: int, minimum: int = 1) -> None:
    """Check how many partitions a topic shall have. Raises InvalidPartitions."""
    if count < 1:
        raise InvalidPartitions(
            f"Number of partitions was set to an invalid non-positive value: {count}"
        )
    if not minimum <= count <= PARTITIONS_MAX:
        raise InvalidPartitions(f"{count} partitions, expected {minimum} to {PARTITIONS_MAX}")


async def _close_idle(partition: tuple[Topic, int]) -> None:
    topic, index = partition
    try:
        await topic.close_partition(index, only_if_idle=True)
    except TopicsError as error:
        logger.warning("closing idle %s-%d: %s", topic.name, index, error)
