"""Key shared state: every key has one consumer, and keeps its order.

Rule: a record goes to the owner of its key's slot, when nobody else has records of that slot and
nothing of it waits that comes before. Otherwise it waits in the queue, and reading goes on for the
other slots, so far and no farther. One entry may be split among many.
Must not know: cursors, clocks. Source: PIP-379, draining hashes; Pulsar keeps the order of entries,
here it is that of records.
"""

from collections.abc import Iterator, Mapping

from kledger.ledger import Buffer, Entry, Position
from kledger.subscriptions.consumer_state import ConsumerState
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.dispatch_state import HandOut
from kledger.subscriptions.entry_view import SlotRecords, slot_records
from kledger.subscriptions.replay_queue_state import SlotLine, SlotQueue
from kledger.subscriptions.sharing_state import SharingState
from kledger.subscriptions.slot_holders_state import SlotHolders
from kledger.subscriptions.slot_owners_state import SlotOwners, owners_for


class KeySharedState(SharingState):
    """See `DispatchState`.

    `_slots` are those of every entry of which somebody has something, or something waits. `_ready`
    are the slots, by owner, of which something waits that nothing but missing room holds up.
    """

    def __init__(self, options: DispatchOptions) -> None:
        super().__init__(options)
        self._owners: SlotOwners | None = None
        self._holders = SlotHolders()
        self._queue = SlotQueue()
        self._slots: dict[Position, SlotRecords] = {}
        self.looked_up: Mapping[Position, SlotRecords] = {}
        """The slots of entries that were read last, as far as somebody has looked them up."""
        self._ready: dict[int, dict[int, None]] = {}

    # Consumers

    def _admit(self, consumer: ConsumerState) -> None:
        owners = self._owners if self.consumers else None
        if owners is None:
            owners = owners_for(consumer.options)
        owners.add(consumer.number, consumer.options)
        self._owners = owners
        self._sort_out()

    def _dismiss(self, consumer: ConsumerState) -> None:
        assert self._owners is not None
        self._owners.remove(consumer.number)
        self._sort_out()

    def _sort_out(self) -> None:
        """Slots have changed hands."""
        self._ready = {}
        for slot in self._queue.lines:
            self._review(slot)

    def _review(self, slot: int) -> None:
        """Something about a slot has changed that waits or did."""
        owner = self._owner_of(slot)
        if owner is None:
            return
        if slot in self._queue and self._holders.is_free_for(slot, owner):
            self._ready.setdefault(owner, {}).setdefault(slot)
        elif owner in self._ready:
            self._ready[owner].pop(slot, None)

    def _owner_of(self, slot: int) -> int | None:
        return self._owners.owner_of(slot) if self._owners is not None else None

    # The queue

    def _enqueue(self, position: Position, records: int) -> None:
        for slot, mask in self._slots[position]:
            if mask & records:
                self._wait(slot, position, mask & records)

    def _enqueue_due(self, position: Position, slots: SlotRecords) -> None:
        self._slots[position] = slots
        self._enqueue(position, 1)

    def _slots_for_delay(self, position: Position, data: Buffer) -> SlotRecords:
        return self._look_up(position, data)

    def _look_up(self, position: Position, data: Buffer) -> SlotRecords:
        known = self.looked_up.get(position)
        return slot_records(position, data) if known is None else known

    def _wait(self, slot: int, position: Position, records: int) -> None:
        self._queue.add(slot, position, records)
        self._review(slot)

    def _dequeue(self, position: Position, records: int) -> None:
        for slot, mask in self._slots.get(position, ()):
            if slot in self._queue and mask & records:
                self._queue.remove(slot, position, mask & records)
                self._review(slot)
        self._forget_slots(position)

    def _dequeue_before(self, position: Position) -> None:
        for each in [each for each in self._slots if each < position]:
            self._dequeue(each, -1)

    def _dequeue_all(self) -> None:
        self._queue.clear()
        self._holders.clear()
        self._slots.clear()
        self._ready.clear()

    def _released(self, position: Position, records: int) -> bool:
        has_eased = False
        for slot, mask in self._slots[position]:
            if mask & records:
                is_free = self._holders.release(slot, (mask & records).bit_count())
                if is_free and slot in self._queue:
                    self._review(slot)
                    has_eased = True
        return has_eased

    def _forget_slots(self, position: Position) -> None:
        """Forget the slots of an entry of which nothing is left here."""
        if position in self._pending:
            return
        for slot, _ in self._slots.get(position, ()):
            if self._queue.records_of(slot, position):
                return
        self._slots.pop(position, None)

    # Reading

    def _must_wait(self) -> bool:
        limit = min(
            self.options.look_ahead_consumer_max * len(self.consumers), self.options.look_ahead_max
        )
        if self._queue.piece_count >= limit:
            return True
        return any(slots and self.consumers[each].room > 0 for each, slots in self._ready.items())

    def replay_wanted(self) -> list[Position]:
        """Return what is first of the slots that are ready, as far as their owners have room."""
        chosen: set[Position] = set()
        if self._ready and not self._is_blocked:
            left = self._unacked.left
            for number, slots in self._ready.items():
                room = min(self.consumers[number].room, left)
                for position, count in self._first_of(slots):
                    if room <= 0 or len(chosen) >= self.options.read_entries_max:
                        break
                    chosen.add(position)
                    room -= count
        return sorted(chosen)

    def _first_of(self, slots: dict[int, None]) -> Iterator[tuple[Position, int]]:
        """Yield what waits of some slots, and how many records it is."""
        for slot in slots:
            line: SlotLine = self._queue.lines[slot]
            for position in line.order:
                yield position, line.records[position].bit_count()

    # Handing out

    def _offer(self, out: HandOut, entry: Entry, full: int, records: int) -> None:
        position = entry.position
        slots = self._slots[position] = self._look_up(position, entry.buffer)
        given: dict[int, int] = {}
        for slot, mask in slots:
            if mask & records:
                owner = self._taker(slot, given) if slot not in self._queue else None
                if owner is None:
                    self._wait(slot, position, mask & records)
                else:
                    given[owner] = given.get(owner, 0) | mask & records
                    self._holders.take(slot, owner, (mask & records).bit_count())
        self._give_each(out, entry, full, given)

    def _offer_again(self, out: HandOut, entry: Entry, full: int, records: int) -> None:
        position = entry.position
        given: dict[int, int] = {}
        for slot, mask in self._slots.get(position, ()):
            waiting = self._queue.records_of(slot, position)
            if not waiting:
                continue
            owner = self._taker(slot, given) if self._queue.is_first(slot, position) else None
            if owner is None:
                self._queue.remove(slot, position, mask & ~records)
                self._review(slot)
                continue
            self._queue.remove(slot, position, waiting)
            if waiting & records:
                given[owner] = given.get(owner, 0) | waiting & records
                self._holders.take(slot, owner, (waiting & records).bit_count())
            self._review(slot)
        self._give_each(out, entry, full, given)
        self._forget_slots(position)

    def _taker(self, slot: int, given: dict[int, int]) -> int | None:
        """Return who may get a record of a slot now; who gets some of an entry may get more."""
        owner = self._owner_of(slot)
        if owner is None or not self._holders.is_free_for(slot, owner):
            return None
        if owner in given or (not self._is_blocked and self.consumers[owner].room > 0):
            return owner
        return None

    def _give_each(self, out: HandOut, entry: Entry, full: int, given: dict[int, int]) -> None:
        for number, records in given.items():
            self._give(out, self.consumers[number], entry, full=full, records=records)
