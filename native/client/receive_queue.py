"""What was delivered to a consumer and not yet handed out.

Rule: first come, first handed out. A batch is decoded when its first message is wanted, a long one
in a thread while what is behind it waits; what came by a link goes with that link.
Must not know: who waits, and permits.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kledger.native.client.message_decoder import LongDecoding, MessageDecoder
from kledger.native.errors import Unreadable
from kledger.native.message import Message
from kledger.subscriptions.model import Delivery


class DeliverySource(Protocol):
    """A link, as far as its messages name it."""

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        ...

    @property
    def partition(self) -> int:
        """Which of the topic."""
        ...

    def return_permits(self, count: int) -> None:
        """So many records are out of the queue without having been handed out."""
        ...


class _QueuedDelivery(NamedTuple):
    source: DeliverySource
    delivery: Delivery
    size: int


class ReceiveQueue:
    """For one consumer, over all its partitions."""

    def __init__(self, decoder: MessageDecoder, changed: Callable[[], None]) -> None:
        """Args: changed: called when `take` may return something else because of a long batch."""
        self._decoder = decoder
        self._changed = changed
        self._deliveries: deque[_QueuedDelivery] = deque()
        self._decoded: deque[Message] = deque()
        self._decoded_source: DeliverySource | None = None
        self._decoding: LongDecoding | None = None  # of the same source, behind what is ready
        self._decoding_count = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_decoding(self) -> bool:
        """Whether `take` has nothing only because what comes next is still being decoded."""
        return self._decoding is not None and not self._decoded

    def add(self, source: DeliverySource, delivery: Delivery) -> None:
        """Keep what was delivered."""
        count = delivery.record_count
        self._deliveries.append(_QueuedDelivery(source, delivery, count))
        self._count += count

    def take(self) -> Message | None:
        """Return the next message; None: there is none, or it is being decoded.

        Raises:
            Unreadable: what would come next is damaged; the next call goes on behind it.
        """
        if not self._decoded and not self._decode():
            return None
        self._count -= 1
        return self._decoded.popleft()

    def gather(self, count: int) -> bool:
        """Put parts of a long batch together; return False while more is needed and decoded.

        Raises:
            Unreadable: as `take`.
        """
        while self._decoding is not None and len(self._decoded) < count:
            messages = self._go_on(self._decoding)
            if messages is None:
                return False
            self._decoded.extend(messages)
        return True

    def drop(self, source: DeliverySource) -> int:
        """Forget what came by a link; return how many records that were."""
        dropped = 0
        if self._decoded_source is source:
            dropped += len(self._decoded)
            self._decoded.clear()
            if self._decoding is not None:
                dropped += self._decoding_count
                self._decoding.drop()
                self._decoding = None
                self._changed()
        kept: deque[_QueuedDelivery] = deque()
        for arrival in self._deliveries:
            if arrival.source is source:
                dropped += arrival.size
            else:
                kept.append(arrival)
        self._deliveries = kept
        self._count -= dropped
        return dropped

    def _decode(self) -> bool:
        """Make messages ready; return False when there are none, or none yet."""
        while self._decoding is not None or self._deliveries:
            if self._decoding is None:
                messages = self._begin(self._deliveries.popleft())
            else:
                messages = self._go_on(self._decoding)
            if messages is None:
                return False
            if messages:
                self._decoded.extend(messages)
                return True
        return False

    def _begin(self, arrival: _QueuedDelivery) -> list[Message] | None:
        """Decode what came next; return None when that takes longer."""
        source, delivery, count = arrival
        topic, partition = source.topic, source.partition
        self._decoded_source = source
        try:
            messages = self._decoder.decode_at_once(
                delivery, topic=topic, partition=partition, link=source
            )
        except Unreadable:
            self._give_back(count)
            raise
        if messages is None:
            self._decoding_count = count
            self._decoding = self._decoder.begin(
                delivery, topic=topic, partition=partition, link=source, changed=self._changed
            )
        else:
            self._count += len(messages) - count
        return messages

    def _go_on(self, decoding: LongDecoding) -> list[Message] | None:
        """Take what was decoded of a long batch; return None when that is nothing yet."""
        try:
            messages = decoding.take()
        except Unreadable:
            self._decoding = None
            self._give_back(self._decoding_count)
            raise
        if messages:
            self._decoding_count -= len(messages)
        elif messages is not None:  # the header had claimed another number
            self._decoding = None
            self._count -= self._decoding_count
        return messages

    def _give_back(self, count: int) -> None:
        self._count -= count
        assert self._decoded_source is not None, "nothing was decoded"
        self._decoded_source.return_permits(count)
