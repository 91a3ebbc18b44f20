"""PartitionDirectory: the partitions that native clients have asked for.

Rule: a partition is opened when it is first wanted, and there is one `SubscribedPartition` for an
open log, however many ask at once; one that has ended is forgotten, and a topic that comes again
under its name gets new ones.
Must not know: links, subscriptions.
"""

from functools import partial

from kledger.native.errors import InvalidArgument, KledgerError, TopicNotFound, Unavailable
from kledger.native.server.error_map import translating
from kledger.native.server.subscribed_partition import SubscribedPartition
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import PartitionLog, Topic, TopicRegistry


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
            TopicNotFound: there is none.
            Unavailable: the server is stopping.
        """
        if self._is_closed:
            raise Unavailable("the server is stopping")
        topic = self._registry.get(name)
        if topic is None:
            raise TopicNotFound(f"no topic is called {name!r}")
        return topic

    async def open(self, name: str, index: int) -> SubscribedPartition:
        """Return a partition; open it if nobody has.

        Raises:
            InvalidArgument: the topic has no such partition.
            TopicNotFound, Unavailable: there is no such topic, or it cannot be opened now.
        """
        topic = self.topic(name)
        if not 0 <= index < topic.partition_count:
            expected = f"expected 0 to {topic.partition_count - 1}"
            raise InvalidArgument(f"partition of {topic.name}: {expected}, got {index}")
        return await self._open(topic, index)

    async def open_all(self, name: str) -> list[SubscribedPartition]:
        """Return all partitions of a topic, in order. Raises as `open`."""
        topic = self.topic(name)
        return [await self._open(topic, index) for index in range(topic.partition_count)]

    async def close(self) -> None:
        """End all of them; may be repeated."""
        self._is_closed = True
        while self._open_partitions:
            _, opened = self._open_partitions.popitem()
            await opened.close()

    async def _open(self, topic: Topic, index: int) -> SubscribedPartition:
        with translating():
            log = await topic.open_partition(index)
        if self._is_closed:
            raise Unavailable("the server is stopping")
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

    def _forget(self, log: PartitionLog, error: KledgerError) -> None:
        self._open_partitions.pop(log, None)
