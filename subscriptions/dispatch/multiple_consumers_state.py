"""Sharing state: what shared and key_shared have in common, where many consumers get something.

Rule: a record is in one place: not read yet, with one consumer, in the queue of what shall be read
again, or waiting for its time. When the last consumer leaves, all of it is forgotten but how often
records were handed out; whoever comes next begins with what is not acknowledged.
Must not know: cursors, clocks, who of the consumers is the right one.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from kledger.ledger import Buffer, Entry, Position
from kledger.subscriptions.dispatch.consumer_state import ConsumerState, UnackedLimit
from kledger.subscriptions.dispatch.delayed_state import DelayedState
from kledger.subscriptions.dispatch.dispatch_state import (
    DeliveriesByConsumer,
    ReplayingState,
    RewindCursor,
)
from kledger.subscriptions.dispatch.pending_acks_state import PendingAcks
from kledger.subscriptions.dispatch.redelivery_counts_state import RedeliveryCounts
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import RecordsByKeyHash, deliver_at_ms, record_count
from kledger.subscriptions.model import ALL, Delivery, RecordMask


class MultipleConsumersState(ReplayingState):
    """Either type; see `DispatchState`."""

    def __init__(self, options: DispatchOptions) -> None:
        super().__init__(options)
        self._pending = PendingAcks()
        self._counts = RedeliveryCounts()
        self._delays = DelayedState()
        self._unacked = UnackedLimit.of_subscription(options.unacked_subscription_max)
        self._has_unblocked = False
        self.scanned_delivery_times: Mapping[Position, int | None] = {}
        """`deliver_at_ms` of entries that were read last, as far as somebody has looked them up."""

    # For the types

    @abstractmethod
    def _check_admission(self, consumer: ConsumerState) -> None:
        """A consumer is about to join; raise when it cannot."""

    @abstractmethod
    def _on_consumer_removed(self, consumer: ConsumerState) -> None:
        """A consumer has left, and has nothing any more."""

    @abstractmethod
    def _enqueue(self, position: Position, records: int) -> None:
        """Records that were with a consumer shall be read again."""

    @abstractmethod
    def _enqueue_due(self, position: Position, key_hashes: RecordsByKeyHash) -> None:
        """The only record of an entry had to wait for its time, and that has come."""

    @abstractmethod
    def _dequeue(self, position: Position, records: int) -> None:
        """Records need not be read again; those that are not in the queue are passed over."""

    @abstractmethod
    def _dequeue_before(self, position: Position) -> None:
        """Nothing before a position needs to be read again."""

    @abstractmethod
    def _dequeue_all(self) -> None:
        """Nothing needs to be read again, and nobody has anything."""

    @abstractmethod
    def _key_hashes_for_delay(self, position: Position, data: Buffer) -> RecordsByKeyHash:
        """Return what of a delayed entry must be known when its time has come."""

    @abstractmethod
    def _released(self, position: Position, records: int) -> bool:
        """Nobody has these records any more; tell whether anything waited for that."""

    @abstractmethod
    def _offer(self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int) -> None:
        """Give records of an entry to whom they are for, and let the rest be read again."""

    @abstractmethod
    def _offer_again(
        self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int
    ) -> None:
        """Give what waits of an entry, as far as it is owed; what is not goes."""

    # Consumers

    def _join(self, consumer: ConsumerState) -> RewindCursor | None:
        self._check_admission(consumer)
        self.consumers[consumer.number] = consumer
        return RewindCursor() if len(self.consumers) == 1 else None

    def _leave(self, consumer: ConsumerState) -> RewindCursor | None:
        self._give_back(consumer.number, self._pending.masks_of(consumer.number))
        self._on_consumer_removed(consumer)
        if not self.consumers:
            self._forget()
        return None

    def is_active(self, number: int) -> bool:
        """Everybody is who is here."""
        return number in self.consumers

    def redeliver(self, number: int, masks: Sequence[RecordMask] | None) -> RewindCursor | None:
        """Let pieces be read again, as far as the consumer has them."""
        self._give_back(number, self._pending.masks_of(number) if masks is None else masks)
        return None

    def _give_back(self, number: int, masks: Iterable[RecordMask]) -> None:
        for position, wanted in masks:
            records = self._pending.remove_of(number, position, wanted)
            if records:
                self._counts.add(position, records)
                self._release_count(position, number, records)
                self._enqueue(position, records)

    def _release_count(self, position: Position, number: int, records: int) -> None:
        count = records.bit_count()
        consumer = self.consumers.get(number)
        if consumer is not None:
            self._has_unblocked |= consumer.unacked.remove(count)
        self._has_unblocked |= self._unacked.remove(count)
        self._has_unblocked |= self._released(position, records)

    # Reading

    def rewound(self) -> None:
        """Nobody was here: there is nothing but how often records were handed out."""
        assert not self._pending, "somebody has records that will be read again"
        self._forget()

    def entries_wanted(self) -> int:
        """Return how many entries there is room for, when nothing else comes first."""
        if len(self._delays) >= self.options.delayed_max or self._must_wait():
            return 0
        room = sum(max(each.room, 0) for each in self.consumers.values())
        return self._entries_for(min(room, self._unacked.left))

    @abstractmethod
    def _must_wait(self) -> bool:
        """Tell whether reading on has to wait for what is read again."""

    @property
    def _is_blocked(self) -> bool:
        """Whether nobody gets anything, because all together have too much."""
        return self._unacked.is_blocked

    def _with_room(self) -> list[ConsumerState]:
        """Return who may get something."""
        if self._is_blocked:
            return []
        return [each for each in self.consumers.values() if each.room > 0]

    # Handing out

    def dispatch(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], now_ms: int
    ) -> tuple[DeliveriesByConsumer, int]:
        """Give entries to consumers; what nobody can take now will be read again."""
        out: DeliveriesByConsumer = {}
        if not self.consumers:  # who comes next begins with what is not acknowledged
            return out, len(entries)
        total = 0
        for entry in entries:
            position, data = entry
            count = record_count(data)
            if count == 1:
                times = self.scanned_delivery_times
                due_ms = times[position] if position in times else deliver_at_ms(data)
                if due_ms is not None and due_ms > now_ms:
                    key_hashes = self._key_hashes_for_delay(position, data)
                    self._delays.add(due_ms, position, key_hashes)
                    continue
            full = (1 << count) - 1
            records = full & remaining.get(position, ALL) if remaining else full
            total += count
            if records:
                self._offer(out, entry, full, records)
        self._learn_batch_size(len(entries), max(total, len(entries)))
        return out, len(entries)

    def dispatch_replayed(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], gone: Iterable[Position]
    ) -> DeliveriesByConsumer:
        """Give entries to consumers; what nobody can take now stays in the queue."""
        out: DeliveriesByConsumer = {}
        for position in gone:
            self._dequeue(position, ALL)
            self._counts.forget(position, ALL)
        for entry in entries:
            full = (1 << record_count(entry.buffer)) - 1
            self._offer_again(out, entry, full, full & remaining.get(entry.position, ALL))
        return out

    def _give(
        self,
        out: DeliveriesByConsumer,
        consumer: ConsumerState,
        entry: Entry,
        *,
        full: int,
        records: int,
    ) -> None:
        """Let a consumer have records."""
        position, data = entry
        count = records.bit_count()
        consumer.count_delivered(count)
        self._unacked.add(count)
        self._pending.add(position, consumer.number, records)
        deliveries = out.get(consumer.number)
        if deliveries is None:
            deliveries = out[consumer.number] = []
        if not self._counts:
            deliveries.append(Delivery(position, data, ALL if records == full else records, 0))
            return
        for times, part in self._counts.split(position, records):
            deliveries.append(Delivery(position, data, ALL if part == full else part, times))
            if times:
                self.redelivered += part.bit_count()

    # Acknowledging

    def acknowledged(self, masks: Iterable[RecordMask]) -> bool:
        """Take records out, wherever they are."""
        self._has_unblocked = False
        had_to_wait = self._must_wait()
        for position, records in masks:
            for number, taken in self._pending.remove(position, records):
                self._release_count(position, number, taken)
            self._dequeue(position, records)
            if self._counts:
                self._counts.forget(position, records)
        return self._has_unblocked or (had_to_wait and not self._must_wait())

    def acknowledged_upto(self, position: Position, records: int) -> bool:
        """Take out all before a position; nobody does it while consumers share, but revisions."""
        before = self._pending.positions_before(position)
        eased = self.acknowledged(
            [*(RecordMask(each) for each in before), RecordMask(position, records)]
        )
        self._dequeue_before(position)
        self._counts.forget_before(position)
        self._delays.forget_before(position)
        return eased

    def clear(self) -> None:
        """Forget everything."""
        self._forget()
        self._counts.clear()

    def _forget(self) -> None:
        self._pending.clear()
        for consumer in self.consumers.values():
            consumer.unacked.clear()
        self._unacked.clear()
        self._delays.clear()
        self._dequeue_all()

    # Numbers, time

    @property
    def unacknowledged(self) -> int:
        """How many records consumers have."""
        return self._unacked.count

    @property
    def delayed(self) -> int:
        """How many records wait for their time."""
        return len(self._delays)

    @property
    def next_due_ms(self) -> int | None:
        """When the first delayed record is due."""
        return self._delays.next_due_ms

    def release_due(self, now_ms: int) -> None:
        """Let what is due be read again."""
        for position, key_hashes in self._delays.pop_due(now_ms):
            self._enqueue_due(position, key_hashes)
