"""ReceiveQueue: delivered messages that the application has not received yet.

Rule: first in, first out. A batch is decoded when its first message is taken; a long one is decoded
in a thread while the batches behind it wait. The messages of a link are dropped with the link.
Must not know: callers of `receive`, how permits are sent.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kledger.native.client.message_decoder import LongDecoding, MessageDecoder
from kledger.native.errors import Unreadable
from kledger.native.message import Message
from kledger.subscriptions.model import Delivery


class DeliverySource(Protocol):
    """The session that has delivered messages."""

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        ...

    @property
    def partition(self) -> int:
        """Its number in the topic."""
        ...

    def return_permits(self, count: int) -> None:
        """Take back the permits of records that left the queue without being received."""
        ...


class _QueuedDelivery(NamedTuple):
    source: DeliverySource
    delivery: Delivery
    size: int


class ReceiveQueue:
    """The queue of one consumer, over all its partitions."""

    def __init__(self, decoder: MessageDecoder, changed: Callable[[], None]) -> None:
        """Args: changed: called when more of a long batch is decoded, or its link has ended."""
        self._decoder = decoder
        self._changed = changed
        self._deliveries: deque[_QueuedDelivery] = deque()
        self._decoded: deque[Message] = deque()
        self._decoded_source: DeliverySource | None = None
        self._decoding: LongDecoding | None = None  # of the same source, behind `_decoded`
        self._decoding_count = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_decoding(self) -> bool:
        """Whether `take` returns None only because the next batch is still being decoded."""
        return self._decoding is not None and not self._decoded

    def add(self, source: DeliverySource, delivery: Delivery) -> None:
        """Append a delivery."""
        count = delivery.record_count
        self._deliveries.append(_QueuedDelivery(source, delivery, count))
        self._count += count

    def take(self) -> Message | None:
        """Return the next message; None: there is none, or it is being decoded.

        Raises:
            Unreadable: the next batch is damaged; the next call continues behind it.
        """
        if not self._decoded and not self._decode():
            return None
        self._count -= 1
        return self._decoded.popleft()

    def take_run(self, count: int) -> list[Message]:
        """Return up to `count` messages of the next entry; none: as `take`. Raises as `take`."""
        decoded = self._decoded
        if not decoded and not self._decode():
            return []
        if len(decoded) <= count:
            run = list(decoded)
            decoded.clear()
        else:
            run = [decoded.popleft() for _ in range(count)]
        self._count -= len(run)
        return run

    def gather(self, count: int) -> bool:
        """Collect `count` messages of a long batch; return False while it is being decoded.

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
        """Remove the messages of a link; return the number of their records."""
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
        """Decode the next batch; return False if there is none, or it is not ready."""
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
        """Decode a delivery; return None if it is a long one, which a thread decodes."""
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
        """Return the decoded messages of a long batch; None: there are none yet."""
        try:
            messages = decoding.take()
        except Unreadable:
            self._decoding = None
            self._give_back(self._decoding_count)
            raise
        if messages:
            self._decoding_count -= len(messages)
        elif messages is not None:  # the header stated a wrong count
            self._decoding = None
            self._count -= self._decoding_count
        return messages

    def _give_back(self, count: int) -> None:
        self._count -= count
        assert self._decoded_source is not None, "nothing was decoded"
        self._decoded_source.return_permits(count)
