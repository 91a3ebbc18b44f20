"""What native clients ask of topics and subscriptions as wholes; `native.seam.Admin`.

Rule: a topic's subscription is the subscriptions of that name of its partitions; what is asked of
it is asked of every partition.
Must not know: links.
"""

from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from ledger import Position
from native.seam import SubscriptionStats, Target, TopicStats
from topics import TopicRegistry


class ServiceAdmin:
    """The part of the service that needs no link."""

    def __init__(
        self,
        registry: TopicRegistry,
        *,
        forget_topic: Callable[[UUID], Awaitable[None]] | None = None,
    ) -> None:
        self._registry = registry
        self._forget_topic = forget_topic

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Make a topic. Raises TopicExists, InvalidArgument."""
        raise NotImplementedError

    async def delete_topic(self, name: str) -> None:
        """Remove a topic with its subscriptions. Raises TopicNotFound."""
        raise NotImplementedError

    async def topics(self) -> list[str]:
        """Return all names, sorted."""
        raise NotImplementedError

    async def topic_stats(self, name: str) -> TopicStats:
        """Return a topic's numbers."""
        raise NotImplementedError

    async def terminate(self, name: str) -> list[Position]:
        """Let nothing be added any more; return the last position of each partition."""
        raise NotImplementedError

    async def subscriptions(self, topic: str) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        raise NotImplementedError

    async def create_subscription(self, topic: str, name: str, start: Target) -> None:
        """Make a durable subscription without a consumer; nothing if there is one."""
        raise NotImplementedError

    async def delete_subscription(self, topic: str, name: str, *, force: bool) -> None:
        """Remove one. Raises ConsumerBusy while it has consumers, unless they are sent away."""
        raise NotImplementedError

    async def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        """Return its numbers."""
        raise NotImplementedError

    async def reset_subscription(
        self, topic: str, name: str, target: Target, *, partition: int | None, inclusive: bool
    ) -> None:
        """Set where it stands, in one partition or all; its consumers connect again."""
        raise NotImplementedError

    async def skip_messages(self, topic: str, name: str, count: int) -> None:
        """Acknowledge the next so many messages of every partition."""
        raise NotImplementedError

    async def clear_backlog(self, topic: str, name: str) -> None:
        """Acknowledge everything that is there."""
        raise NotImplementedError

    async def peek(
        self, topic: str, name: str, count: int
    ) -> list[tuple[int, Position, bytes, int]]:
        """Return what would come next: (partition, position, batch, records) of whole entries."""
        raise NotImplementedError
