"""PartitionDirectory: the open partitions that have subscriptions.

Rule: a partition is opened by its first caller, and an open log has one `SubscribedPartition`,
however many calls overlap. One that has ended is forgotten; a topic that is created again under the
same name gets new ones. Before a broker of a cluster answers that it does not have something, it
applies what the other brokers have changed.
Must not know: clients, subscriptions.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, TypeVar

from kledger.delivery.errors import PartitionEnded, PartitionIndexOutOfRange, ServerStopping
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import PartitionLog, Topic, TopicRegistry, UnknownTopic
from kledger.topics.errors import NotLeader

T = TypeVar("T")
Refresh: TypeAlias = Callable[[], Awaitable[None]]
"""Applies what other brokers have changed before the call. Raises LedgerError: it is not known."""


class PartitionDirectory:
    """One per server."""

    def __init__(
        self,
        registry: TopicRegistry,
        *,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
        refresh: Refresh | None = None,
    ) -> None:
        """Args: refresh: the topics that brokers share; None: the server is alone."""
        self._registry = registry
        self.refresh = refresh
        self._clock = clock
        self._timers = timers
        self._supervisor = supervisor
        self._open_partitions: dict[PartitionLog, SubscribedPartition] = {}
        self._is_closed = False

    async def topic(self, name: str) -> Topic:
        """Return a topic by either of its names.

        Raises:
            UnknownTopic: there is none.
            ServerStopping: the directory is closed.
            LedgerError: it is not known what other brokers have changed.
        """
        return await self._find(lambda: self._known(name))

    async def topic_of(self, name: str, index: int) -> Topic:
        """Return the topic of a partition that this broker leads.

        Raises:
            PartitionIndexOutOfRange: the topic has no such partition.
            NotLeader: another broker leads it.
            UnknownTopic, ServerStopping, LedgerError: as for `topic`.
        """
        return await self._find(lambda: self._known(name, index))

    async def led_topic(self, name: str) -> Topic:
        """Return a topic of which this broker leads some partition.

        Raises:
            NotLeader: other brokers lead all.
            UnknownTopic, ServerStopping, LedgerError: as for `topic`.
        """
        return await self._find(lambda: self._known_led(name))

    async def open(self, name: str, index: int) -> SubscribedPartition:
        """Return a partition; open it if it is closed.

        Raises:
            PartitionIndexOutOfRange, NotLeader, UnknownTopic, ServerStopping: as for `topic_of`.
            TopicsError, LedgerError: it cannot be opened now.
        """
        return await self._open(await self.topic_of(name, index), index)

    async def open_all(self, name: str) -> list[SubscribedPartition]:
        """Return the partitions of a topic that this broker leads, in order; at least one.

        Raises:
            NotLeader, UnknownTopic, ServerStopping: as for `led_topic`.
            TopicsError, LedgerError: one cannot be opened now.
        """
        topic = await self.led_topic(name)
        return [await self._open(topic, index) for index in topic.led_partitions()]

    async def close(self) -> None:
        """End all partitions; may be repeated."""
        self._is_closed = True
        while self._open_partitions:
            _, opened = self._open_partitions.popitem()
            await opened.close()

    async def _open(self, topic: Topic, index: int) -> SubscribedPartition:
        log = await topic.open_partition(index)
        self._check_open()
        opened = self._open_partitions.get(log)
        if opened is None:
            opened = SubscribedPartition(
                topic,
                log,
                clock=self._clock,
                timers=self._timers,
                supervisor=self._supervisor,
            )
            self._open_partitions[log] = opened
            opened.add_listener(partial(self._forget, log), keeps_open=False)
        return opened

    async def _find(self, find: Callable[[], T]) -> T:
        try:
            return find()
        except (UnknownTopic, PartitionIndexOutOfRange, NotLeader):
            if self.refresh is None:
                raise
        await self.refresh()
        return find()

    def _known(self, name: str, index: int | None = None) -> Topic:
        self._check_open()
        topic = self._registry.get(name)
        if topic is None:
            raise UnknownTopic(f"no topic is called {name!r}")
        if index is None:
            return topic
        if not 0 <= index < topic.partition_count:
            expected = f"expected 0 to {topic.partition_count - 1}"
            raise PartitionIndexOutOfRange(f"partition of {topic.name}: {expected}, got {index}")
        topic.check_leader(index)
        return topic

    def _known_led(self, name: str) -> Topic:
        topic = self._known(name)
        if not topic.led_partitions():
            topic.check_leader(0)
        return topic

    def _check_open(self) -> None:
        if self._is_closed:
            raise ServerStopping("the server is stopping")

    def _forget(self, log: PartitionLog, error: PartitionEnded) -> None:
        self._open_partitions.pop(log, None)
