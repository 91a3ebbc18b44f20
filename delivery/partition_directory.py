"""PartitionDirectory: the open partitions that have subscriptions.

Rule: a partition is opened by its first caller, and an open log has one `SubscribedPartition`,
however many calls overlap. One that has ended is forgotten; a topic that is created again under the
same name gets new ones.
Must not know: clients, subscriptions.
"""

from functools import partial

from kledger.delivery.errors import PartitionEnded, PartitionIndexOutOfRange, ServerStopping
from kledger.delivery.subscribed_partition import SubscribedPartition
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import PartitionLog, Topic, TopicRegistry, UnknownTopic


class PartitionDirectory:
    """One per server."""

    def __init__(
        self, registry: TopicRegistry, *, clock: Clock, timers: Timers, supervisor: Supervisor
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._timers = timers
        self._supervisor = supervisor
        self._open_partitions: dict[PartitionLog, SubscribedPartition] = {}
        self._is_closed = False

    def topic(self, name: str) -> Topic:
        """Return a topic by either of its names.

        Raises:
            UnknownTopic: there is none.
            ServerStopping: the directory is closed.
        """
        self._check_open()
        topic = self._registry.get(name)
        if topic is None:
            raise UnknownTopic(f"no topic is called {name!r}")
        return topic

    async def open(self, name: str, index: int) -> SubscribedPartition:
        """Return a partition; open it if it is closed.

        Raises:
            PartitionIndexOutOfRange: the topic has no such partition.
            UnknownTopic, ServerStopping: as for `topic`.
            TopicsError, LedgerError: it cannot be opened now.
        """
        topic = self.topic(name)
        if not 0 <= index < topic.partition_count:
            expected = f"expected 0 to {topic.partition_count - 1}"
            raise PartitionIndexOutOfRange(f"partition of {topic.name}: {expected}, got {index}")
        return await self._open(topic, index)

    async def open_all(self, name: str) -> list[SubscribedPartition]:
        """Return all partitions of a topic, in order. Raises as `open`."""
        topic = self.topic(name)
        return [await self._open(topic, index) for index in range(topic.partition_count)]

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

    def _check_open(self) -> None:
        if self._is_closed:
            raise ServerStopping("the server is stopping")

    def _forget(self, log: PartitionLog, error: PartitionEnded) -> None:
        self._open_partitions.pop(log, None)
