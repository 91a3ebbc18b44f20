"""Multiple consumers state: what shared and key_shared have in common.

Rule: an unacknowledged record is in exactly one state: not read yet, pending with one consumer,
queued to be read again, or delayed. When the last consumer leaves, all is forgotten but the
redelivery counts; the next one begins with everything that is not acknowledged.
Must not know: cursors, clocks, how a consumer is picked.
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
    """The base of both types; see `DispatchState`."""

    def __init__(self, options: DispatchOptions) -> None:
        super().__init__(options)
        self._pending = PendingAcks()
        self._counts = RedeliveryCounts()
        self._delays = DelayedState()
        self._unacked = UnackedLimit.of_subscription(options.unacked_subscription_max)
        self._has_unblocked = False
        self.scanned_delivery_times: Mapping[Position, int | None] = {}
        """`deliver_at_ms` of large entries of the last read, scanned by the dispatcher."""

    # What the types add

    @abstractmethod
    def _check_admission(self, consumer: ConsumerState) -> None:
        """Raise when a consumer cannot join."""

    @abstractmethod
    def _on_consumer_removed(self, consumer: ConsumerState) -> None:
        """Called when a consumer has left, and its records are queued."""

    @abstractmethod
    def _enqueue(self, position: Position, records: int) -> None:
        """Queue records that a consumer had."""

    @abstractmethod
    def _enqueue_due(self, position: Position, key_hashes: RecordsByKeyHash) -> None:
        """Queue the only record of a delayed entry, which is due."""

    @abstractmethod
    def _dequeue(self, position: Position, records: int) -> None:
        """Remove records from the queue; those that are not in it are ignored."""

    @abstractmethod
    def _dequeue_before(self, position: Position) -> None:
        """Remove everything before a position from the queue."""

    @abstractmethod
    def _dequeue_all(self) -> None:
        """Empty the queue; no consumer has records any more."""

    @abstractmethod
    def _key_hashes_for_delay(self, position: Position, data: Buffer) -> RecordsByKeyHash:
        """Return what `_enqueue_due` needs of a delayed entry."""

    @abstractmethod
    def _released(self, position: Position, records: int) -> bool:
        """Note that no consumer has these records any more; return whether others waited for it."""

    @abstractmethod
    def _offer(self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int) -> None:
        """Deliver records of a new entry, and queue those for which there is no room."""

    @abstractmethod
    def _offer_again(
        self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int
    ) -> None:
        """Deliver the queued records of an entry; those not in `records` leave the queue."""

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
        """Every consumer is."""
        return number in self.consumers

    def redeliver(self, number: int, masks: Sequence[RecordMask] | None) -> RewindCursor | None:
        """Queue records that the consumer has, all or those of the masks."""
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
        """Begin again with the first consumer."""
        assert not self._pending, "consumers have records that will be read again"
        self._forget()

    def entries_wanted(self) -> int:
        """Return for how many entries there is room, unless the queue or delays come first."""
        if len(self._delays) >= self.options.delayed_max or self._must_wait():
            return 0
        room = sum(max(each.room, 0) for each in self.consumers.values())
        return self._entries_for(min(room, self._unacked.left))

    @abstractmethod
    def _must_wait(self) -> bool:
        """Whether queued entries must be read before new ones."""

    @property
    def _is_blocked(self) -> bool:
        """Whether the consumers together have reached the limit."""
        return self._unacked.is_blocked

    def _with_room(self) -> list[ConsumerState]:
        """Return the consumers that may get records."""
        if self._is_blocked:
            return []
        return [each for each in self.consumers.values() if each.room > 0]

    # Dispatching

    def dispatch(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], now_ms: int
    ) -> tuple[DeliveriesByConsumer, int]:
        """Dispatch new entries; records for which there is no room are queued."""
        out: DeliveriesByConsumer = {}
        if not self.consumers:  # the next one begins with all that is not acknowledged
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
        self._estimate_batch_size(len(entries), max(total, len(entries)))
        return out, len(entries)

    def dispatch_replayed(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], gone: Iterable[Position]
    ) -> DeliveriesByConsumer:
        """Dispatch queued entries; records for which there is no room stay in the queue."""
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
        """Deliver records to a consumer."""
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
        """Forget records, pending or queued."""
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
        """Forget all before a position; consumers cannot do that here, but revisions do."""
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

    # Numbers, delays

    @property
    def unacknowledged(self) -> int:
        """How many records are delivered and not acknowledged."""
        return self._unacked.count

    @property
    def delayed(self) -> int:
        """How many delayed records are not due yet."""
        return len(self._delays)

    @property
    def next_due_ms(self) -> int | None:
        """The wall time at which the first delayed record is due."""
        return self._delays.next_due_ms

    def release_due(self, now_ms: int) -> None:
        """Queue the delayed records that are due."""
        for position, key_hashes in self._delays.pop_due(now_ms):
            self._enqueue_due(position, key_hashes)
