"""What was delivered to a consumer and not yet handed out.

Rule: first come, first handed out. A batch is decoded when its first message is wanted; what came
by a link goes with that link.
Must not know: who waits, and permits.
"""

from collections import deque
from typing import NamedTuple, Protocol

from native.errors import Unreadable
from native.message import Message
from native.message_codec import decode
from subscriptions.model import Delivery


class Source(Protocol):
    """A link, as far as its messages name it."""

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        ...

    @property
    def partition(self) -> int:
        """Which of the topic."""
        ...

    def give_back(self, count: int) -> None:
        """So many records are out of the queue without having been handed out."""
        ...


class _Arrival(NamedTuple):
    source: Source
    delivery: Delivery
    size: int


class ReceiveQueue:
    """For one consumer, over all its partitions."""

    def __init__(self) -> None:
        self._arrivals: deque[_Arrival] = deque()
        self._ready: deque[Message] = deque()
        self._ready_source: Source | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, source: Source, delivery: Delivery) -> None:
        """Keep what was delivered."""
        count = delivery.record_count
        self._arrivals.append(_Arrival(source, delivery, count))
        self._count += count

    def take(self) -> Message | None:
        """Return the next message, None when there is none.

        Raises:
            Unreadable: what would come next is damaged; the next call goes on behind it.
        """
        if not self._ready and not self._decode():
            return None
        self._count -= 1
        return self._ready.popleft()

    def drop(self, source: Source) -> int:
        """Forget what came by a link; return how many records that were."""
        dropped = 0
        if self._ready_source is source:
            dropped += len(self._ready)
            self._ready.clear()
        kept: deque[_Arrival] = deque()
        for arrival in self._arrivals:
            if arrival.source is source:
                dropped += arrival.size
            else:
                kept.append(arrival)
        self._arrivals = kept
        self._count -= dropped
        return dropped

    def _decode(self) -> bool:
        while self._arrivals:
            source, delivery, count = self._arrivals.popleft()
            self._ready_source = source
            try:
                messages = decode(
                    delivery, topic=source.topic, partition=source.partition, link=source
                )
            except Unreadable:
                self._count -= count
                source.give_back(count)
                raise
            self._count += len(messages) - count
            self._ready.extend(messages)
            if messages:
                return True
        return False
