"""NativeService: the server as its native clients see it; `native.seam.Broker`, inside the process.

Rule: everything that comes from a client is checked here or by the room that takes it, and all that
rooms below raise leaves in the words of `native.errors`. Partitions are opened when they are
wanted, links end with their partition.
Must not know: whether its client sits in the same process, and the Kafka façade.
"""

from collections.abc import Awaitable, Callable
from uuid import UUID

from ledger import LedgerStore
from native.seam import (
    ConsumerLink,
    ConsumerRequest,
    Ended,
    MessagePlace,
    ProducerLink,
    TopicInfo,
)
from native.service_admin import ServiceAdmin
from runtime.clock import Clock
from runtime.tasks import Supervisor
from runtime.timers import Timers
from subscriptions.model import Deliver
from topics import TopicRegistry

ForgetTopic = Callable[[UUID], Awaitable[None]]


class NativeService(ServiceAdmin):
    """One per server; every native client of the server has the same one."""

    def __init__(
        self,
        *,
        store: LedgerStore,
        registry: TopicRegistry,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
        auto_create_topics: bool = True,
        forget_topic: ForgetTopic | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        `lookup` makes topics only with `auto_create_topics`; `forget_topic` is called when a topic
        was deleted, for what others keep of it.
        """
        super().__init__(registry, forget_topic=forget_topic)
        self._store = store
        self._clock = clock
        self._timers = timers
        self._supervisor = supervisor
        self._auto_create_topics = auto_create_topics

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        """Find a topic; see `native.seam.Broker`."""
        raise NotImplementedError

    async def open_producer(
        self, topic: str, partition: int, *, name: str, ended: Ended
    ) -> ProducerLink:
        """Open a way to append; see `native.seam.Broker`."""
        raise NotImplementedError

    async def open_consumer(
        self, request: ConsumerRequest, *, deliver: Deliver, ended: Ended
    ) -> ConsumerLink:
        """Join a subscription; see `native.seam.Broker`."""
        raise NotImplementedError

    async def last_place(self, topic: str, partition: int) -> MessagePlace:
        """Return the newest record that can be read; see `native.seam.Broker`."""
        raise NotImplementedError

    async def close(self) -> None:
        """End every link, close every subscription; may be repeated."""
