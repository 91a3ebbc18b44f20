"""Shared state: entries are delivered to consumers in rotation, without any order.

Rule: queued entries come before new ones. The next consumer is one with room, of the highest
priority that has any; it gets up to `round_robin_entries_max` entries of a read.
Must not know: keys, cursors, clocks. Source: Pulsar's PersistentDispatcherMultipleConsumers.
"""

from collections.abc import Iterable, Mapping, Sequence

from kledger.ledger import Buffer, Entry, Position
from kledger.subscriptions.dispatch.consumer_pick import pick_shared
from kledger.subscriptions.dispatch.consumer_state import ConsumerState
from kledger.subscriptions.dispatch.dispatch_state import DeliveriesByConsumer
from kledger.subscriptions.dispatch.multiple_consumers_state import MultipleConsumersState
from kledger.subscriptions.dispatch.replay_queue_state import ReplayQueue
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import RecordsByKeyHash


class SharedState(MultipleConsumersState):
    """See `DispatchState`."""

    def __init__(self, options: DispatchOptions) -> None:
        super().__init__(options)
        self._queue = ReplayQueue()
        self._current_consumer: ConsumerState | None = None
        self._current_entries_left = 0

    def _check_admission(self, consumer: ConsumerState) -> None:
        """Every consumer can join."""

    def _on_consumer_removed(self, consumer: ConsumerState) -> None:
        """The rotation skips it from the next read on."""

    # The queue

    def _enqueue(self, position: Position, records: int) -> None:
        self._queue.add(position, records)

    def _enqueue_due(self, position: Position, key_hashes: RecordsByKeyHash) -> None:
        self._queue.add(position, 1)

    def _key_hashes_for_delay(self, position: Position, data: Buffer) -> RecordsByKeyHash:
        return ()

    def _dequeue(self, position: Position, records: int) -> None:
        self._queue.remove(position, records)

    def _dequeue_before(self, position: Position) -> None:
        self._queue.remove_before(position)

    def _dequeue_all(self) -> None:
        self._queue.clear()

    def _released(self, position: Position, records: int) -> bool:
        return False

    # Reading

    def _must_wait(self) -> bool:
        return bool(self._queue)

    def positions_to_replay(self) -> list[Position]:
        """Return the first entries of the queue, up to the limit."""
        if not self._queue:
            return []
        room = sum(each.room for each in self._with_room())
        if room <= 0:
            return []
        return self._queue.first(self.options.read_entries_max, min(room, self._unacked.left))

    # Dispatching

    def dispatch(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], now_ms: int
    ) -> tuple[DeliveriesByConsumer, int]:
        """Dispatch to consumers in rotation, beginning with the next one."""
        self._current_entries_left = 0
        return super().dispatch(entries, remaining, now_ms)

    def dispatch_replayed(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], gone: Iterable[Position]
    ) -> DeliveriesByConsumer:
        """Dispatch to consumers in rotation, beginning with the next one."""
        self._current_entries_left = 0
        return super().dispatch_replayed(entries, remaining, gone)

    def _offer(self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int) -> None:
        consumer = self._next()
        if consumer is None:
            self._queue.add(entry.position, records)
        else:
            self._give(out, consumer, entry, full=full, records=records)

    def _offer_again(
        self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int
    ) -> None:
        waiting = self._queue.records_of(entry.position)
        self._queue.remove(entry.position, waiting & ~records)
        if waiting & records and (consumer := self._next()) is not None:
            self._queue.remove(entry.position, waiting)
            self._give(out, consumer, entry, full=full, records=waiting & records)

    def _next(self) -> ConsumerState | None:
        """Return the consumer of the next entry; one with room gets several in a row."""
        current = self._current_consumer
        if (
            current is not None
            and self._current_entries_left > 0
            and current.room > 0
            and not self._is_blocked
        ):
            self._current_entries_left -= 1
            return current
        chosen = pick_shared(self._with_room(), current.number if current is not None else -1)
        if chosen is not None:
            self._current_consumer = chosen
            self._current_entries_left = self.options.round_robin_entries_max - 1
        return chosen
