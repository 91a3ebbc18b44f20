"""Shared state: consumers take turns, in no particular order.

Rule: what shall come again comes before what is new; a turn goes to who has room, of the highest
priority that has any.
Must not know: keys, cursors, clocks. Source: Pulsar's PersistentDispatcherMultipleConsumers.
"""

from collections.abc import Iterable, Mapping, Sequence

from kledger.ledger import Buffer, Entry, Position
from kledger.subscriptions.consumer_pick import pick_shared
from kledger.subscriptions.consumer_state import ConsumerState
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.dispatch_state import HandOut
from kledger.subscriptions.entry_view import SlotRecords
from kledger.subscriptions.replay_queue_state import ReplayQueue
from kledger.subscriptions.sharing_state import SharingState


class SharedState(SharingState):
    """See `DispatchState`."""

    def __init__(self, options: DispatchOptions) -> None:
        super().__init__(options)
        self._queue = ReplayQueue()
        self._turn: ConsumerState | None = None
        self._turn_left = 0

    def _admit(self, consumer: ConsumerState) -> None:
        """Everybody can join."""

    def _dismiss(self, consumer: ConsumerState) -> None:
        """Its turn ends with the next read."""

    # The queue

    def _enqueue(self, position: Position, records: int) -> None:
        self._queue.add(position, records)

    def _enqueue_due(self, position: Position, slots: SlotRecords) -> None:
        self._queue.add(position, 1)

    def _slots_for_delay(self, position: Position, data: Buffer) -> SlotRecords:
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

    def replay_wanted(self) -> list[Position]:
        """Return the first of the queue, as far as there is room."""
        if not self._queue:
            return []
        room = sum(each.room for each in self._with_room())
        if room <= 0:
            return []
        return self._queue.first(self.options.read_entries_max, min(room, self._unacked.left))

    # Handing out

    def hand_out(
        self, entries: Sequence[Entry], owed: Mapping[Position, int], now_ms: int
    ) -> tuple[HandOut, int]:
        """Let consumers take turns, beginning with the next one."""
        self._turn_left = 0
        return super().hand_out(entries, owed, now_ms)

    def hand_out_again(
        self, entries: Sequence[Entry], owed: Mapping[Position, int], gone: Iterable[Position]
    ) -> HandOut:
        """Let consumers take turns, beginning with the next one."""
        self._turn_left = 0
        return super().hand_out_again(entries, owed, gone)

    def _offer(self, out: HandOut, entry: Entry, full: int, records: int) -> None:
        consumer = self._next()
        if consumer is None:
            self._queue.add(entry.position, records)
        else:
            self._give(out, consumer, entry, full=full, records=records)

    def _offer_again(self, out: HandOut, entry: Entry, full: int, records: int) -> None:
        waiting = self._queue.records_of(entry.position)
        self._queue.remove(entry.position, waiting & ~records)
        if waiting & records and (consumer := self._next()) is not None:
            self._queue.remove(entry.position, waiting)
            self._give(out, consumer, entry, full=full, records=waiting & records)

    def _next(self) -> ConsumerState | None:
        """Return whose turn it is; a turn goes on for some entries, while there is room."""
        turn = self._turn
        if turn is not None and self._turn_left > 0 and turn.room > 0 and not self._is_blocked:
            self._turn_left -= 1
            return turn
        chosen = pick_shared(self._with_room(), turn.number if turn is not None else -1)
        if chosen is not None:
            self._turn = chosen
            self._turn_left = self.options.turn_entries_max - 1
        return chosen
